"""A child process runs the code of its parent, wherever it is started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.files.project import ROOT
from experiments.processes.child import process_arguments

SHADOWS = ("json", "random", "runpy", "torch", "numpy", "tokenizers", "attention", "sitecustomize")


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder whose modules have the names of those that a run imports, and note it when they are."""
    for name in SHADOWS:
        (tmp_path / f"{name}.py").write_text(f"open('imported', 'a').write('{name} ')\n", encoding="utf-8")
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "__init__.py").write_text("open('imported', 'a').write('experiments ')\n")
    return tmp_path


def test_no_module_of_the_current_folder_is_imported(hostile):
    (hostile / "value").write_text('{"a":\n1}', encoding="utf-8")
    done = subprocess.run(
        **process_arguments("json.tool", hostile / "value"), cwd=hostile, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == '{\n    "a": 1\n}\n'
    assert not (hostile / "imported").exists()


def test_it_is_the_code_of_the_parent_that_runs(hostile):
    ours = process_arguments("experiments.cells.prepare", hostile / "run")
    # it would be killed if its stdin closed
    with subprocess.Popen(**ours, cwd=hostile, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        said = process.stdout.read()
        # it has come as far as to look for the configuration of the run
        assert process.wait() > 0 and "config.yaml" in said, said
    assert not (hostile / "imported").exists()


def test_an_empty_entry_of_pythonpath_is_not_the_current_folder(hostile):
    # Python itself imports this one
    (hostile / "sitecustomize.py").unlink()
    for entries in (["", ""], [str(hostile.parent), ""]):
        command = [sys.executable, str(ROOT / "cli.py"), "train", "--cfg", "job"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([*entries, *filter(None, sys.path)])}
        done = subprocess.run(command, cwd=hostile, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and "\nseed: 0\n" in done.stdout, done.stderr
        assert not (hostile / "imported").exists()


def test_a_folder_that_the_user_has_named_is_searched_by_parent_and_child(tmp_path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(["", str(tmp_path), *filter(None, sys.path)])}
    (tmp_path / "helper.py").write_text("print('found')\n", encoding="utf-8")
    show = (
        "import cli, helper, subprocess; from experiments.processes.child import process_arguments;"
        "subprocess.run(**process_arguments('helper', ''), check=True)"
    )
    command = [sys.executable, "-c", show]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout == "found\n" * 2, done.stderr


def test_a_folder_may_have_any_name(tmp_path, monkeypatch):
    place = tmp_path / "a:b\nc 'd\u00e9 {e}"
    place.mkdir()
    (place / "shows.py").write_text("print(__file__.encode())\n")
    monkeypatch.syspath_prepend(place)
    done = subprocess.run(**process_arguments("shows", ""), cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == f"{str(place / 'shows.py').encode()}\n", done.stderr


def test_signals_that_the_parent_blocks_reach_the_child(tmp_path):
    ours = process_arguments("timeit", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
    try:
        done = subprocess.run(**ours, cwd=tmp_path, capture_output=True, timeout=60)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    assert done.returncode == -signal.SIGTERM, done.stderr


def test_a_signal_to_all_processes_of_a_job_is_left_to_the_parent(tmp_path):
    ours = process_arguments("timeit", "import os, signal; os.kill(os.getpid(), signal.SIGUSR2); os._exit(0)")
    done = subprocess.run(**ours, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
