"""Models as they are published, with random weights: imported, compared with their source, used, exported again."""

from __future__ import annotations

import json
import shutil
from fnmatch import fnmatch
from pathlib import Path

import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from torch.testing import assert_close

from experiments.commands.evaluate import evaluate_runs
from experiments.commands.export_checkpoint import export_run
from experiments.commands.finetune import finetune
from experiments.commands.heads import show_heads
from experiments.commands.import_checkpoint import import_checkpoint
from experiments.data.tokenizer import load
from experiments.failures.exit_code import ExitCode
from experiments.failures.failure import Failure, Mistake
from experiments.formats.keys import READ_ACTIVATIONS
from experiments.heads.options import HeadsOptions
from experiments.model.layers.feed_forward import ACTIVATIONS
from experiments.record.folder import RunFolder
from tests.fixtures.campaign import in_campaigns
from tests.formats.released import CONFIGS, TEXT, save

transformers = pytest.importorskip("transformers")

# what is around a text, and around a pair of texts
FRAMES = {
    "bert": ("[CLS] x [SEP]", "[CLS] x [SEP] x [SEP]"),
    "roberta": ("<s> x </s>", "<s> x </s> </s> x </s>"),
    "t5": ("x </s>", "x </s> x </s>"),
    "gpt2": ("x", "x"),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("released")
    (folder / "text.txt").write_text(TEXT)
    rows = [{"sentence": f"the {('cat', 'dog')[number % 2]} sees a king", "label": number % 2} for number in range(12)]
    lines = [json.dumps(row) + "\n" for row in rows]
    (folder / "train.jsonl").write_text("".join(lines))
    (folder / "validation.jsonl").write_text("".join(lines[::-1]))
    return folder


@pytest.fixture(scope="module", params=CONFIGS)
def family(request, base) -> str:
    """A family whose model has been imported, with a check that it equals its source."""
    source, text = save(request.param, base / request.param), base / "text.txt"
    words = ["data=text", f"data.train={text}", f"cache={base / 'cache'}", "precision=fp32", "trainer.device=cpu"]
    import_checkpoint(str(source), request.param, base / "runs", words, check=True)
    return request.param


def test_it_is_evaluated(family, base, capsys):
    evaluate_runs([family], base / "runs", "best", "json")
    (row,) = json.loads(capsys.readouterr().out)
    assert row["loss"] > 0 and row["tokens"] > 0


def test_an_export_is_the_source_for_transformers(family, base, tmp_path, capsys):
    export_run(family, tmp_path / "again", base / "runs", "best", None)
    source, again = (json.loads((folder / "config.json").read_text()) for folder in (base / family, tmp_path / "again"))
    # its output map has a bias here, which is 0 where it had none
    kept = {key: value for key, value in source.items() if key != "classifier_bias"}
    assert {key: again[key] for key in kept} == kept and again["dtype"] == "float32"
    capsys.readouterr()
    import_checkpoint(str(tmp_path / "again"), "second", tmp_path / "runs", [], check=True)
    assert "4 of 4 texts have the same tokens" in capsys.readouterr().out
    first, second = (RunFolder(runs / "runs" / name).result() for runs, name in ((base, family), (tmp_path, "second")))
    assert first.parameters == second.parameters

    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "again", local_files_only=True)
    assert tokenizer.pad_token_id == again["pad_token_id"]
    frames = FRAMES.get(family, FRAMES["bert"])
    for frame, texts in zip(frames, (("the",), ("the", "the")), strict=True):
        tokens = tokenizer.convert_ids_to_tokens(tokenizer(*texts)["input_ids"])
        shown = [token if token in tokenizer.all_special_tokens else "x" for token in tokens]
        firsts = [each for i, each in enumerate(shown) if each != "x" or shown[i - 1 : i] != ["x"]]
        assert " ".join(firsts) == frame


@pytest.mark.parametrize("family", ["bert", "t5", *in_campaigns(*sorted({*CONFIGS} - {"bert", "t5"}))], indirect=True)
def test_it_is_fine_tuned(family, base, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = [f"task.{split}={base / split}.jsonl" for split in ("train", "validation")]
    words = ["task=sst2", *files, f"cache={base / 'cache'}", "batch_size=4"]
    fast = ["max_steps=2", "epochs=null", "schedule.warmup_steps=1", "logger.wandb=off", "precision=fp32"]
    assert finetune([str(base / "runs" / family), *words, *fast, "trainer.device=cpu", "length=32"]) == 0
    (folder,) = (tmp_path / "runs").glob("sst2-*")
    assert RunFolder(folder).result().status == "done"


@pytest.mark.parametrize("family", ["modernbert", "gpt2"], indirect=True)
@pytest.mark.usefixtures("undrawn")
def test_its_heads_are_shown(family, base):
    show_heads([family], base / "runs", HeadsOptions(sequences=2))
    assert (base / "runs" / family / "heads/index.html").exists()


def test_ids_without_tokens_are_named_and_never_drawn(tmp_path):
    tokenizer = load(save("t5", tmp_path / "t5") / "tokenizer.json")
    size = json.loads((tmp_path / "t5/config.json").read_text())["vocab_size"]
    padded = tokenizer.with_unused(size)
    assert padded.vocabulary_size == size and set(range(tokenizer.vocabulary_size, size)) <= padded.special
    assert (padded.cls_id, padded.sep_id, padded.mask_id) == (0, 1, None) and len(padded.sentinel_ids) == 100


def test_weights_that_are_not_those_of_the_source_are_refused(tmp_path, monkeypatch):
    from experiments.formats.bert import BertFormat

    source, right = save("bert", tmp_path / "bert"), BertFormat.from_hugging_face

    def wrong(self, state):
        ours = right(self, state)
        name = "encoder.layers.0.attention.query.weight"
        return ours | {name: ours[name].T}

    monkeypatch.setattr(BertFormat, "from_hugging_face", wrong)
    with pytest.raises(Mistake, match=r"--check: the logits of 96 tokens differ by at most"):
        import_checkpoint(str(source), "mine", tmp_path / "runs", [], check=True)
    assert not (tmp_path / "runs").exists()


class Hub:
    """Stands in for the hub: answers with a folder of its cache, or as it fails."""

    def __init__(self, folder: Path, error: Exception | None = None) -> None:
        self.folder, self.error, self.asked = folder, error, []

    def __call__(self, name: str, allow_patterns: list[str]) -> str:
        self.asked.append((name, allow_patterns))
        if self.error:
            raise self.error
        return str(self.folder)


def test_a_name_that_is_no_folder_is_looked_for_on_the_hub(tmp_path, monkeypatch, capsys):
    hub = Hub(save("distilbert", tmp_path / "0123456789abcdef"))
    monkeypatch.setattr("huggingface_hub.snapshot_download", hub)
    import_checkpoint("somebody/distilbert", "", tmp_path / "runs", [])
    assert "from somebody/distilbert of the Hugging Face hub, commit 0123456789ab\n" in capsys.readouterr().out
    assert (tmp_path / "runs/distilbert/result.json").exists()
    # the second file of weights is not asked for where the first is there
    assert [name for name, _ in hub.asked] == ["somebody/distilbert"] * 2 and hub.asked[1][1] == ["model.safetensors"]


def test_the_weights_of_a_name_may_be_in_several_files_which_is_said(tmp_path, monkeypatch):
    source = save("distilbert", tmp_path / "0123456789abcdef")
    (source / "model.safetensors").unlink()
    (source / "model.safetensors.index.json").write_text("{}")

    def download(name, allow_patterns):
        for file in source.iterdir():
            if any(fnmatch(file.name, pattern) for pattern in allow_patterns):
                (tmp_path / "cache").mkdir(exist_ok=True)
                shutil.copy(file, tmp_path / "cache")
        return str(tmp_path / "cache")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    with pytest.raises(Mistake, match="its weights are in several files, which is not supported"):
        import_checkpoint("somebody/distilbert", "", tmp_path / "runs", [])


def test_what_is_neither_here_nor_there_says_where_it_was_looked_for(tmp_path, monkeypatch):
    for name in ("./mine", "/absent/mine", "a/b/c"):
        with pytest.raises(Mistake, match="there is no such folder"):
            import_checkpoint(name, "mine", tmp_path / "runs", [])
    monkeypatch.setattr("huggingface_hub.snapshot_download", Hub(tmp_path, ConnectionError("no route")))
    with pytest.raises(Failure, match=r"berd: there is no folder of this name, and as a name of .* no route") as caught:
        import_checkpoint("berd", "mine", tmp_path / "runs", [])
    # nothing that was typed is wrong
    assert caught.value.exit_code == ExitCode.FAILED
    error = LocalEntryNotFoundError("Got: ConnectError: no route\nAn error happened while trying to locate the files")
    error.__cause__ = ConnectionError("no route")
    monkeypatch.setattr("huggingface_hub.snapshot_download", Hub(tmp_path, error))
    with pytest.raises(Failure, match=r"because the hub does not answer: no route$"):
        import_checkpoint("berd", "mine", tmp_path / "runs", [])
    with pytest.raises(Mistake, match=r"it cannot be loaded: "):
        monkeypatch.undo()
        import_checkpoint("be rd", "mine", tmp_path / "runs", [])


@pytest.mark.parametrize(
    ("family", "change", "said"),
    [
        ("roberta", {"pad_token_id": 0}, r"pad_token_id = 0 of config\.json.*, but <pad> of the tokenizer is 1"),
        ("t5", {"decoder_start_token_id": 1}, r"decoder_start_token_id = 1 of .*begins with <pad>, which is 0"),
        (
            "modernbert", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
            r"rope_scaling = .*'linear'.* of config\.json: only null can be expressed",
        ),
        ("modernbert", {"num_attention_heads": 8}, r"hidden_size / num_attention_heads = 3 of config\.json: .* even"),
    ],
)  # fmt: skip
def test_a_config_with_which_a_model_would_compute_something_else_is_refused(family, change, said, tmp_path):
    source = save(family, tmp_path / family)
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(Mistake, match=said):
        import_checkpoint(str(source), "mine", tmp_path / "runs", [])


@pytest.mark.parametrize("name", READ_ACTIVATIONS)
def test_an_activation_is_the_function_of_this_name_in_transformers(name):
    from transformers.activations import ACT2FN

    x = torch.linspace(-6, 6, 101, dtype=torch.float64)
    assert_close(ACTIVATIONS[READ_ACTIVATIONS[name]](x), ACT2FN[name](x), rtol=0, atol=1e-10)


def test_the_check_reads_further_than_a_published_window(tmp_path, monkeypatch):
    from experiments.formats.modernbert import ModernBertFormat

    published = {"local_attention": 128, "max_position_embeddings": 256}
    monkeypatch.setitem(CONFIGS, "modernbert", CONFIGS["modernbert"] | published)
    right = ModernBertFormat.settings
    monkeypatch.setattr(
        ModernBertFormat, "settings", lambda self, config: right(self, {**config, "local_attention": 140})
    )
    with pytest.raises(Mistake, match=r"--check: the logits of 384 tokens differ"):
        import_checkpoint(str(save("modernbert", tmp_path / "modernbert")), "mine", tmp_path / "runs", [], check=True)
