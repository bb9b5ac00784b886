"""`attn evaluate` computes as the run did: its precision on any machine, and in parts that fit."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from cli import app
from experiments.cells.cell import execute
from experiments.commands import evaluate
from experiments.commands.evaluate import evaluate_runs
from experiments.config.compose import compose
from experiments.config.recorded import on_this_machine
from experiments.display.progress import Display
from experiments.failures.exit_code import ExitCode
from experiments.failures.failure import Failure, Mistake
from experiments.files.digest import bytes_digest
from experiments.objectives.kinds.masked import Masked
from experiments.record.code import changed
from experiments.record.folder import RunFolder, config_text
from experiments.tasks.trained import open_trained
from experiments.training.step.micro_batches import Forward
from tests.fixtures.device import as_computed


@pytest.fixture(scope="module")
def runs(tiny, tmp_path_factory) -> Path:
    """A folder with one run, trained where bfloat16 is fast."""
    folder = tmp_path_factory.mktemp("evaluate")
    own = [f"runs={folder / 'runs'}", f"cache={folder / 'cache'}", "precision=auto"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("experiments.measure.hardware.fast_bf16", lambda device: True)
        assert execute(compose(["heads=2", *tiny, *own])) == 0
    assert result(folder / "runs")["precision"] == "bf16"
    return folder / "runs"


def result(runs: Path) -> dict:
    (path,) = runs.glob("*/result.json")
    return json.loads(path.read_text())


@pytest.fixture
def score(runs, monkeypatch, capsys):
    """The loss of the training, and that of `attn evaluate` on a machine where bfloat16 isn't fast."""
    monkeypatch.setattr("experiments.measure.hardware.fast_bf16", lambda device: False)

    def scored(*words: str) -> tuple[float, str]:
        capsys.readouterr()
        evaluate_runs(["multi_head", *words], runs, "newest", "json")
        said = capsys.readouterr()
        return json.loads(said.out)[0]["loss"], said.err

    return result(runs)["validation_loss"], scored


def test_the_precision_is_that_of_the_training_unless_another_is_asked_for(score):
    trained, scored = score
    assert scored()[0] == as_computed(trained)
    assert scored("precision=fp32")[0] != trained


def test_an_earlier_checkpoint_than_that_of_the_result_is_named(score, runs, tmp_path, capsys):
    """A backup that was restored in part may bring one back."""
    assert "earlier checkpoint" not in score[1]()[1]
    shutil.copytree(runs, tmp_path / "runs")
    earlier, last = sorted(tmp_path.glob("runs/*/checkpoint/step-*.safetensors"))
    last.unlink()
    evaluate_runs(["multi_head"], tmp_path / "runs", "newest", "json")
    said = capsys.readouterr().err
    assert f"{earlier}: is an earlier checkpoint than the newest one of the finished run" in said


def test_several_runs_are_scored_in_one_table_and_one_that_cannot_be_does_not_stop_the_others(runs, tmp_path, capsys):
    (trained,) = runs.glob("*")
    for name in ("a", "b", "c"):
        shutil.copytree(trained, tmp_path / "runs" / f"copy-{name}")
    code = evaluate_runs(["copy", "copy-b", "trainer.threads=1"], tmp_path / "runs", "newest", "json")
    rows = json.loads(capsys.readouterr().out)
    assert code == 0 and [row["run"] for row in rows] == ["copy-a", "copy-b", "copy-c"], "each once"
    assert len({row["loss"] for row in rows}) == 1

    for path in tmp_path.glob("runs/copy-b/checkpoint/*.safetensors"):
        path.unlink()
    code = evaluate_runs(["copy"], tmp_path / "runs", "newest", "json")
    said = capsys.readouterr()
    assert code == ExitCode.MISTAKE and [row["run"] for row in json.loads(said.out)] == ["copy-a", "copy-c"]
    assert said.err.startswith("failed: copy-b: ") or "\nfailed: copy-b: " in said.err

    # a setting that fits none of them is refused before any is scored
    with pytest.raises(Mistake, match="heads = 4"):
        evaluate_runs(["copy", "heads=4"], tmp_path / "runs", "newest", "json")
    assert capsys.readouterr().out == ""


def test_a_split_that_the_corpus_lacks_is_told_what_can_be_in_its_place():
    for words, place in (["data=text", "data.train=a.txt"], "FILE"), (["data=wikitext2"], "SPLIT of the data set"):
        assert str(evaluate._missing("test", compose(words))).endswith(f"split=validation, or data.test={place}")


def test_text_that_the_run_was_trained_on_is_named(score, runs, text_file, tmp_path, monkeypatch):
    _, scored = score
    said = "was trained on text of this {} split: the score does not tell how well it predicts other text"
    own = text_file.read_text()
    (tmp_path / "other.txt").write_text(own[: len(own) // 2])
    copy = shutil.copy(text_file, tmp_path / "copy.txt")
    held_out, other = scored()[1], f"data.train={tmp_path / 'other.txt'}"
    assert "trained on" not in held_out and "trained on" not in scored("split=test")[1]
    assert "trained on" not in scored(other)[1]
    assert said.format("validation") in scored(other, f"data.validation={copy}")[1]
    assert said.format("train") in scored("split=train")[1]
    # the same files, of which other documents are held out
    assert said.format("validation") in scored("data.documents=row")[1]
    monkeypatch.setattr(RunFolder, "result", lambda folder: None)
    assert said.format("validation") in scored(other, f"data.validation={copy}")[1]


def test_code_that_has_changed_since_the_training_is_named(score, monkeypatch):
    said = "the code (attention/multi_head.py) has changed since multi_head-"
    assert "the code" not in score[1]()[1]
    digests = changed.code_digests

    def edited(*arguments, **options):
        return digests(*arguments, **options) | {"attention/multi_head.py": "another"}

    monkeypatch.setattr(changed, "code_digests", edited)
    assert said in score[1]()[1]


def test_a_text_that_has_changed_since_the_training_is_named(score, runs, text_file):
    trained, scored = score
    said = "was trained on another version of its text; these are numbers of the present one"
    own = text_file.read_text()
    loss, silent = scored()
    assert loss == as_computed(trained) and said not in silent
    try:
        text_file.write_text(own[len(own) // 3 :])
        loss, spoken = scored()
        assert loss != trained and said in spoken
        # another text is asked for
        assert said not in scored("data.documents=row")[1]
    finally:
        text_file.write_text(own)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["runs=elsewhere"], "an evaluation does not use runs\n  --runs names the folder"),
        (["tokenizer=wordpiece"], "an evaluation does not use tokenizer\n  a run is scored with its own tokenizer"),
        (["learning_rate=1"], "learning_rate=1: an evaluation does not use learning_rate\n.*differ.*trainer.threads"),
        (["seed=3"], "an evaluation does not use seed\n(?!.*(heads|norm|variant|seed))"),
        (["model.dropout=0.5"], "an evaluation does not use model.dropout"),
        (["trainer.label_smoothing=0.5"], "an evaluation does not use trainer.label_smoothing"),
        (["heads=1"], "was trained with 2"),
    ],
)
def test_a_setting_that_an_evaluation_does_not_use_is_refused(runs, words, said):
    with pytest.raises(Mistake, match=said):
        evaluate_runs(["multi_head", *words], runs, "newest", "json")


@pytest.fixture
def copied(runs, tmp_path) -> Path:
    """A copy of the run's folder that a test may change."""
    (path,) = (path.parent for path in runs.glob("*/result.json"))
    return shutil.copytree(path, tmp_path / "runs" / path.name)


def test_settings_that_an_objective_uses_only_for_texts_are_refused_without_them(runs, monkeypatch):
    (folder,) = map(RunFolder, runs.glob("*"))
    monkeypatch.setattr(Masked, "generation_keys", ("mask_share",))
    said = re.escape("objective.mask_share=0.5: an evaluation does not use objective.mask_share\n  one with --generate")
    with pytest.raises(Mistake, match=said):
        evaluate._checked(folder, ["objective.mask_share=0.5"], "validation", generate=False)
    evaluate._checked(folder, ["objective.mask_share=0.5"], "validation", generate=True)


def test_folders_and_logger_are_this_machines(copied, tmp_path, capsys):
    config = RunFolder(copied).config()
    places = {name: str(tmp_path / "theirs" / name) for name in ("runs", "cache")}
    foreign = config | places | {"logger": config["logger"] | {"project": "theirs", "wandb": "online"}}
    (copied / "config.yaml").write_text(config_text(foreign))
    evaluate_runs(["multi_head"], copied.parent, "best", "json")
    assert json.loads(capsys.readouterr().out)[0]["loss"] > 0 and not (tmp_path / "theirs").exists()
    here = on_this_machine(foreign | {"trainer": config["trainer"] | {"device": "cuda", "devices": 9, "sharded": True}})
    assert here["trainer"] == config["trainer"] | {"device": "auto", "devices": 1, "sharded": False}
    assert here["logger"]["project"] == "attn"
    assert here["cache"] == os.environ["ATTN_CACHE"] and here["length"] == config["length"]


def test_a_machine_without_a_home_is_a_mistake(monkeypatch):
    for name in ("HOME", "ATTN_CACHE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(Mistake, match=r"the environment has no HOME\n  .* set ATTN_CACHE"):
        on_this_machine({})


def permute_tokenizer(folder: Path) -> str:
    tree = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = tree["model"]["vocab"]
    vocabulary["a"], vocabulary["e"] = vocabulary["e"], vocabulary["a"]
    (folder / "tokenizer.json").write_text(json.dumps(tree))
    return "tokenizer.json"


def change_setting(folder: Path) -> str:
    config = RunFolder(folder).config()
    (folder / "config.yaml").write_text(config_text(config | {"seed": 7}))
    return "config.yaml"


def put_bomb(folder: Path) -> str:
    levels = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))
    text = f"a0: &a0 [x]\n{levels}\n"
    seal = f"# sha256 of the lines above: {bytes_digest([text.encode()])}\n"
    (folder / "config.yaml").write_text(text + seal)
    return "config.yaml"


def test_settings_of_another_version_are_named_with_their_file(copied):
    config = RunFolder(copied).config()
    config["trainer"] |= {"power_limit": 300}
    (copied / "config.yaml").write_text(config_text(config))
    said = r"config\.yaml: there is no setting 'trainer\.power_limit'\n  use the version of attn that made the run"
    with pytest.raises(Mistake, match=said):
        evaluate_runs(["multi_head"], copied.parent, "best", "json")


@pytest.mark.parametrize("change", [permute_tokenizer, change_setting, put_bomb])
def test_what_the_weights_were_not_trained_with_is_refused_by_name(copied, change):
    name = change(copied)
    with pytest.raises(Failure, match=f"{name}: ") as refused:
        evaluate_runs(["multi_head"], copied.parent, "best", "json")
    assert str(refused.value).count("\n") <= 1


def test_a_run_without_its_tokenizer_is_named(copied):
    (copied / "tokenizer.json").unlink()
    with pytest.raises(Failure, match=r"tokenizer\.json: the run lacks its tokenizer; restore it, or remove"):
        evaluate_runs(["multi_head"], copied.parent, "best", "json")


def test_a_split_that_is_given_twice_is_refused(score):
    with pytest.raises(Mistake, match="split is given twice: split=test and split=train"):
        score[1]("split=test", "split=train")


@pytest.mark.parametrize(
    ("word", "said"),
    [("heads=1", "heads = 1"), ("norm=post", "norm = 'post'"), ("model.rotary_base=32", "model.rotary_base = 32.0")],
)
def test_another_model_of_the_same_shapes_is_refused_with_the_override_that_keeps_it(score, word, said):
    with pytest.raises(Mistake, match=f"^{re.escape(said)}.* was trained with") as refused:
        score[1](word)
    key = said.partition(" = ")[0]
    assert f"\n  {key}=" in str(refused.value)


def test_rotary_positions_keep_their_angles_at_another_length(score, runs):
    trained, scored = score
    (folder,) = map(RunFolder, runs.glob("*"))
    assert folder.config()["model"]["rotary_base"] == 16
    for length in (8, 32):
        assert scored(f"length={length}")[0] not in (0, trained)
        settings = evaluate._checked(folder, [f"length={length}"], "validation", generate=False)
        assert (settings.model.length, settings.model.rotary_base, settings.model.local_rotary_base) == (length, 16, 16)


def test_a_table_of_learned_positions_is_cut_to_a_shorter_length_and_ends_at_its_own(tiny, tmp_path, capsys):
    own = [f"runs={tmp_path / 'runs'}", f"cache={tmp_path / 'cache'}", "max_steps=1"]
    words = [word for word in tiny if not word.startswith("max_steps")]
    assert execute(compose(["heads=2", *words, *own, "model.position=learned"])) == 0
    capsys.readouterr()
    evaluate_runs(["multi_head", "length=8"], tmp_path / "runs", "newest", "json")
    assert json.loads(capsys.readouterr().out)[0]["loss"] > 0
    (folder,) = map(RunFolder, tmp_path.glob("runs/*"))
    whole, cut = (
        open_trained(folder, evaluate._checked(folder, [length], "validation", generate=False), "newest", Display())
        for length in ("length=16", "length=8")
    )
    tables = [each.model.embedding.position.weight for each in (whole, cut)]
    assert len(tables[1]) == 8 and torch.equal(tables[0][:8], tables[1])
    with pytest.raises(Mistake, match=r"^length = 17: model\.position=learned has a table of 16 positions"):
        evaluate_runs(["multi_head", "length=17"], tmp_path / "runs", "newest", "json")


def test_a_batch_that_does_not_fit_is_halved(score, monkeypatch):
    trained, scored = score
    predict, sizes = Forward.predict, []

    def small(self, part):
        sizes.append(len(part.tokens))
        if sizes[-1] > 2:
            raise torch.OutOfMemoryError("out of memory")
        return predict(self, part)

    monkeypatch.setattr(Forward, "predict", small)
    loss, said = scored("batch_size=8")
    assert loss == pytest.approx(trained, abs=1e-3)
    assert sizes[:3] == [8, 4, 2] and set(sizes[2:]) == {2}
    assert "out of memory: 2 sequences at once" in said


def test_one_sequence_that_does_not_fit_is_said_in_a_line(runs, monkeypatch):
    def none(self, part):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(Forward, "predict", none)
    done = CliRunner().invoke(app, ["evaluate", "multi_head", "--runs", str(runs)])
    assert done.exit_code == 5
    assert "attn evaluate: even a single sequence does not fit in memory: out of memory" in done.output


def test_every_command_on_a_run_that_diverged_says_so_and_what_to_do(attn, tiny, tmp_path):
    adamw = ["learning_rate=1e6", "optimizer=adamw", "schedule.warmup_steps=0", "trainer.guard=stop"]
    keys = ("learning_rate", "optimizer", "schedule", "trainer.guard", "trainer.evaluate_every")
    words = [word for word in tiny if not word.startswith(keys)]
    advice = "try a third of its learning_rate, or a longer warm-up (schedule.warmup_steps)"
    trained = attn("train", *adamw, *words)
    assert trained.returncode == ExitCode.NOT_FINITE and advice in " ".join(trained.stdout.split()), trained.output
    (run,) = (tmp_path / "runs").glob("multi_head-*")
    compared = attn("compare")
    assert f"diverged (status nan): {run.name} of 1 runs; {advice}" in compared.stderr
    refused = attn("evaluate", "multi_head")
    assert refused.returncode == 2 and f"{advice}; --checkpoint newest loads the other" in refused.stderr
    assert "the run diverged (status nan), and there is no good best checkpoint to load" in refused.stderr
    scored = attn("evaluate", "multi_head", "--checkpoint", "newest")
    assert scored.returncode == 0 and "is of a run that diverged (status nan): step " in scored.stderr
