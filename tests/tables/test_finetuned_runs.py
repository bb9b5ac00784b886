"""A table whose budget fine-tunes: trained, killed in between and continued; wrong words are refused at once."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import sys
import time

import pytest

from experiments.failures.failure import Mistake
from experiments.launch import local as sweep
from experiments.processes.interruption import Interrupted
from experiments.record.folder import RunFolder
from experiments.tables import step_times
from experiments.tables.definition.folder import names
from experiments.tables.definition.request import Request, load
from experiments.tables.definition.table import Table
from experiments.tables.sources.choose import source_of
from experiments.tables.sources.step_clock import StepClock
from tests.fixtures.finetuning import labelled, write_lines

TABLE = """
title: One or two
shows: that a second head helps
paper: nobody
source: runs
baseline: one
margin: {value: 0.01, reason: a hundredth of a nat}
rows:
  one: {label: one head, overrides: heads=1}
  two: {label: two heads, overrides: heads=2}
claims:
  S1: {says: Two are better, origin: paper, parts: [two > one]}
budgets:
  nano:
    task: a task
    score: finetune.first.scores.accuracy
    better: higher
    margin: {value: 0.5, reason: half a point}
    seeds: 1
    overrides: ""
    columns: [validation_loss]
    finetune: {first: task=sst2 epochs=2 batch_size=16 trainer.checkpoint_every=4 schedule.warmup_steps=5}
"""
COMMAND = """
import sys
from pathlib import Path
from experiments.tables.definition import folder
from experiments.commands.frame.options import TableOptions
from experiments.commands.table import show_table
from experiments.tables import step_times
from experiments.tables.sources.step_clock import StepClock
folder.TABLES = Path("tables")
StepClock.seconds = lambda clock, settings: 0.01
step_times.measure = lambda *_: step_times.NOT_MEASURED
sys.exit(show_table("me2026/heads", sys.argv[1:], TableOptions(format="csv")))
"""


@pytest.fixture
def words(tiny, tmp_path, monkeypatch) -> list[str]:
    """The arguments after `attn table me2026/heads`, a table that exists only for the test."""
    from experiments.tables.definition import folder

    (tmp_path / "tables" / "me2026").mkdir(parents=True)
    (tmp_path / "tables" / "me2026" / "heads.yaml").write_text(TABLE)
    monkeypatch.setattr(folder, "TABLES", tmp_path / "tables")
    files = [
        f"finetune.first.task.{split}={write_lines(tmp_path / f'{split}.jsonl', labelled(count, seed))}"
        for split, count, seed in (("train", 64, 1), ("validation", 40, 2))
    ]
    tuning = ["trainer.device=cpu", "precision=fp32", "length=32", "trainer.evaluate_every=10"]
    return [*tiny, *files, *(f"finetune.first.{word}" for word in tuning)]


@pytest.fixture
def untimed(monkeypatch) -> None:
    """No step is timed, which takes processes of its own."""
    monkeypatch.setattr(StepClock, "seconds", lambda clock, settings: 0.01)
    monkeypatch.setattr(step_times, "measure", lambda *_: step_times.NOT_MEASURED)


def rows_of(text: str, key: str = "row") -> dict[str, dict[str, str]]:
    return {row[key]: row for row in csv.DictReader(io.StringIO(text))}


def result_of(tmp_path, pattern: str) -> dict:
    (path,) = tmp_path.glob(f"runs/{pattern}/result.json")
    return json.loads(path.read_text())


@pytest.mark.usefixtures("untimed")
def test_a_cell_is_the_pretraining_and_then_its_fine_tuning(attn, words, tmp_path, monkeypatch):
    table = ("table", "me2026/heads", "--format", "csv", *words)
    dry = attn(*table, "--dry-run", f"cache={tmp_path / 'cache'}")
    assert dry.returncode == 0, dry.output
    assert {row["state"] for row in csv.DictReader(io.StringIO(dry.stdout))} == {"missing"}

    # told to stop where the first cell would be fine-tuned
    train = sweep.run_cells

    def stop(cells, *rest):
        if any(hasattr(cell, "task") for cell in cells):
            raise Interrupted(signal.SIGTERM)
        return train(cells, *rest)

    monkeypatch.setattr(sweep, "run_cells", stop)
    assert attn(*table).returncode == 128 + signal.SIGTERM
    rendered = attn(*table, "--render-only")
    assert {row["state"] for row in rows_of(rendered.stdout).values()} == {"0 of 1 done, pretrained"}
    assert {row["accuracy"] for row in rows_of(rendered.stdout).values()} == {""}
    left = attn(*table[:2], *words, "--dry-run", f"cache={tmp_path / 'cache'}")
    assert "missing: 0 cells" in left.stdout and "fine-tuning of 2 cells on first" in " ".join(left.stdout.split())
    monkeypatch.setattr(sweep, "run_cells", train)

    done = attn(*table, "--out", "out")
    assert done.returncode == 0, done.output
    assert done.stderr.count("finished before") == 2
    for row, found in rows_of(done.stdout).items():
        heads = {"one": "h1", "two": "h2"}[row]
        before, after = result_of(tmp_path, f"multi_head-*-{heads}-*"), result_of(tmp_path, f"sst2-*-{heads}-*")
        assert found["state"] == "done" and after["config"]["seed"] == 0
        assert float(found["accuracy"]) == after["scores"]["accuracy"]
        assert float(found["validation_loss"]) == before["validation_loss"] != after["validation_loss"]
        assert int(found["parameters"]) == before["parameters"]["total"] != after["parameters"]["total"]
    text = (tmp_path / "out" / "me2026_heads.md").read_text()
    assert "those of the pretraining" in text and "* fine-tuning, first: task=sst2 epochs=2" in text
    assert "; train: SHA-256 " in text and "task.train=train.jsonl" in text and str(tmp_path) not in text

    # the very runs of attn train and attn finetune
    (one,) = tmp_path.glob("runs/multi_head-*-h1-*")
    own = [word.removeprefix("finetune.first.") for word in words if word.startswith("finetune.")]
    line = TABLE.partition("{first: ")[2].partition("}")[0].split()
    again = attn("finetune", one.name, *line, *own, "logger.wandb=off")
    assert again.returncode == 0, again.output
    assert len(list(tmp_path.glob("runs/*/result.json"))) == 4


@pytest.mark.campaign
@pytest.mark.usefixtures("untimed")
def test_killed_in_the_middle_it_goes_on_with_the_same_numbers(attn, words, tmp_path, environment):
    # as long as a kill takes
    words = [*words, "finetune.first.epochs=7"]
    cut = subprocess.Popen([sys.executable, "-c", COMMAND, *words], cwd=tmp_path, env=environment)
    end = time.monotonic() + 240
    while not list(tmp_path.glob("runs/sst2-*/checkpoint/step-*.safetensors")):
        assert cut.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    cut.kill()
    cut.wait()
    # its cell hears of that, saves and ends
    for output in tmp_path.glob("runs/*/output.txt"):
        while RunFolder(output.parent).holder():
            assert time.monotonic() < end
            time.sleep(0.05)
    whole = attn("table", "me2026/heads", "--format", "csv", *words)
    uncut = attn("table", "me2026/heads", "--format", "csv", "--runs", "uncut", *words)
    assert whole.returncode == uncut.returncode == 0, whole.output
    for key in ("accuracy", "validation_loss", "state"):
        ours, theirs = ([row[key] for row in rows_of(found.stdout).values()] for found in (whole, uncut))
        assert ours == theirs


@pytest.mark.parametrize(
    ("changes", "overrides", "said"),
    [
        ({"finetune": {"first": "task=sst3"}}, [], "there is no task 'sst3'"),
        ({"finetune": {"first": "epochs=2"}}, [], "which task?"),
        ({"finetune": {"first": "task=sst2 heads=4"}}, [], "the pretrained run decides heads"),
        ({}, ["finetune.first.seed=4"], "the pretraining sets seed"),
        ({"finetune": {"first": "task=sst2 epochs=-1"}}, [], "epochs = -1"),
        ({"score": "finetune.first.scores.acuracy"}, [], "did you mean accuracy?"),
        ({}, ["finetune.frist.epochs=1"], "did you mean first?"),
        ({}, ["finetune.first.epoch=1"], "did you mean epochs?"),
        ({"finetune": {}, "score": "validation_loss"}, ["finetune.first.epochs=1"], "this budget fine-tunes nothing"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_trained(tmp_path, changes, overrides, said):
    import yaml

    tree = yaml.safe_load(TABLE)
    tree["budgets"]["nano"] |= changes
    request = Request("me2026/heads", Table.model_validate(tree), "nano", range(1), overrides, tmp_path)
    with pytest.raises(Mistake) as caught:
        source_of(request)
    assert said in str(caught.value)
    assert not any(tmp_path.iterdir())


def test_examples_that_are_not_there_are_missed_before_anything_is_trained(attn, words, tmp_path):
    done = attn("table", "me2026/heads", *words, "finetune.first.task.validation=absent.jsonl")
    assert done.returncode == 2 and "absent.jsonl" in done.stderr and not (tmp_path / "runs").exists()


def test_a_word_about_a_fine_tuning_that_nothing_reads_is_refused(attn, words, tmp_path):
    done = attn("table", "me2026/heads", *words, "finetune.first.trainer.guard_limit=9")
    said = "finetune.first.trainer.guard_limit=9: nothing reads it with finetune.first.trainer.guard=stop; it is read"
    assert done.returncode == 2 and said in done.stderr and not (tmp_path / "runs").exists()


def test_the_tables_of_papers_that_fine_tune_do_so_where_there_is_time():
    budgets = {name: load(name).budgets for name in names()}
    tuned = {name for name, of in budgets.items() if any(budget.finetune for budget in of.values())}
    for name in tuned:
        those = [key for key, budget in budgets[name].items() if budget.finetune]
        assert those == (["paper"] if name == "su2020/key_size" else ["medium", "paper"])
    encoders = {"heads", "projections", "dynamic", "unequal", "albert"}
    assert tuned == {
        *(f"shazeer2020/{name}" for name in encoders),
        *(f"bhojanapalli2020/{name}" for name in ("table1", "table2a", "table2b")),
        "lan2020/sharing",
        "su2020/key_size",
    }


def test_a_score_is_held_against_the_published_metric_that_the_budget_names():
    heads, sharing = load("shazeer2020/heads"), load("lan2020/sharing")
    assert [heads.printed_at(budget).metric for budget in ("nano", "medium")] == ["ln_ppl", "squad_v11_dev_f1"]
    assert [heads.printed_at(budget).better for budget in ("nano", "medium")] == ["lower", "higher"]
    assert sharing.printed_at("small").metric == "avg" and sharing.printed_at("paper").metric == "squad11_f1"
