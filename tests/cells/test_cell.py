"""One run in its folder, which other processes may have trained in."""

from __future__ import annotations

import pytest

from experiments.cells import cell as one_cell
from experiments.failures.exit_code import ExitCode
from experiments.record.folder import RunFolder


@pytest.fixture
def finished_by_another(monkeypatch):
    """finished_by_another(settings): another process trains the run while this one waits for its folder."""

    def arrange(settings) -> None:
        enter = RunFolder.__enter__

        def wait_for_the_other(folder: RunFolder) -> RunFolder:
            monkeypatch.setattr(RunFolder, "__enter__", enter)
            assert one_cell.execute(settings) is ExitCode.DONE
            return enter(folder)

        monkeypatch.setattr(RunFolder, "__enter__", wait_for_the_other)

    return arrange


def test_a_run_that_another_process_finished_in_the_meantime_is_not_started_again(cell, finished_by_another, capsys):
    settings = cell()
    finished_by_another(settings)
    assert one_cell.execute(settings) is ExitCode.DONE
    assert capsys.readouterr().err.count("finished before; nothing is left to train") == 1
    assert one_cell.folder_of(settings).environment()["earlier"] == []
