"""Processes are killed with SIGKILL at moments all over their lives; the repeated command leaves the same bytes."""

from __future__ import annotations

import shutil

import pytest

from experiments.record.folder import RunFolder
from scripts.campaigns.harness import Subject, files_in, interrupted_runs_in, kill_all, kill_often, runs_in
from tests.fixtures.outcome import outcome

TWO_ROWS = """
title: One or two
shows: that a second head helps
paper: nobody
source: runs
baseline: one
margin: {value: 0.01, reason: made for the test}
rows:
  one: {label: one head, overrides: heads=1}
  two: {label: two heads, overrides: heads=2}
claims:
  S1: {says: Two are better, origin: paper, parts: [two > one]}
budgets:
  nano: {task: a task, seeds: 1, overrides: ""}
"""


@pytest.fixture
def kill(tmp_path, chance, say):
    """kill(subject, kills): the campaign for one command."""
    return lambda subject, kills, **how: kill_often(subject, tmp_path / "kills", chance, kills, say, **how)


def test_a_training(kill, nursery, training, tries):
    kill(Subject(lambda folder: nursery.start(*training, cwd=folder), runs_in), tries(6, 500))


def test_a_sweep_with_all_its_processes(kill, nursery, training, tries):
    words = [training[0], "-m", *training[1:], "seed=0,1", "--workers", "2"]
    subject = Subject(lambda folder: nursery.start(*words, cwd=folder), interrupted_runs_in, interrupts=True)
    kill(subject, tries(1, 100), kill=kill_all)


def test_a_table(kill, nursery, training, tries, tmp_path):
    tables = tmp_path / "tables"
    (tables / "me2026").mkdir(parents=True)
    (tables / "me2026" / "heads.yaml").write_text(TWO_ROWS)

    def start(folder):
        entry = "scripts.campaigns.nursery:table_of"
        return nursery.start(str(tables), "me2026/heads", *training[1:], entry=entry, cwd=folder)

    kill(Subject(start, interrupted_runs_in, interrupts=True), tries(1, 50))


def test_a_tokenizer_and_a_packed_text(kill, nursery, training, tries):
    def start(folder):
        entry, words = "scripts.campaigns.nursery:prepare_here", " ".join(training[1:])
        return nursery.start(str(folder), entry=entry, cwd=folder, ATTN_WORDS=words)

    kill(Subject(start, files_in), tries(4, 100))


def test_a_kernel(kill, nursery, tries, compiler):
    """The stand-in for the compiler is so quick that most kills hit the handling of what it writes."""

    def start(folder):
        entry = "scripts.campaigns.nursery:build_kernel"
        return nursery.start(str(folder), entry=entry, cwd=folder, CXX=str(compiler))

    kill(Subject(start, files_in), tries(4, 100))


def test_a_fine_tuning(kill, nursery, words, tries):
    more = ("epochs=1", "batch_size=8", "trainer.checkpoint_every=3", "trainer.evaluate_every=10")

    def start(folder):
        return nursery.start("finetune", *words("sst2", *more, f"runs={folder / 'runs'}"), cwd=folder)

    kill(Subject(start, runs_in), tries(2, 50))


def test_an_export(kill, nursery, bert, tries):
    """The repeated command is refused if the export is complete."""

    def start(folder):
        return nursery.start("export", str(bert[0]), "there", cwd=folder)

    kill(Subject(start, lambda folder: files_in(folder / "there"), done_before=(0, 2)), tries(3, 50))


def test_an_import(kill, nursery, bert, training, tries):
    words = ["import", str(bert[1]), "--name", "theirs", *(word for word in training if word.startswith("data"))]

    def read(folder):
        run = folder / "runs" / "theirs"
        RunFolder(run).check_files()
        return outcome(RunFolder(run)), files_in(run)["tokenizer.json"]

    kill(Subject(lambda folder: nursery.start(*words, cwd=folder), read, done_before=(0, 2)), tries(3, 50))


def test_heads_that_are_exported(kill, nursery, pretrained, tries):
    def start(folder):
        run = folder / "runs" / pretrained.name
        if not run.exists():
            shutil.copytree(pretrained, run)
        return nursery.start("heads", run.name, "--sequences", "4", "--export", "2", cwd=folder)

    def read(folder):
        (heads,) = folder.glob("runs/*/heads")
        return {name: digest for name, digest in files_in(heads).items() if name.endswith(("parquet", "safetensors"))}

    kill(Subject(start, read), tries(1, 50))
