"""A process that answers questions: one line of JSON for each line of JSON that it is sent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any

from typing_extensions import Self

from experiments.processes.child import start_process, whole_output, why_ended

END_SECONDS = 20  # until a process that does not end is killed


class AnswererEnded(RuntimeError):
    """The process has ended, with its last line of output; usually it ran out of memory."""


class Answerer:
    """A module of the project as a process that answers questions. It ends with its block.

    Raises Failure if it cannot be started, and AnswererEnded for a question or an answer after its end.
    """

    def __init__(self, module: str, environment: Mapping[str, str] = os.environ) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = start_process(
            module, "", environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._output, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            # a build of the kernel that is under way removes its files, and its compiler ends with it
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.communicate(timeout=END_SECONDS)
        finally:
            self.process.kill()
            self.process.wait()
            self._output.close()

    def ask(self, question: object) -> dict[str, Any]:
        """Send a question and wait for its answer."""
        self.send(question)
        return self.receive()

    def send(self, question: object) -> None:
        """Send a question, which may be any value that JSON can hold."""
        assert self.process.stdin
        try:
            print(json.dumps(question), file=self.process.stdin, flush=True)
        except BrokenPipeError as error:
            raise self._ended() from error

    def receive(self) -> dict[str, Any]:
        """Wait for the next answer."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise self._ended()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _ended(self) -> AnswererEnded:
        return AnswererEnded(why_ended(self.process.wait(), whole_output(self._output)))


@contextmanager
def questions() -> Iterator[tuple[Iterator[Any], Callable[[dict[str, Any]], None]]]:
    """In the process itself: the questions in their order, and the function that sends an answer."""
    # what libraries print is no answer
    answers, sys.stdout = sys.stdout, sys.stderr

    def answer(fields: dict[str, Any]) -> None:
        print(json.dumps(fields), file=answers, flush=True)

    try:
        yield map(json.loads, sys.stdin), answer
    finally:
        sys.stdout = answers
