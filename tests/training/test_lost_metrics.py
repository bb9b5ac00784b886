"""Metrics that were lost or changed before a run continues are restored from the checkpoint, with a message."""

from __future__ import annotations

import pytest

from experiments.record import metrics as metrics_module
from experiments.record.errors import RunFolderError
from experiments.record.folder import METRICS, RESULT

DAMAGE = {
    "removed": lambda path, lines: path.unlink(),
    "emptied": lambda path, lines: path.write_bytes(b""),
    "shortened": lambda path, lines: path.write_bytes(b"".join(lines[:7])),
    "a line that is none": lambda path, lines: path.write_bytes(b"".join([*lines[:3], b"\x00\xff\n", *lines[4:]])),
    "a changed digit": lambda path, lines: path.write_bytes(b"".join(lines).replace(b'"step": 3', b'"step": 2')),
    "lines in between": lambda path, lines: path.write_bytes(b"".join([*lines[:5], *lines[4:]])),
}


def take_back(folder) -> list[bytes]:
    """As a run that was cut after step 15 left it; the lines of its metrics."""
    (folder.path / RESULT).unlink()
    for path in folder.checkpoint.glob("step-000000020*"):
        path.unlink()
    return (folder.path / METRICS).read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_hole_is_mended_and_said_and_the_tail_made_again(settings, go, plain_run, plain_copy, outcome, damage):
    _, folder = plain_copy
    DAMAGE[damage](folder.path / METRICS, take_back(folder))
    _, again = go(settings())
    assert outcome(again) == outcome(plain_run[1])
    assert "lines were lost or changed" in (folder.path / "log.txt").read_text()
    again.check_files()


def test_a_tail_after_the_checkpoint_is_made_again_without_a_word(settings, go, plain_run, plain_copy, outcome):
    _, folder = plain_copy
    lines = take_back(folder)
    (folder.path / METRICS).write_bytes(b"".join(lines[:17]) + b'{"step": 18, "lo')
    _, again = go(settings())
    assert outcome(again) == outcome(plain_run[1])
    log = folder.path / "log.txt"
    assert not log.exists() or "lines were lost" not in log.read_text()


def test_lines_that_are_too_many_for_a_copy_are_refused_where_they_are_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics_module, "COPIED_BYTES", 50)
    metrics = metrics_module.Metrics(tmp_path / METRICS)
    for step in range(9):
        metrics.append({"step": step})
    held = metrics.held()
    metrics.close()
    assert held.text is None and held.lines == 9
    whole = metrics.path.read_bytes()
    metrics.return_to(held, pytest.fail)
    metrics.close()
    metrics.path.write_bytes(whole[:-1])
    with pytest.raises(RunFolderError, match="first 9 lines have changed since the checkpoint"):
        metrics.return_to(held, pytest.fail)
