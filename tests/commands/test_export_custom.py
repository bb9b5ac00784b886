"""Runs exported as folders with their code, which transformers loads in a process without attn."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from experiments.commands.export_checkpoint import export_run
from experiments.commands.import_checkpoint import import_checkpoint
from experiments.config.compose import compose
from experiments.config.groups import options
from experiments.data.tokenizer import Tokenizer, load
from experiments.formats.custom_model import CUSTOM, copy_code, custom_model
from experiments.record.checkpoint_file import load_weights, origin, save, weights
from experiments.record.folder import RunFolder
from experiments.tasks.pretraining import Pretraining
from tests.formats.released import save as save_released
from tests.formats.released import tokenizer_of

transformers = pytest.importorskip("transformers")

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("hidden_size=24", "heads=2", "layers=2", "length=16", "model.initial_std=0.3")
CAUSAL, T5 = ("objective=causal",), ("objective=span_corruption", "model.position=relative")
# variants whose attention is of one kind alone; the others go with the encoder
OTHERS = {"sinusoids": ("model.position=sinusoidal",), "causal": CAUSAL, "t5": T5, "order": ("objective=masked_sop",)}
LOAD = """
import json, sys
sys.path = [path for path in sys.path if path != sys.argv[1]]
import torch, transformers
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
for folder in sys.argv[2:]:
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=True)
    auto = next(name for name in config.auto_map if name.startswith("AutoModelFor"))
    model, said = getattr(transformers, auto).from_pretrained(folder, trust_remote_code=True, output_loading_info=True)
    assert not any(said[each] for each in ("missing_keys", "unexpected_keys", "mismatched_keys")), (folder, said)
    import experiments
    assert experiments.__file__.startswith(sys.argv[2].rsplit("/", 1)[0]), experiments.__file__
    tokens = torch.arange(20).reshape(2, 10) + 5
    given = {"decoder_input_ids": tokens} if "Seq2Seq" in auto else {}
    with torch.no_grad():
        torch.save(model.eval()(tokens, attention_mask=torch.ones_like(tokens), **given).logits, folder + "/logits.pt")
"""


@pytest.fixture
def runs(tmp_path, names) -> Path:
    """A run folder of each name, as it starts, with the tokenizer of an imported model."""
    base = tmp_path / "custom"
    import_checkpoint(str(save_released("bert", base / "bert")), "bert", base / "runs", [])
    tokenizer = load(base / "runs/bert/tokenizer.json").with_sentinels(100)
    for name in names:
        start(base / "runs" / name, name, tokenizer)
    return base / "runs"


def start(path: Path, name: str, tokenizer: Tokenizer) -> None:
    settings = compose([*SMALL, *words_of(name)])
    with RunFolder(path) as folder:
        folder.create(settings.model_dump())
        tokenizer.save(folder.path / "tokenizer.json")
        model = Pretraining(settings).build_initialized_model(tokenizer.vocabulary_size)
        header = {"step": 0, **origin(settings.model_dump(), tokenizer.digest)}
        save(folder.checkpoint, "best", 0, weights(model), header)


def words_of(name: str) -> Sequence[str]:
    return OTHERS.get(name, (f"variant={name}",))


@pytest.mark.parametrize("names", [["talking_heads"]])
def test_a_folder_has_the_weights_of_the_run_and_the_code_of_its_variant(runs, tmp_path):
    export_run("talking_heads", tmp_path / "there", runs, "best", CUSTOM)
    config = json.loads((tmp_path / "there" / "config.json").read_text())
    assert config["auto_map"]["AutoModelForMaskedLM"] == "modeling_attn.AttnModel" and config["model"]["layers"] == 2
    source = tmp_path / "there" / "source"
    for file in ("attention/talking_heads.py", "experiments/model/layers/encoder.py"):
        assert (source / file).read_bytes() == (ROOT / file).read_bytes()
    there = load_file(tmp_path / "there" / "model.safetensors")
    (best,) = (runs / "talking_heads" / "checkpoint").glob("best-*.safetensors")
    ours = {name.replace("/", "."): tensor for name, tensor in load_file(best).items()}
    assert there.keys() == ours.keys() and all(torch.equal(there[name], ours[name]) for name in ours)


def test_a_full_disk_is_one_error_and_not_one_for_each_file(tmp_path, monkeypatch):
    copyfile = shutil.copyfile

    def full(file, copy, **options):
        if "source" in Path(copy).parts:
            raise OSError(errno.ENOSPC, "No space left on device")
        return copyfile(file, copy, **options)

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(OSError, match="No space left") as caught:
        copy_code(tmp_path, compose([]))
    assert caught.value.errno == errno.ENOSPC


def test_the_code_is_that_of_the_commit_from_which_the_hub_gave_the_weights(tmp_path, monkeypatch):
    commit, asked = "0123456789" * 4, {}
    shutil.copytree(ROOT / "experiments/formats/custom", tmp_path / "stored" / commit)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = import_module(f"stored.{commit}.modeling_attn")
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda name, **how: asked.update(how) or str(tmp_path))
    assert module._folder(SimpleNamespace(name_or_path="someone/model")) == tmp_path
    assert asked == {"allow_patterns": "source/**", "revision": commit}


def test_other_code_than_that_of_the_folder_is_said(tmp_path, monkeypatch):
    for folder in ("own", "used"):
        (tmp_path / folder / "source" / "attention").mkdir(parents=True)
        (tmp_path / folder / "source" / "attention" / "gated.py").write_text("gate = 1\n")
    (tmp_path / "used" / "source" / "more.py").touch()
    shutil.copytree(ROOT / "experiments/formats/custom", tmp_path / "stored" / "custom")
    monkeypatch.syspath_prepend(str(tmp_path))
    warn = import_module("stored.custom.modeling_attn")._warn_of_other_code
    with warnings.catch_warnings(record=True, action="always") as said:
        warn(tmp_path / "own" / "source", tmp_path / "used" / "source")
        assert not said
        (tmp_path / "used" / "source" / "attention" / "gated.py").write_text("gate = 2\n")
        warn(tmp_path / "own" / "source", tmp_path / "used" / "source")
    (warning,) = said
    assert "attention/gated.py differs in" in str(warning.message)


def test_the_code_of_an_exported_model_says_that_it_cannot_train(tmp_path):
    (tmp_path / "experiments").mkdir()
    shutil.copy(ROOT / "experiments" / "__init__.py", tmp_path / "experiments")
    command = [sys.executable, "-S", "-c", "import experiments; experiments.train"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={})
    assert "is the code of an exported model; import experiments before you load the model" in done.stderr


@pytest.mark.parametrize(
    ("name", "tokens", "begins"),
    [
        ("multi_head", "[CLS] the [SEP]", "bos_token_id"),
        ("causal", "[CLS] the", "bos_token_id"),
        ("t5", "the [SEP]", "decoder_start_token_id"),
    ],
)
def test_a_text_has_the_special_tokens_of_the_training(name, tokens, begins, tmp_path):
    inner, _ = tokenizer_of("bert")
    inner.post_processor = None
    start(tmp_path / "runs" / name, name, Tokenizer(inner).with_sentinels(100))
    export_run(name, tmp_path / "there", tmp_path / "runs", "best", CUSTOM)
    there = type(inner).from_file(str(tmp_path / "there" / "tokenizer.json"))
    assert " ".join(there.encode("the").tokens) == tokens
    config = json.loads((tmp_path / "there" / "config.json").read_text())
    assert {key: config[key] for key in config if key in ("bos_token_id", "decoder_start_token_id")} == {
        begins: inner.token_to_id("[CLS]")
    }


@pytest.mark.parametrize(("name", "shift"), [("multi_head", 0), ("causal", 1)])
def test_only_a_causal_model_shifts_its_labels(name, shift, tmp_path):
    code = import_module("experiments.formats.custom.modeling_attn")
    config = code.AttnConfig(**custom_model(compose([*SMALL, *words_of(name)]), 40, {}).config)
    config.name_or_path = str(tmp_path)
    tokens = torch.arange(20).reshape(2, 10)
    labels = tokens.where(tokens % 3 > 0, -100)
    output = code.AttnModel(config).eval()(tokens, labels=labels)
    predicted = output.logits[:, : 10 - shift].flatten(0, 1)
    assert_close(output.loss, cross_entropy(predicted, labels[:, shift:].flatten()))


@pytest.mark.campaign
@pytest.mark.parametrize("names", [[*options("variant"), *OTHERS]], ids=["every_variant"])
def test_a_run_has_the_same_logits_elsewhere(runs, names, tmp_path):
    for name in names:
        export_run(name, tmp_path / name, runs, "best", CUSTOM)
    folders = [str(tmp_path / name) for name in names]
    environment = {"HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1", "HOME": str(tmp_path)}
    command = [sys.executable, "-c", LOAD, str(ROOT), *folders]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    tokens = torch.arange(20).reshape(2, 10) + 5
    for name in names:
        run = RunFolder(runs / name)
        settings = compose([*SMALL, *words_of(name)])
        tokenizer = load(run.path / "tokenizer.json")
        model = Pretraining(settings).build_model(tokenizer.vocabulary_size).eval()
        load_weights(model, run, tokenizer.digest, "best", print)
        given = {"decoder_tokens": tokens} if name == "t5" else {}
        with torch.no_grad():
            assert_close(torch.load(tmp_path / name / "logits.pt"), model(tokens, **given), rtol=1e-4, atol=1e-4)
