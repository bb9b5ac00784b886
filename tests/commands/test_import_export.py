"""attn import and attn export: folders of transformers there and back, and what is refused."""

from __future__ import annotations

import json
import math
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from experiments.commands.evaluate import evaluate_runs
from experiments.commands.export_checkpoint import export_run
from experiments.commands.heads import show_heads
from experiments.commands.import_checkpoint import import_checkpoint
from experiments.config.check import from_tree
from experiments.data.tokenizer import SPECIAL, from_vocabulary
from experiments.failures.failure import Failure, Mistake
from experiments.formats import format as format_module
from experiments.formats.bert import BertFormat
from experiments.formats.format import formats
from experiments.formats.source import read_tokenizer
from experiments.heads.options import HeadsOptions
from experiments.model.build import build
from experiments.record.checkpoint_file import load_weights
from experiments.record.errors import RunFolderError
from experiments.record.folder import RESERVED, RunFolder, config_text
from experiments.tasks.pretraining import Pretraining

transformers = pytest.importorskip("transformers")

WORDS = ["the", "cat", "sees", "a", "dog", "##s", ".", "king", "finds"]


@pytest.fixture(scope="module")
def saved_bert(tmp_path_factory) -> Path:
    """A folder as transformers saves it, of a BERT as it begins."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(SPECIAL) + len(WORDS), hidden_size=24, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=36, max_position_embeddings=16, initializer_range=0.3, hidden_dropout_prob=0.0,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("bert") / "theirs"
    transformers.BertForMaskedLM(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
    return folder


@pytest.fixture
def bert(saved_bert, tmp_path) -> Path:
    """A copy of that folder, which a test may spoil."""
    return shutil.copytree(saved_bert, tmp_path / "theirs")


def nested(depth: int) -> object:
    value: object = math.inf
    for number in range(depth):
        value = [value] if number % 2 else {"x": value}
    return value


@pytest.fixture
def text(tmp_path) -> list[str]:
    file = tmp_path / "text.txt"
    file.write_text("\n\n".join(f"The cat sees {number} dogs. A king finds the cats." for number in range(400)))
    return ["data=text", f"data.train={file}", "precision=fp32", "trainer.device=cpu"]


def logits(folder: Path, tokens: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return transformers.BertForMaskedLM.from_pretrained(folder, local_files_only=True).eval()(tokens).logits


def test_an_imported_run_computes_the_same_and_can_be_exported_again(bert, text, tmp_path, capsys):
    runs = tmp_path / "runs"
    import_checkpoint(str(bert), "mine", runs, [*text, f"cache={tmp_path / 'cache'}"])
    folder = RunFolder(runs / "mine")
    result = folder.result()
    assert result.status == "imported" and str(bert) in result.reason
    assert result.validation_loss is None and result.steps == 0 and result.parameters["total"] > 0
    assert folder.environment()["imported"]["model_type"] == "bert"
    settings = from_tree(folder.config())
    model = build("encoder", settings.model, settings.variant, 14, seed=1).eval()
    load_weights(model, folder, result.tokenizer_digest, "best", print)
    tokens = torch.randint(14, (2, 9), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert_close(model(tokens), logits(bert, tokens), rtol=0, atol=1e-5)

    export_run("mine", tmp_path / "again", runs, "best", None)
    assert_close(logits(tmp_path / "again", tokens), logits(bert, tokens), rtol=0, atol=0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "again", local_files_only=True)
    assert tokenizer.tokenize("The cats.") == ["the", "cat", "##s", "."] and tokenizer.mask_token == "[MASK]"

    capsys.readouterr()
    evaluate_runs(["mine"], runs, "best", "json")
    (row,) = json.loads(capsys.readouterr().out)
    assert row["checkpoint"] == "best, step 0" and row["loss"] > 0
    with pytest.raises(Mistake, match="no good newest checkpoint to load\n  --checkpoint best loads the other"):
        evaluate_runs(["mine"], runs, "newest", "json")
    shutil.rmtree(folder.checkpoint)
    for which in ("best", "newest"):
        with pytest.raises(Mistake, match=r"no good checkpoint to load\n  remove .*/mine, and repeat the command"):
            evaluate_runs(["mine"], runs, which, "json")


@pytest.mark.usefixtures("undrawn")
def test_an_export_does_not_replace_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Mistake, match="is the current folder"):
        export_run("mine", Path(), tmp_path / "runs", "best", None)


def test_the_heads_of_an_imported_run_are_shown(bert, text, tmp_path):
    import_checkpoint(str(bert), "mine", tmp_path / "runs", [*text, f"cache={tmp_path / 'cache'}"])
    show_heads(["mine"], tmp_path / "runs", HeadsOptions(sequences=2))
    assert (tmp_path / "runs/mine/heads/index.html").exists()


def test_a_file_of_torch_is_read_as_tensors_and_what_would_run_code_is_not(bert, tmp_path):
    state = load_file(bert / "model.safetensors")
    (bert / "model.safetensors").unlink()
    torch.save(state, bert / "pytorch_model.bin")
    import_checkpoint(str(bert), "fine", tmp_path / "runs", [])

    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    with (bert / "pytorch_model.bin").open("wb") as file:
        pickle.dump({"weight": Evil()}, file)
    with pytest.raises(Mistake, match="can't be read as a file of tensors only"):
        import_checkpoint(str(bert), "evil", tmp_path / "runs", [])
    assert not (tmp_path / "ran").exists() and not (tmp_path / "runs/evil").exists()


def test_a_pre_training_checkpoint_loses_its_pooler_and_says_so(bert, tmp_path, capsys):
    state = load_file(bert / "model.safetensors")
    save_file(state | {"bert.pooler.dense.weight": torch.ones(24, 24)}, bert / "model.safetensors")
    import_checkpoint(str(bert), "mine", tmp_path / "runs", [])
    assert "left out, because our model has no place for them: bert.pooler.dense.weight" in capsys.readouterr().out


def test_a_key_size_of_its_own_comes_from_a_converted_file(bert, tmp_path, capsys):
    config = json.loads((bert / "config.json").read_text()) | {"attention_key_size": 9}
    (bert / "config.json").write_text(json.dumps(config))
    state = load_file(bert / "model.safetensors")
    for layer in (0, 1):
        for name in ("query", "key"):
            prefix = f"bert.encoder.layer.{layer}.attention.self.{name}"
            state |= {f"{prefix}.weight": torch.randn(36, 24), f"{prefix}.bias": torch.randn(36)}
    save_file(state, bert / "model.safetensors")
    import_checkpoint(str(bert), "plus", tmp_path / "runs", [])
    assert RunFolder(tmp_path / "runs/plus").config()["key_size"] == 9
    export_run("plus", tmp_path / "again", tmp_path / "runs", "best", "bert")
    assert "transformers does not load such weights" in capsys.readouterr().out
    again = load_file(tmp_path / "again/model.safetensors")
    assert all(torch.equal(again[name], value) for name, value in state.items())
    with pytest.raises(RuntimeError, match="size"):
        logits(tmp_path / "again", torch.zeros(1, 3, dtype=torch.int64))


def torch_file(folder: Path) -> Path:
    (folder / "model.safetensors").unlink()
    return folder / "pytorch_model.bin"


def spoil(folder: Path, **keys: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "config.json").unlink(), "there is no config.json"),
        (lambda folder: (folder / "config.json").write_text("{"), "not JSON"),
        (lambda folder: (folder / "config.json").write_text("[" * 200_000), r"config\.json: .* nested too deeply"),
        (lambda folder: spoil(folder, x=nested(101)), r"config\.json: its lists or mappings are nested too deeply"),
        (lambda folder: spoil(folder, model_type="berd"), r"model_type = 'berd' of config\.json.*did you mean bert"),
        (lambda folder: spoil(folder, model_type=["bert"]), r"model_type = \['bert'\] of config\.json: must be one of"),
        (lambda folder: spoil(folder, model_type="attn"), "transformers-custom` wrote it, and it cannot be imported"),
        (
            lambda folder: spoil(folder, num_attention_heads=0),
            r"num_attention_heads = 0 of config\.json: must be a whole number, at least 1",
        ),
        (lambda folder: spoil(folder, hidden_size="24"), r"hidden_size = '24' of config\.json: must be a whole number"),
        (lambda folder: spoil(folder, vocab_size=13), "vocab_size = 13 of config.json, but the tokenizer has 14"),
        (lambda folder: spoil(folder, vocab_size=15), r"token.weight is \[14, 24\], not \[15, 24\]"),
        (
            lambda folder: spoil(folder, hidden_act="silu"),
            "hidden_act = 'silu' of config.json: must be one of relu, gelu",
        ),
        (lambda folder: spoil(folder, num_hidden_layers=3), "another model: it lacks model/encoder.layers.2"),
        (lambda folder: spoil(folder, intermediate_size=40), r"inner.weight is \[36, 24\], not \[40, 24\]"),
        (lambda folder: (folder / "vocab.txt").unlink(), "neither tokenizer.json nor vocab.txt"),
        (lambda folder: (folder / "vocab.txt").write_text("a\nb\n"), r"there is no \[PAD\]"),
        (lambda folder: (folder / "model.safetensors").unlink(), "no model.safetensors or pytorch_model.bin"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"{}"), "can't be read as a file of tensors only"),
        (
            lambda folder: torch_file(folder).write_bytes(b"junk\n"),
            r"model\.bin: can't be read as a file of tensors only",
        ),
        (lambda folder: torch_file(folder).touch(), r"model\.bin: can't be read as a file of tensors only"),
        (lambda folder: (folder / "tokenizer_config.json").write_text("{"), r"tokenizer_config\.json: is not JSON"),
        (
            lambda folder: (folder / "tokenizer_config.json").write_text("[]"),
            r"tokenizer_config\.json: is not a mapping",
        ),
    ],
)
def test_what_can_not_be_imported_is_named_and_leaves_nothing(bert, tmp_path, damage, said):
    damage(bert)
    with pytest.raises(Mistake, match=said):
        import_checkpoint(str(bert), "mine", tmp_path / "runs", [])
    assert not (tmp_path / "runs/mine").exists()


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("options", [{}, {"strip_accents": None}, {"strip_accents": False}, {"strip_accents": True},
                                     {"tokenize_chinese_chars": False}])  # fmt: skip
def test_a_vocabulary_splits_texts_as_its_configuration_says(tmp_path, options, lowercase):
    letters = "a\u00e9e\u00dcu\u4eca\u5929Cc"
    vocabulary = [*SPECIAL, *letters, *(f"##{letter}" for letter in letters)]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    config = {"tokenizer_class": "BertTokenizer", "do_lower_case": lowercase, **options}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    theirs = transformers.BertTokenizer(vocab=str(tmp_path / "vocab.txt"), do_lower_case=lowercase, **options)
    texts = ["ca\u00e9 \u00dcu", "\u4eca\u5929a C\u00c9"]
    for text, ours in zip(texts, read_tokenizer(tmp_path).encode(texts), strict=True):
        assert ours.tolist() == theirs(text, add_special_tokens=False)["input_ids"]


ADDED = {"content": "covid", "lstrip": False, "rstrip": False, "single_word": False, "special": False}
MARKED = {"added_tokens_decoder": {"15": {**ADDED, "content": "<E1>", "special": True}, "14": ADDED}}


@pytest.mark.parametrize(
    ("added", "config"),
    [
        ({"covid": 14}, {}),
        ({"<E1>": 15, "COVID": 14}, {"do_lower_case": False}),
        ({"<E1>": 15, "covid": 14, "[SEP]": 3}, {"additional_special_tokens": ["<E1>"]}),
        ({"covid": 14}, MARKED),
        ({}, {"added_tokens_decoder": {"14": {**ADDED, "normalized": False, "lstrip": True}}}),
        ({"covid": 14}, {"added_tokens_decoder": {}}),
    ],
)
def test_tokens_that_a_folder_adds_to_its_vocabulary_are_those_of_transformers(bert, added, config):
    (bert / "added_tokens.json").write_text(json.dumps(added))
    (bert / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", **config}))
    theirs = transformers.AutoTokenizer.from_pretrained(bert, local_files_only=True)
    tokenizer = read_tokenizer(bert)
    assert tokenizer.vocabulary_size == len(theirs)
    texts = ["the cat covid", "the COVID dogs.", "a <E1> covids king <e1>", "[SEP] covid"]
    for text, ours in zip(texts, tokenizer.encode(texts), strict=True):
        # a special token in a text is plain characters
        assert ours.tolist() == theirs(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]


@pytest.mark.parametrize(
    ("added", "config", "said"),
    [
        ({"covid": 15}, {}, "vocab.txt: the added token 'covid' has the id 15, but transformers gives it 14"),
        ({"cat": 14}, {}, "the added token 'cat' has the id 14, but transformers gives it 6"),
        ({"": 14}, {}, "the added token '' has the id 14, but transformers gives it None"),
        ({"covid": "14"}, {}, "covid = '14' of added_tokens.json: must be a whole number, at least 0"),
        ([], {}, "added_tokens.json: is not a mapping"),
        ({}, {"added_tokens_decoder": []}, r"added_tokens_decoder = \[\] of tokenizer_config.json: must be a mapping"),
        ({}, {"added_tokens_decoder": {"x": {}}}, "'x' in added_tokens_decoder of tokenizer_config.json: must be an"),
        ({}, {"added_tokens_decoder": {"14": "covid"}}, "14 = 'covid' of added_tokens_decoder of .*: must be a map"),
        ({}, {"added_tokens_decoder": {"14": {"content": 5}}}, "the added token with the id 14 cannot be read: "),
        ({}, {"added_tokens_decoder": {"14": {}}}, "the added token '' has the id 14, but transformers gives it None"),
    ],
)
def test_added_tokens_that_cannot_be_those_of_transformers_are_named(bert, added, config, said):
    (bert / "added_tokens.json").write_text(json.dumps(added))
    (bert / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(Mistake, match=said):
        read_tokenizer(bert)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"do_lower_case": "false"}, "do_lower_case = 'false' of tokenizer_config.json: must be true or false"),
        ({"strip_accents": 1}, "strip_accents = 1 of tokenizer_config.json: must be true or false"),
        ({"do_basic_tokenize": False}, "do_basic_tokenize = false of tokenizer_config.json: only true can be"),
    ],
)
def test_what_the_configuration_of_a_vocabulary_may_not_say_is_named(bert, tmp_path, options, said):
    (bert / "tokenizer_config.json").write_text(json.dumps(options))
    with pytest.raises(Mistake, match=said):
        import_checkpoint(str(bert), "mine", tmp_path / "runs", [])


def test_a_bug_is_not_blamed_on_the_file(bert, tmp_path, monkeypatch):
    monkeypatch.setattr(BertFormat, "settings_of", lambda self, config, same: same["absent"])
    with pytest.raises(KeyError, match="absent"):
        import_checkpoint(str(bert), "mine", tmp_path / "runs", [])


def test_a_configuration_may_have_what_only_python_calls_json(bert, tmp_path):
    spoil(bert, x=nested(98))
    assert "Infinity" in (bert / "config.json").read_text()
    import_checkpoint(str(bert), "mine", tmp_path / "runs", [])
    assert RunFolder(tmp_path / "runs" / "mine").result().status == "imported"


def test_a_file_is_no_folder_to_import(bert, tmp_path):
    with pytest.raises(Mistake, match="there is no config"):
        import_checkpoint(str(bert / "config.json"), "mine", tmp_path / "runs", [])


def test_a_check_without_transformers_names_it(bert, tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.failures.missing_extra.find_spec", lambda name: None)
    with pytest.raises(Mistake, match=r"--check needs transformers\n  pip install"):
        import_checkpoint(str(bert), "mine", tmp_path / "runs", [], check=True)


def test_nothing_is_overwritten(bert, tmp_path):
    import_checkpoint(str(bert), "mine", tmp_path / "runs", [])
    with pytest.raises(Mistake, match="exists already"):
        import_checkpoint(str(bert), "mine", tmp_path / "runs", [])
    with pytest.raises(Mistake, match="exists already"):
        export_run("mine", bert, tmp_path / "runs", "best", None)
    with pytest.raises(Mistake, match=r"^--name a/b: must consist of letters"):
        import_checkpoint(str(bert), "a/b", tmp_path / "runs", [])
    for name in RESERVED:
        with pytest.raises(Mistake, match=rf"^--name {name}: {name} in the folder of the runs is for "):
            import_checkpoint(str(bert), name, tmp_path / "runs", [])
    bert = bert.rename(tmp_path / "tables")
    with pytest.raises(Mistake, match=r"/tables: tables in the folder .* is for .*\n  give another --name$"):
        import_checkpoint(str(bert), "", tmp_path / "runs", [])
    bert = bert.rename(tmp_path / "my bert")
    with pytest.raises(Mistake, match=r"'my bert' cannot be the name of a run, .*\n  give one with --name NAME$"):
        import_checkpoint(str(bert), "", tmp_path / "runs", [])
    with pytest.raises(Mistake, match=r"runs/mine is a run folder already\n  attn evaluate"):
        import_checkpoint(str(tmp_path / "runs/mine"), "", tmp_path / "runs", [])


def test_a_target_that_cannot_be_made_is_said_with_what_an_export_can_choose(bert, tmp_path, monkeypatch):
    import_checkpoint(str(bert), "mine", tmp_path / "runs", [])
    (tmp_path / "file").touch()
    with pytest.raises(Mistake, match=r"file/there: a file stands where a folder should be\n  name another folder$"):
        export_run("mine", tmp_path / "file" / "there", tmp_path / "runs", "best", None)
    with pytest.raises(Mistake, match=r"^/proc/there/deep: no folder can be made in /proc\n  name another folder$"):
        export_run("mine", Path("/proc/there/deep"), tmp_path / "runs", "best", None)
    # a file that comes there while the model is loaded
    monkeypatch.setattr("experiments.commands.export_checkpoint.why_no_folder", lambda path: None)
    with pytest.raises(Failure, match=r"file/there: a file stands .*; remove it, or name another FOLDER$"):
        export_run("mine", tmp_path / "file" / "there", tmp_path / "runs", "best", None)


def test_of_two_imports_by_one_name_the_first_to_end_stays_whole(bert, tmp_path, monkeypatch):
    runs = tmp_path / "runs"
    start, at_once = Pretraining.build_initialized_model, iter([True])

    def slowly(self, size):
        if next(at_once, False):
            import_checkpoint(str(bert), "mine", runs, ["seed=1"])
        return start(self, size)

    monkeypatch.setattr(Pretraining, "build_initialized_model", slowly)
    with pytest.raises(RunFolderError, match="another process has made this folder"):
        import_checkpoint(str(bert), "mine", runs, ["seed=2"])
    assert RunFolder(runs / "mine").config()["seed"] == 1 and RunFolder(runs / "mine").result().status == "imported"
    assert [path.name for path in runs.iterdir()] == ["mine"]


def test_a_run_that_no_format_expresses_is_refused_by_name(bert, tmp_path):
    runs = tmp_path / "runs"
    import_checkpoint(str(bert), "mine", runs, [])
    config = RunFolder(runs / "mine").config()
    other = config | {"norm": "pre", "model": config["model"] | {"norm": "pre", "head_transform": False}}
    (runs / "mine/config.yaml").write_text(config_text(other))
    of_bert = (
        r"--format bert cannot express this run: norm=pre: BERT has post; model\.head_transform=false: BERT has true"
    )
    for format, said in (("bert", of_bert), (None, "no format of transformers can express this run")):
        with pytest.raises(Mistake, match=f"^{said}.*\n  --format transformers-custom exports the model of any run$"):
            export_run("mine", tmp_path / "out", runs, "best", format)
    with pytest.raises(Mistake, match=r"--format bart: must be one of albert, bert, .*, transformers-custom"):
        export_run("mine", tmp_path / "out", runs, "best", "bart")
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".out*"))
    shutil.rmtree(runs)


def test_every_file_of_the_folder_is_a_format():
    folder = Path(format_module.__file__).parent
    shared = {"__init__", "format", "keys", "source", "own_sizes", "names"}
    shared |= {"exported_model", "custom_model", "compare_with_transformers"}
    assert set(formats()) == {path.stem for path in folder.glob("*.py")} - shared


SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 36}
OTHERS = {
    "gpt2": ("GPT2", "GPT2LMHeadModel", {"n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 16}),
    "gpt2-untied": (
        "GPT2", "GPT2LMHeadModel",
        {"n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 16, "tie_word_embeddings": False},
    ),
    "albert": ("Albert", "AlbertForMaskedLM", SIZES | {"embedding_size": 10, "max_position_embeddings": 16}),
    "albert-order": ("Albert", "AlbertForPreTraining", SIZES | {"embedding_size": 10, "max_position_embeddings": 16}),
    "t5": ("T5", "T5ForConditionalGeneration", {"d_model": 24, "num_layers": 2, "num_heads": 4, "d_kv": 7, "d_ff": 36}),
    "t5-untied": (
        "T5", "T5ForConditionalGeneration",
        {"d_model": 24, "num_layers": 2, "num_heads": 4, "d_kv": 7, "d_ff": 36, "feed_forward_proj": "gated-gelu",
         "tie_word_embeddings": False},
    ),
}  # fmt: skip
SENTINELS = 20


@pytest.fixture(params=OTHERS)
def other(request, tmp_path) -> Path:
    """A folder of a causal model, an ALBERT or a T5, whose tokenizer has sentinels."""
    family, kind, sizes = OTHERS[request.param]
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(vocab_size=len(SPECIAL) + len(WORDS) + SENTINELS, **sizes)
    folder = tmp_path / "theirs"
    model = getattr(transformers, kind)(config)
    if request.param == "t5-untied":
        # a fresh model of transformers ties the two whatever its configuration says
        model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    model.save_pretrained(folder)
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
    tokenizer = from_vocabulary(tmp_path / "vocab.txt", lowercase=True).with_sentinels(SENTINELS)
    tokenizer.save(folder / "tokenizer.json")
    return folder


def outputs(folder: Path) -> list[torch.Tensor]:
    """What transformers makes of the folder."""
    kind = json.loads((folder / "config.json").read_text())["architectures"][0]
    model, said = getattr(transformers, kind).from_pretrained(folder, local_files_only=True, output_loading_info=True)
    assert not any(said[each] for each in ("missing_keys", "unexpected_keys", "mismatched_keys")), said
    tokens = torch.randint(14, (2, 9), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        given = {"decoder_input_ids": tokens.flip(1)} if "T5" in kind else {}
        found = model.eval()(input_ids=tokens, **given)
    return [getattr(found, name) for name in ("logits", "prediction_logits", "sop_logits") if hasattr(found, name)]


def test_other_formats_there_and_back(other, text, tmp_path, capsys):
    runs = tmp_path / "runs"
    is_t5 = "T5" in (other / "config.json").read_text()
    words = [*text, f"cache={tmp_path / 'cache'}", *(["objective.sentinels=20", "length=16"] if is_t5 else [])]
    import_checkpoint(str(other), "mine", runs, words)
    export_run("mine", tmp_path / "again", runs, "best", None)
    assert_close(outputs(tmp_path / "again"), outputs(other), rtol=0, atol=1e-5)
    assert json.loads((tmp_path / "again/config.json").read_text()).get("decoder_start_token_id") == (
        2 if is_t5 else None
    )
    import_checkpoint(str(tmp_path / "again"), "second", runs, words)
    first, second = (json.loads((runs / name / "result.json").read_text()) for name in ("mine", "second"))
    assert first["parameters"] == second["parameters"]
    capsys.readouterr()
    evaluate_runs(["mine"], runs, "best", "json")
    (row,) = json.loads(capsys.readouterr().out)
    assert row["loss"] > 0


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("heads=1", "heads = 1: the model of .*theirs has 4"),
        ("model.activation=relu", "model.activation = 'relu': the model of .*theirs has 'gelu_tanh'"),
        ("variant=talking_heads", "variant.name = 'talking_heads': .* has 'multi_head'"),
        ("objective=masked", "objective.kind = 'masked': .* has 'causal'"),
        ("runs=elsewhere", "runs=elsewhere: attn import does not use runs\n  --runs FOLDER names"),
        ("tokenizer=wordpiece", "tokenizer=wordpiece: attn import does not use tokenizer\n  the run has that of"),
        ("tokenizer.vocabulary_size=99", "attn import does not use tokenizer.vocabulary_size"),
        ("max_steps=3", "max_steps=3: attn import does not use max_steps\n  the run is not trained"),
        ("schedule.warmup_steps=3", "attn import does not use schedule.warmup_steps"),
        ("trainer.log_every=3", "attn import does not use trainer.log_every"),
    ],
)
@pytest.mark.parametrize("other", ["gpt2"], indirect=True)
def test_settings_of_another_model_than_the_sources_are_refused(other, word, said, tmp_path):
    with pytest.raises(Mistake, match=said):
        import_checkpoint(str(other), "mine", tmp_path / "runs", [word])
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("other", ["gpt2"], indirect=True)
def test_what_makes_no_other_model_may_be_set(other, tmp_path):
    words = ["model.dropout=0.3", "model.attention_dropout=0.2", "heads=4", "seed=5", "trainer.micro_batch=2"]
    import_checkpoint(str(other), "mine", tmp_path / "runs", words)
    config = RunFolder(tmp_path / "runs/mine").config()
    assert (config["model"]["dropout"], config["variant"]["dropout"], config["seed"]) == (0.3, 0.2, 5)


@pytest.mark.parametrize("other", ["t5"], indirect=True)
def test_a_t5_whose_tokenizer_has_fewer_sentinels_is_refused(other, tmp_path):
    with pytest.raises(Mistake, match=r"objective\.sentinels=100: the tokenizer of .* has 20") as refused:
        import_checkpoint(str(other), "mine", tmp_path / "runs", [])
    assert not (tmp_path / "runs/mine").exists() and "objective.sentinels=20" in str(refused.value)
