"""Disks that are full from some write on: each write of a command is once the first that finds no room."""

from __future__ import annotations

from itertools import count

import pytest

from scripts.campaigns.harness import files_in, runs_in
from tests.launch.sweeps import instead

LOCKS = 1


@pytest.fixture
def fill(spoiled, tmp_path, say, tries):
    """fill(words, outcome): repeat a command, with room for more and more writes, until it has enough."""

    def run(words, outcome, **options):
        whole = tmp_path / "whole"
        whole.mkdir()
        code, said = spoiled.run(*words(whole), cwd=whole, **options)
        assert code == 0, said
        expected = outcome(whole)
        for room in count(step=(step := 23 // tries(1, 23))):
            folder = tmp_path / f"room{room}"
            folder.mkdir()
            code, said = spoiled.run(*words(folder), cwd=folder, spoil=(room, LOCKS), **options)
            if code == 0:
                break
            check_said(code, said)
            code, said = spoiled.run(*words(folder), cwd=folder, **options)
            assert code == 0 and outcome(folder) == expected, (room, said)
            assert not list(folder.rglob("*partial*")), room
        say(f"{room // step} disks, full from one of {room} writes on")

    return run


def check_said(code: int, said: str) -> None:
    """Check that a command which met a full disk said so, in place of a traceback."""
    assert code in (1, 2) and "Traceback" not in said, (code, said)
    assert "No space left" in said or "the disk is full" in said, said


def test_of_a_training(fill, training):
    words = [training[0], *instead(["max_steps=12"], training[1:])]
    fill(lambda folder: words, runs_in)


def test_of_a_corpus(fill, training):
    """The cache is on the full disk."""
    fill(
        lambda folder: [str(folder)],
        lambda folder: files_in(folder / "cache"),
        entry="scripts.campaigns.nursery:prepare_here",
        ATTN_WORDS=" ".join(training[1:]),
    )


def test_of_an_export(fill, bert):
    fill(lambda folder: ["export", str(bert[0]), "there"], lambda folder: files_in(folder / "there"))


def test_of_an_import(fill, bert, training):
    data = [word for word in training if word.startswith("data")]
    fill(lambda folder: ["import", str(bert[1]), "--name", "theirs", *data], runs_in)


def test_of_a_fine_tuning(fill, words):
    more = ("max_steps=8", "epochs=null", "batch_size=8", "trainer.checkpoint_every=2", "trainer.evaluate_every=4")
    fill(lambda folder: ["finetune", *words("sst2", *more, f"runs={folder / 'runs'}")], runs_in)


def test_without_locks_nothing_is_made_and_it_is_said(spoiled, training, tmp_path):
    without = {"cwd": tmp_path, "spoil": (-1, 0)}
    code, said = spoiled.run(*training, **without)
    assert code == 1 and "this file system has no file locks (flock)" in said and "set runs=" in said, (code, said)
    making = {"entry": "scripts.campaigns.nursery:prepare_here", "ATTN_WORDS": " ".join(training[1:])}
    code, said = spoiled.run(str(tmp_path), **making, **without)
    assert code == 1 and "this file system has no file locks" in said and "cache=FOLDER" in said, (code, said)
    assert not any(path.is_file() and path.suffix != ".lock" for path in tmp_path.rglob("*"))
