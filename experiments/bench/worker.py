"""A contender in a process of its own, which runs when it is told to: `python -m experiments.bench.worker FOLDER`."""

from __future__ import annotations

import functools
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, NoReturn

from experiments.bench.contenders import Contender, Work, build
from experiments.config.check import from_tree
from experiments.failures.failure import Mistake
from experiments.measure.cores import Neighbours
from experiments.measure.memory import PeakMemory
from experiments.measure.roofline import seconds
from experiments.processes.child import process_arguments, why_ended
from experiments.processes.environment_variables import untuned

MODULE = "experiments.bench.worker"
CONTENDER_FILE, LOG_FILE, MISTAKE = "contender.json", "log.txt", "mistake"


class Turn(NamedTuple):
    """The report of a contender's process about one turn."""

    seconds: float  # of one run, on average
    peak_bytes: int  # so far, above model, moments and batch
    kernels: list[str]  # attention kernels that ran
    waited: float | None = None  # share of the time so far in which other processes had its cores; None: not known


class WorkerEnded(RuntimeError):
    """A contender's process has ended, with its last output; usually it ran out of memory."""


class Worker:
    """A contender in a process of its own.

    Our own is started as `attn` starts a training, a peer in the environment in which `attn` itself was started, so
    each has the memory and the threads that its user would have. It ends with its block, and at the latest with this
    process. Raises Mistake for a contender that cannot be built, and WorkerEnded for one whose process has ended.
    """

    def __init__(self, contender: Contender) -> None:
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name)
        fields = contender._asdict() | {"settings": contender.settings.model_dump()}
        (path / CONTENDER_FILE).write_text(json.dumps(fields), encoding="utf-8")
        self._log = (path / LOG_FILE).open("w+", encoding="utf-8", errors="replace")
        self.process = subprocess.Popen(
            **process_arguments(MODULE, path, untuned() if contender.peer else os.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.communicate()
        self._log.close()
        self._folder.cleanup()

    def work(self) -> Work:
        """Wait until the contender is built. To be called once, before anything else."""
        return Work(**self._answer())

    def go(self, times: int) -> Turn:
        """Run the contender this many times."""
        assert self.process.stdin
        try:
            print(times, file=self.process.stdin, flush=True)
        except BrokenPipeError:
            self._fail()
        return Turn(**self._answer())

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout
        answer: dict[str, Any] = json.loads(self.process.stdout.readline() or "{}")
        if not answer:
            self._fail()
        if MISTAKE in answer:
            raise Mistake(answer[MISTAKE])
        return answer

    def _fail(self) -> NoReturn:
        code = self.process.wait()
        self._log.seek(0)
        raise WorkerEnded(why_ended(code, self._log.read()))


def main() -> None:
    """Build the contender of the folder in the first argument, and take a turn for each line of stdin."""
    # what libraries print is no answer
    answers, sys.stdout = sys.stdout, sys.stderr

    def answer(fields: dict[str, Any]) -> None:
        print(json.dumps(fields), file=answers, flush=True)

    fields = json.loads((Path(sys.argv[1]) / CONTENDER_FILE).read_text(encoding="utf-8"))
    contender = Contender(**(fields | {"settings": from_tree(fields["settings"])}))
    try:
        built = build(contender)
    except Mistake as error:
        answer({MISTAKE: str(error)})
        return
    answer(built.work._asdict())
    # the collections between turns leave out what has been imported
    gc.collect()
    gc.freeze()
    memory, neighbours = PeakMemory(contender.device), Neighbours()
    for line in sys.stdin:
        gc.collect()
        # steps follow each other in training: not what the first one pays for having waited
        built.run()
        took = seconds(functools.partial(repeat, built.run, int(line)), contender.device) / int(line)
        peak_bytes = memory.peak_bytes() - memory.baseline_bytes
        turn = Turn(took, peak_bytes, built.kernels(), neighbours.waited_share())
        answer(turn._asdict())


def repeat(call: Callable[[], None], times: int) -> None:
    """Call so many times."""
    for _ in range(times):
        call()


if __name__ == "__main__":
    main()
