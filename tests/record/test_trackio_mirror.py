"""trackio: what its database holds, read by trackio itself, beside metrics.jsonl."""

from __future__ import annotations

import json
import math

import pytest

pytest.importorskip("trackio", reason="trackio is not installed: it is the extra attn[trackio]")

READ = """
import json, sys
import trackio
from trackio.sqlite_storage import SQLiteStorage

(run,) = trackio.Api().runs("attn")
print(json.dumps([run.name, run.config, SQLiteStorage.get_logs("attn", run.name)]))
"""


@pytest.fixture
def logged(train, settings):
    """`train` with trackio alone."""
    settings["logger"] |= {"wandb": "off", "trackio": True}
    return train


def test_a_cut_run_is_one_run_with_every_step_once_and_its_result(logged, python, settings, result):
    # a step that the checkpoint did not have, and that is taken again
    logged("begin(); train(0, 3); time.sleep(1.5); os.kill(os.getpid(), signal.SIGKILL)")
    done = logged("begin(20); train(2, 4); end()", TRACKIO_SPACE_ID="nobody/nothing")
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    read = python(READ, TRACKIO_DIR=str(logged.folder.path.parent / "trackio"))
    name, config, rows = json.loads(read.stdout)
    assert name == logged.folder.name and config["heads"] == settings["heads"] and config["_Group"] == "sweep"
    *lines, last = [{key: value for key, value in row.items() if key != "timestamp"} for row in rows]
    assert [{key: float(value) for key, value in line.items()} for line in lines] == logged.lines
    assert last["step"] == result.steps and last["result/validation_loss"] == result.validation_loss
    assert any(line["loss"] == math.inf for line in logged.lines)
