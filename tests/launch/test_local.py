"""The corpora of cells, made before any of them is trained."""

from __future__ import annotations

import signal

import pytest

from experiments.config.compose import compose
from experiments.failures.failure import Failure
from experiments.launch import local
from experiments.processes.interruption import Interrupted


@pytest.mark.parametrize(
    ("end", "to_train", "left"),
    [
        (None, True, 1),
        (None, False, 0),
        (Failure("no text"), True, 0),
        (Interrupted(signal.SIGINT), True, 1),
        (Interrupted(signal.SIGINT), False, 0),
    ],
)
def test_a_folder_stays_only_if_its_cell_will_be_trained(tiny, tmp_path, monkeypatch, end, to_train, left):
    def prepare(settings, folder):
        if end is not None:
            raise end

    monkeypatch.setattr(local, "prepare_in_child_process", prepare)
    cells = [compose([*tiny, f"runs={tmp_path / 'runs'}", f"cache={tmp_path / 'cache'}"])]
    if isinstance(end, Interrupted):
        with pytest.raises(Interrupted):
            local.prepare_corpora(cells, to_train=to_train)
    else:
        local.prepare_corpora(cells, to_train=to_train)
    assert len([*(tmp_path / "runs").iterdir()]) == left
