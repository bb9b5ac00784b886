"""Commands in real processes that can be killed, and that start at once.

They are forked from a process that has imported everything.
`python nursery.py` reads requests from stdin, one line of JSON each, and answers each with a line.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# the modules that commands import while they run
MODULES = (
    "cli", "experiments.training.train", "experiments.cells.prepare", "experiments.launch.plan",
    "experiments.heads.sections", "attention.kernels.compiled.kernel",
    *(f"experiments.commands.{path.stem}" for path in sorted((ROOT / "experiments" / "commands").glob("[a-z]*.py"))),
)  # fmt: skip


class Child:
    """A process of the nursery."""

    def __init__(self, nursery: Nursery, pid: int, output: Path) -> None:
        self.pid, self._nursery, self._output = pid, nursery, output

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send the process a signal."""
        os.kill(self.pid, number)

    def wait(self) -> int:
        """Wait until the process ends, and return its exit code; negative after a signal."""
        return self._nursery.ask(wait=self.pid)

    @property
    def output(self) -> str:
        """Everything that the process has printed so far, on stdout and stderr."""
        return self._output.read_text(errors="replace")


class Nursery:
    """Starts commands with start(*words). Its own process ends with the `with` block."""

    def __init__(self, environment: Mapping[str, str], shim: Path | None = None) -> None:
        preload = {"LD_PRELOAD": str(shim)} if shim else {}
        self._process = subprocess.Popen(
            [sys.executable, __file__], env={**environment, **preload, "ATTN_TUNED": "", "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._outputs = tempfile.TemporaryDirectory()
        self.ask()

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()
        self._outputs.cleanup()

    def ask(self, **request: Any) -> int:
        """Send a request, if there is one, and return the number that answers it."""
        if request:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def start(
        self, *words: str, entry: str = "cli:main", cwd: Path, spoil: Sequence[int] = (), **environment: str
    ) -> Child:
        """Start a command. spoil: the arguments of the shim's `spoil`."""
        output = Path(self._outputs.name) / str(time.monotonic_ns())
        request = {"words": words, "entry": entry, "cwd": str(cwd), "output": str(output), "spoil": [*spoil]}
        return Child(self, self.ask(**request, environment=environment), output)

    def run(self, *words: str, **options: Any) -> tuple[int, str]:
        """Run a command to its end, and return its exit code and output."""
        child = self.start(*words, **options)
        return child.wait(), child.output


def begin(request: dict[str, Any]) -> Callable[[], object]:
    """Make this process, which has just been forked, like a fresh one, and return the function that it has to call."""
    os.setsid()
    os.chdir(request["cwd"])
    os.environ.update(request["environment"])
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for descriptor, place in ((os.open(os.devnull, os.O_RDONLY), 0), (output, 1), (output, 2)):
        os.dup2(descriptor, place)
    module, _, function = request["entry"].partition(":")
    sys.argv = ["attn", *request["words"]]
    if request["spoil"]:
        ctypes.CDLL(None).spoil(request["cwd"].encode(), *request["spoil"])
    return getattr(importlib.import_module(module), function)


def serve(answers: int) -> Callable[[], object] | None:
    """Fork a process for each request until stdin ends.

    In the forked process this returns the function to call, and in the nursery None.
    """
    os.write(answers, b"0\n")
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            code = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
            os.write(answers, b"%d\n" % code)
        elif pid := os.fork():
            os.write(answers, b"%d\n" % pid)
        else:
            os.close(answers)
            return begin(request)
    return None


def main() -> None:
    """Import and read what commands need, then serve; in a forked process, call the requested function."""
    # standard output is for answers, so what libraries print goes to standard error
    answers = os.dup(1)
    os.dup2(2, 1)
    os.environ.pop("LD_PRELOAD", None)
    for module in MODULES:
        importlib.import_module(module)
    from experiments.config.compose import compose
    from experiments.record.code.digests import import_covered

    # what every command would do again: the imports of Hydra, and the digests of our files
    compose([])
    import_covered()
    gc.collect()
    gc.freeze()
    function = serve(answers)
    if function is not None:
        sys.exit(function())


def build_kernel() -> None:
    """Build the compiled kernel in the folder of the first argument."""
    from attention.kernels.compiled import library

    library.build_in(Path(sys.argv[1]))
    if library.loaded().absence is not None:
        sys.exit(f"attn: {library.loaded().absence}")


def table_of() -> int:
    """Make a table, and time its steps briefly.

    The arguments are the folder of its definition, its name, and overrides.
    """
    from experiments.bench import rounds
    from experiments.commands.frame.options import TableOptions
    from experiments.commands.table import show_table
    from experiments.tables.definition import folder

    folder.TABLES, rounds.SHORTEST = Path(sys.argv[1]), 0.01
    return show_table(sys.argv[2], sys.argv[3:], TableOptions(workers=1, rounds=4))


def prepare_here() -> None:
    """Make the tokenizer and packed text of a training below the folder in the first argument.

    The environment variable ATTN_WORDS has the words of the training.
    """
    from experiments.config.compose import compose
    from experiments.failures.failure import Failure
    from experiments.tasks.choose import task_of

    settings = compose([*os.environ["ATTN_WORDS"].split(), f"cache={sys.argv[1]}/cache"])
    try:
        task_of(settings).prepare(lambda stage, done, total: None)
    except Failure as failure:
        sys.exit(f"attn: {failure}")


if __name__ == "__main__":
    main()
