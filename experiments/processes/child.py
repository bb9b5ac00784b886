"""Starting a module of this project as a process with one argument, and the reason why a process ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from experiments.failures.failure import Failure
from experiments.files.project import ROOT
from experiments.settings import plugins

# sets the search path before it imports anything: `python -m` and `python -c` would look in the current folder first;
# a parent that blocks signals, as a worker of Ray does, hands this down; before the time of a job ends, Slurm sends
# SIGUSR2 to all of its processes, but only the parent knows what to do
BOOTSTRAP = """\
import sys
sys.path[:], plugins, module = {places!r}, {plugins!r}, sys.argv.pop(1)
import signal
signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
for number in (signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, signal.SIG_IGN)
from experiments.processes.import_hook import hold_signals_in_imports
hold_signals_in_imports()
if plugins:
    from experiments.settings.plugins import add
    add(plugins)
import runpy
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def process_arguments(module: str, argument: Path | str, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """`args` and `env` for subprocess: the module as a program with one argument.

    The child runs the same code as this process, with the user's additions, and finds the same packages, whatever files
    lie in its current folder.
    """
    # as literals: a folder's name may hold any character
    program = BOOTSTRAP.format(places=search_path(), plugins=plugins.arguments())
    return {"args": [sys.executable, "-c", program, module, str(argument)], "env": dict(environment)}


def start_process(
    module: str, argument: Path | str, environment: Mapping[str, str] = os.environ, **options: Any
) -> subprocess.Popen[Any]:
    """Start such a process. options: other arguments of subprocess.Popen.

    Raises Failure if it cannot be started, as where a user may have no further process.
    """
    try:
        return subprocess.Popen(**process_arguments(module, argument, environment), **options)
    except OSError as error:
        raise Failure(f"no process could be started: {error.strerror or error}") from error


def end_with_parent(number: int) -> None:
    """Send this signal to this process when the pipe at its stdin closes, which happens however the parent ends."""

    def wait() -> None:
        # not sys.stdin.read(): Python aborts at exit while a thread holds that buffer's lock
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), number)

    threading.Thread(target=wait, daemon=True).start()


def search_path() -> list[str]:
    """The module search path of this process, with the project first, and without the current folder of an interactive
    interpreter.
    """
    return list(dict.fromkeys([str(ROOT), *filter(None, sys.path)]))


def whole_output(file: IO[bytes]) -> str:
    """All that a process has written to a file. The offset of the file, which threads and the process share, stays."""
    descriptor = file.fileno()
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")


def why_ended(code: int, output: str) -> str:
    """The reason why a process ended with this code, in a line: its signal, or its last line of output that is not an
    indented hint.
    """
    if code < 0:
        killer = signal.Signals(-code)
        return f"killed by {killer.name}" + (" (out of memory?)" if killer == signal.SIGKILL else "")
    lines = [line for line in output.splitlines() if line.strip() and not line.startswith(" ")]
    return lines[-1].strip() if lines else f"ended with code {code}"
