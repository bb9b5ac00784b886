from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from experiments.cells import prepare
from experiments.cells.prepare import prepare_in_child_process
from experiments.config.compose import compose
from experiments.data.errors import DataError
from experiments.failures.exit_code import ExitCode
from experiments.failures.failure import Failure
from experiments.processes.child import process_arguments
from experiments.record.folder import RunFolder
from experiments.tasks.pretraining import Pretraining


@pytest.fixture
def asked(tmp_path, text_file, tiny):
    def make(text: Path = text_file):
        places = [f"cache={tmp_path / 'cache'}", f"runs={tmp_path / 'runs'}", f"data.train={text}"]
        settings = compose([*tiny[:-1], *places])
        folder = RunFolder(tmp_path / "runs" / "one")
        with folder:
            folder.create(settings.model_dump())
        return settings, folder

    return make


@pytest.fixture
def orphan(monkeypatch):
    """`main` in this process, which has no parent whose end could be heard of."""
    monkeypatch.setattr(prepare, "end_with_parent", lambda number: None)


def cached(settings) -> bool:
    return Pretraining(settings).is_ready()


def test_made_once_in_another_process(asked, monkeypatch, tmp_path, capfd):
    settings, folder = asked()
    assert not cached(settings) and not (tmp_path / "cache" / "packed").exists()
    prepare_in_child_process(settings, folder)
    assert cached(settings)
    assert "tokenizing" in capfd.readouterr().err

    def never(*arguments, **options):
        raise AssertionError

    monkeypatch.setattr(prepare, "start_process", never)
    prepare_in_child_process(settings, folder)


def test_a_mistake_comes_back_as_it_was_said(asked, tmp_path, in_process):
    short = tmp_path / "short.txt"
    short.write_text("three short words")
    with pytest.raises(DataError, match="a row of 16 tokens needs 15"):
        prepare_in_child_process(*asked(short))


def test_what_the_system_refuses_the_process_is_said(asked, orphan, monkeypatch, tmp_path, capsys):
    settings, folder = asked()

    def prepare_with_little(*arguments):
        print("what a library prints is no answer")
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(prepare, "task_of", lambda settings: SimpleNamespace(prepare=prepare_with_little))
        patched.setattr(sys, "argv", ["prepare", str(folder.path)])
        assert prepare.main() is ExitCode.OUT_OF_MEMORY
    said = capsys.readouterr().out
    assert "not enough memory" in said and said.count("\n") == 1
    (tmp_path / "child").write_text(f"#!/bin/sh\necho '{said}'\nexit 5\n")
    (tmp_path / "child").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "child"))
    with pytest.raises(Failure, match="not enough memory") as caught:
        prepare_in_child_process(settings, folder)
    assert caught.value.exit_code is ExitCode.OUT_OF_MEMORY


def test_a_bug_in_the_process_is_printed_once_and_its_file_is_the_answer(asked, orphan, monkeypatch, capsys):
    def broken(*arguments):
        raise ValueError("oh")

    monkeypatch.setattr(prepare, "task_of", lambda settings: SimpleNamespace(prepare=broken))
    monkeypatch.setattr(prepare, "bug_report", lambda error: f"the error {error} is in mine.py")
    monkeypatch.setattr(sys, "argv", ["prepare", str(asked()[1].path)])
    assert prepare.main() is ExitCode.FAILED
    answer, said = capsys.readouterr()
    assert answer == "the error oh is in mine.py\n" and said.count("Traceback") == 1 and "ValueError: oh" in said


def test_a_config_that_cannot_be_read_is_the_answer(asked, orphan, monkeypatch, capsys):
    _, folder = asked()
    (folder.path / "config.yaml").write_text("damaged")
    monkeypatch.setattr(sys, "argv", ["prepare", str(folder.path)])
    assert prepare.main() is ExitCode.FAILED
    answer, said = capsys.readouterr()
    assert "config.yaml: damaged (" in answer and "Traceback" not in said


def test_a_process_that_breaks_is_a_bug(asked, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match="exit code 1"):
        prepare_in_child_process(*asked())


def test_a_process_that_is_killed_is_said_in_a_line(asked, monkeypatch, tmp_path):
    killed = tmp_path / "killed"
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(killed))
    with pytest.raises(Failure, match=r"killed by SIGKILL \(out of memory\?\)") as caught:
        prepare_in_child_process(*asked())
    assert caught.value.exit_code == ExitCode.FAILED


def test_what_a_killed_process_was_making_is_removed(asked, monkeypatch, tmp_path):
    left = tmp_path / "cache" / "tokenizers" / ".half.0.partial"
    killed = tmp_path / "killed"
    killed.write_text(f"#!/bin/sh\nmkdir -p {left}\ntouch {left}.lock\nkill -9 $$\n")
    killed.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(killed))
    with pytest.raises(Failure, match="killed by SIGKILL"):
        prepare_in_child_process(*asked())
    assert left.parent.exists() and not [*left.parent.iterdir()]


def test_the_process_ends_with_its_parent(asked):
    settings, folder = asked()
    # the end of a parent closes the pipe
    command = process_arguments("experiments.cells.prepare", folder.path)
    done = subprocess.run(**command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL and not done.stdout, done.stderr
    assert not cached(settings)
