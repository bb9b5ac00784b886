"""A process that has imported torch and the training stack once, and forks a clean process for each cell.

A forked cell begins within half a second, while a fresh interpreter spends seconds on imports. As a program, the server
reads assignments and signals, one on each line, and answers with a line when a cell has ended. The server itself never
computes and asks for no GPU, because a forked copy of threads or of CUDA would not work. CUDA begins in the cell.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import platform
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from experiments.cells.assignment import Assignment
from experiments.failures.exit_code import ExitCode
from experiments.processes.child import start_process, whole_output, why_ended
from experiments.processes.environment_variables import ONE_THREAD
from experiments.record.code.digests import import_covered
from experiments.record.environment import checkout, package_versions

MODULE = "experiments.cells.fork_server"
STATUS, OPEN_FILES = Path("/proc/self/status"), Path("/proc/self/fd")
# that a GPU's driver keeps open from its start on: NVIDIA's on a server, on a Jetson and under Windows, and AMD's
GPU_FILES = ("/dev/nvidia", "/dev/nvmap", "/dev/dxg", "/dev/kfd")


class ForkServer:
    """The parent's side of the server. At the end of its block, and when the parent ends, the server ends and its cells
    save and end.

    `refusal` is the reason why no cell can be forked here, or None. A server that refuses is not asked again.
    """

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.refusal: str | None = None
        # exit code by run folder, or the reason why the server ended first; None: the cell runs
        self._codes: dict[str, int | str | None] = {}
        self._open()

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        self._errors.close()

    def start(self, assignment: Assignment) -> ForkedCell | None:
        """Fork a process that trains in a run folder; None if the server refuses. Its output goes to the folder's
        output.txt.

        A server that has ended is replaced by another.
        """
        if self._process.poll() is not None and not self.refusal:
            self._codes = {name: self.code(name) for name in self._codes}
            self._close()
            self._open()
        if self.refusal:
            return None
        name = str(assignment.folder)
        self._codes[name] = None
        self._send(assignment.to_line())
        return ForkedCell(self, name)

    def wait(self, seconds: float) -> None:
        """Wait until a cell has ended, at most for this time."""
        assert self._process.stdout
        # the pipe of a server that has ended is always ready
        if self.refusal:
            time.sleep(seconds)
        elif select.select([self._process.stdout], [], [], seconds)[0]:
            self._read()

    def code(self, name: str) -> int | str | None:
        """The exit code of a cell, or the reason why the server ended first; None while the cell runs."""
        if self._codes[name] is None and self._process.poll() is not None:
            # it may have answered before its end
            while self._read():
                pass
            if self._codes[name] is None:
                self._codes[name] = self._why_ended()
        return self._codes[name]

    def forget(self, name: str) -> None:
        """Forget a cell that has ended."""
        del self._codes[name]

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a cell; does nothing if it has ended."""
        self._send(json.dumps({"folder": name, "signal": number}))

    def _open(self) -> None:
        environment = {**os.environ, **ONE_THREAD}
        self._process = start_process(
            MODULE, Path(), environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True, bufsize=0,
        )  # fmt: skip
        assert self._process.stdout
        first = self._process.stdout.readline()
        self.refusal = json.loads(first)["refusal"] if first else self._why_ended()
        self._rest = b""

    def _close(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _send(self, line: str) -> None:
        assert self._process.stdin
        # a server that has ended hears nothing; `code` reports it
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line.encode() + b"\n")

    def _read(self) -> bool:
        """Read the answers that have come; False at their end."""
        assert self._process.stdout
        read = os.read(self._process.stdout.fileno(), 1 << 16)
        if not read:
            self._process.wait()
        *lines, self._rest = (self._rest + read).split(b"\n")
        for answer in map(json.loads, lines):
            self._codes[answer["folder"]] = answer["code"]
        return bool(read)

    def _why_ended(self) -> str:
        return why_ended(self._process.wait(), whole_output(self._errors))


class ForkedCell:
    """A cell that a fork server has begun."""

    def __init__(self, server: ForkServer, name: str) -> None:
        self._server, self._name = server, name

    def poll(self) -> int | str | None:
        """The exit code, negative after a signal, or the reason why it is not known; None while the cell runs."""
        return self._server.code(self._name)

    def send_signal(self, number: int) -> None:
        """Send a signal to the cell."""
        self._server.signal(self._name, number)

    def close(self) -> None:
        """Forget the cell; one that runs ends with its server."""
        self._server.forget(self._name)


class _Server:
    """The server's side, on stdin and on a pipe of its own for answers."""

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self._folders: dict[int, str] = {}  # of the processes that run
        # the cells' stdin: nobody writes to it, and it ends when this process ends in any way
        self._lifeline, self._held = os.pipe()
        self._woken, waker = os.pipe()
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self._waker = waker

    def serve(self) -> Assignment | None:
        """Fork a process for each assignment that is read, and return the assignment in the new process. This process
        returns None when stdin ends.

        At that end the cells' stdin is closed, and the server waits until they have saved and ended.
        """
        rest = b""
        while True:
            ready, _, _ = select.select([0, self._woken], [], [])
            if self._woken in ready:
                os.read(self._woken, 1 << 10)
                self._reap(os.WNOHANG)
            if 0 not in ready:
                continue
            read = os.read(0, 1 << 16)
            if not read:
                break
            *lines, rest = (rest + read).split(b"\n")
            for line in lines:
                request = json.loads(line)
                if "signal" in request:
                    self._signal(request["folder"], request["signal"])
                elif self._fork(assignment := Assignment.from_line(line)):
                    return assignment
        os.close(self._held)
        while self._folders:
            self._reap(0)
        return None

    def answer(self, **fields: Any) -> None:
        """Write a line; nothing happens if the parent is gone."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._answers, json.dumps(fields).encode() + b"\n")

    def _fork(self, assignment: Assignment) -> bool:
        """Fork, and return whether this is the new process."""
        assert (refusal := why_unforkable()) is None, refusal
        try:
            process = os.fork()
        except OSError as error:
            with (assignment.folder / "output.txt").open("a", encoding="utf-8") as output:
                print(f"no process could be started: {error}", file=output)
            self.answer(folder=str(assignment.folder), code=ExitCode.FAILED)
            return False
        if process:
            self._folders[process] = str(assignment.folder)
            return False
        self._become_cell(assignment)
        return True

    def _become_cell(self, assignment: Assignment) -> None:
        """Bring this process, which was just forked, into the state of a fresh one."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        output = os.open(assignment.folder / "output.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        for descriptor, place in ((self._lifeline, 0), (output, 1), (output, 2)):
            os.dup2(descriptor, place)
        for descriptor in (self._lifeline, self._held, self._woken, self._waker, self._answers, output):
            os.close(descriptor)
        if assignment.gpus is not None:
            # in time, because CUDA reads it when it begins
            os.environ["CUDA_VISIBLE_DEVICES"] = assignment.gpus
        sys.argv = ["experiments.cells.cell", assignment.to_line()]

    def _signal(self, folder: str, number: int) -> None:
        for process, name in self._folders.items():
            if name == folder:
                os.kill(process, number)

    def _reap(self, options: int) -> None:
        """Send an answer for every cell that has ended."""
        while self._folders:
            process, status = os.waitpid(-1, options)
            if not process:
                return
            self.answer(folder=self._folders.pop(process), code=os.waitstatus_to_exitcode(status))


def can_fork() -> bool:
    """Whether this platform supports the fork of a process with these libraries, which macOS does not."""
    return sys.platform == "linux"


def why_unforkable() -> str | None:
    """The reason why this process cannot be forked, or None."""
    import torch

    lines = STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    threads = next((int(line.split()[1]) for line in lines if line.startswith("Threads:")), 1)
    if threads > 1:
        return f"an imported library has started {threads - 1} threads"
    # a mere question, such as torch.cuda.is_available(), starts the driver and leaves torch.cuda.is_initialized() False
    opened = (str(file.readlink()) for file in OPEN_FILES.iterdir() if file.is_symlink())
    begun = torch.cuda.is_initialized() or any(path.startswith(GPU_FILES) for path in opened)
    return "an imported library has begun to use CUDA" if begun else None


def _import_training_stack() -> None:
    """Import everything that a cell imports before its first step, and find out what is the same for all cells: what
    their records say of the code, and which compiler the machine has.
    """
    from attention.kernels.compiled.library import identify_compiler

    for module in (
        "experiments.training.train",
        "experiments.training.distributed.group",
        "tokenizers",
        "numpy.random",  # by the order of the batches
        "numpy.ma",  # by numpy.unique
        "numpy.ctypeslib",  # by safetensors
    ):
        importlib.import_module(module)
    import_covered()
    package_versions()
    checkout()
    platform.platform()  # starts a program the first time, and keeps the answer
    identify_compiler()


def main() -> ExitCode:
    """Serve; in a forked process, train its cell and end with its exit code."""
    # output of libraries must not be taken for an answer
    answers = os.dup(1)
    os.dup2(2, 1)
    from experiments.cells import cell

    _import_training_stack()
    gc.collect()
    # existing objects are not collected, so their pages are not copied
    gc.freeze()
    server = _Server(answers)
    refusal = why_unforkable()
    server.answer(refusal=refusal)
    assignment = None if refusal else server.serve()
    return ExitCode.DONE if assignment is None else cell.train_assigned(assignment)


if __name__ == "__main__":
    sys.exit(main())
