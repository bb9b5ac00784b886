from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time

import pytest

from experiments.record.errors import RunFolderError


def test_metrics_come_back_as_appended(folder):
    lines = [{"step": 10, "loss": 6.5}, {"step": 20, "loss": math.inf, "note": "x"}, {"step": 30, "loss": -0.1}]
    for line in lines:
        folder.metrics.append(line)
        assert folder.metrics.read()[-1] == line
    assert folder.metrics.read() == lines
    assert [json.loads(text)["step"] for text in (folder.path / "metrics.jsonl").read_text().splitlines()] == [
        10,
        20,
        30,
    ]


def test_persistent_lines_are_on_the_disk(folder, synchronized):
    folder.metrics.append({"step": 10})
    synchronized.clear()
    folder.metrics.persist()
    assert synchronized == [str(folder.metrics.path)]


def test_a_line_that_the_system_takes_in_parts_is_written_whole(folder, monkeypatch):
    written, write = [], os.write

    def in_parts(descriptor, content):
        written.append(write(descriptor, content[:5]))
        return written[-1]

    folder.metrics.append({"step": 10})
    monkeypatch.setattr("experiments.record.metrics.os.write", in_parts)
    folder.metrics.append({"step": 20, "loss": 6.5})
    monkeypatch.undo()
    assert folder.metrics.read() == [{"step": 10}, {"step": 20, "loss": 6.5}] and len(written) > 4


def test_every_step_has_one_line(folder):
    folder.metrics.append({"step": 10})
    with pytest.raises(AssertionError, match="step 10 after step 10"):
        folder.metrics.append({"step": 10})
    folder.close()
    with pytest.raises(AssertionError, match="step 9 after step 10"):
        folder.metrics.append({"step": 9})


@pytest.mark.parametrize("torn", [b'{"step": 40, "lo', b'{"step": 40}', b"\x00\x00\x00", b"\xff\n", b"[]\n"])
def test_truncation_drops_later_steps_and_a_torn_line(folder, torn):
    for step in (10, 20):
        folder.metrics.append({"step": step, "loss": 1.0 / step})
    held = folder.metrics.held()
    folder.metrics.append({"step": 30, "loss": 1.0 / 30})
    folder.close()
    path = folder.path / "metrics.jsonl"
    whole = path.read_bytes()
    with path.open("ab") as file:
        file.write(torn)
    assert [line["step"] for line in folder.metrics.read()] == [10, 20, 30]
    said = []
    folder.metrics.return_to(held, said.append)
    assert path.read_bytes() == b"".join(whole.splitlines(keepends=True)[:2]) and said == []
    folder.metrics.append({"step": 30, "loss": 1.0 / 30})
    assert path.read_bytes() == whole
    folder.metrics.clear()
    assert folder.metrics.read() == []


def test_an_append_after_a_torn_line_does_not_join_it(folder):
    (folder.path / "metrics.jsonl").write_bytes(b'{"step": 1}\n{"st')
    folder.metrics.append({"step": 2})
    assert folder.metrics.read() == [{"step": 1}, {"step": 2}]


def test_a_damaged_line_in_the_middle_is_an_error(folder):
    (folder.path / "metrics.jsonl").write_bytes(b'{"step": 1}\ngarbage\n{"step": 3}\n')
    with pytest.raises(RunFolderError, match="line 2"):
        folder.metrics.read()


def test_killed_at_any_moment_metrics_can_be_read(folder):
    code = """if True:
        import sys
        from experiments.record.folder import RunFolder
        folder = RunFolder(sys.argv[1])
        for step in range(10**9):
            folder.metrics.append({"step": step, "loss": 1 / 3})
            if step == 50: print("ready", flush=True)
            if step % 20 == 16: held = folder.metrics.held()
            if step % 20 == 19:
                folder.metrics.return_to(held, print)
                folder.metrics.append({"step": step, "loss": 1 / 3})
    """
    writer = subprocess.Popen([sys.executable, "-c", code, str(folder.path)], stdout=subprocess.PIPE)
    writer.stdout.readline()
    time.sleep(0.1)
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    lines = folder.metrics.read()
    assert len(lines) > 40 and all(line["loss"] == 1 / 3 for line in lines)
