"""Many processes that share the run folders of a sweep."""

from __future__ import annotations

import json
import os

import pytest

from experiments.record.errors import RunFolderError
from experiments.record.folder import RunFolder
from experiments.record.metrics import Metrics
from tests.fixtures.campaign import in_campaigns

CELLS = 12


def work(runs, settings, result) -> None:
    """Do every cell that is not done and that nobody has, as a worker of a sweep does, with one line for a training."""
    for seed in range(CELLS):
        folder = RunFolder(runs / f"run-{seed}")
        try:
            if folder.result() is not None:
                continue
            with folder:
                folder.create({**settings, "seed": seed})
                if folder.result() is None:
                    folder.metrics.append({"step": 1, "loss": 1.0, "process": os.getpid()})
                    folder.write_result(result)
        except RunFolderError as error:
            assert "trains in it" in str(error), error


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("workers", [20, *in_campaigns(100)])
def test_workers_do_no_cell_twice_and_lose_none(tmp_path, settings, result, workers):
    runs = tmp_path / "runs"
    runs.mkdir()
    ready, start = os.pipe()
    children = []
    for _ in range(workers):
        child = os.fork()
        if child == 0:
            try:
                os.close(start)
                # all begin when the test closes its end
                os.read(ready, 1)
                work(runs, settings, result)
            except BaseException as error:
                (runs / f"failed-{os.getpid()}").write_text(repr(error))
            finally:
                os._exit(0)
        children.append(child)
    os.close(start)
    for child in children:
        os.waitpid(child, 0)
    os.close(ready)
    assert not [path.read_text() for path in runs.glob("failed-*")]
    # those that found a cell taken have gone on; one more worker does what is left
    work(runs, settings, result)
    lines = [Metrics(runs / f"run-{seed}" / "metrics.jsonl").read() for seed in range(CELLS)]
    assert [len(each) for each in lines] == [1] * CELLS
    done_by = {json.dumps(each[0]["process"]) for each in lines}
    assert done_by <= {str(each) for each in [*children, os.getpid()]}
    for seed in range(CELLS):
        RunFolder(runs / f"run-{seed}").check_files()
