"""A contender in a process of its own, which runs when it is told to: `python -m experiments.bench.worker`."""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Callable
from typing import NamedTuple

from experiments.bench.contenders import Contender, Work, build
from experiments.config.check import from_tree
from experiments.failures.failure import Mistake
from experiments.measure.cores import Neighbours
from experiments.measure.memory import PeakMemory
from experiments.measure.timing import seconds
from experiments.processes.answering import Answerer, questions
from experiments.processes.environment_variables import untuned

MODULE = "experiments.bench.worker"


class Turn(NamedTuple):
    """The answer of a contender's process about one turn."""

    seconds: float  # of one run, on average
    peak_bytes: int  # so far, above model, moments and batch
    kernels: list[str]  # attention kernels that ran
    waited: float | None = None  # share of the time so far in which other processes had its cores; None: not known


class Worker(Answerer):
    """A contender in a process of its own.

    Our own is started as `attn` starts a training, a peer in the environment in which `attn` itself was started, so
    each has the memory and the threads that its user would have. It ends with its block, and at the latest with this
    process. Raises Mistake for a contender that cannot be built, and AnswererEnded for one whose process has ended.
    """

    def __init__(self, contender: Contender) -> None:
        super().__init__(MODULE, untuned() if contender.peer else os.environ)
        self._contender = contender

    def work(self) -> Work:
        """Have the contender built, and wait for it. To be called once, before anything else."""
        answer = self.ask(self._contender._asdict() | {"settings": self._contender.settings.model_dump()})
        if "mistake" in answer:
            raise Mistake(answer["mistake"])
        return Work(**answer)

    def go(self, times: int) -> Turn:
        """Run the contender this many times."""
        return Turn(**self.ask(times))


def main() -> None:
    """Build the contender that the first question describes, and take a turn for each other question."""
    with questions() as (numbers, answer):
        fields = next(numbers)
        contender = Contender(**(fields | {"settings": from_tree(fields["settings"])}))
        try:
            built = build(contender)
        except Mistake as error:
            answer({"mistake": str(error)})
            return
        answer(built.work._asdict())
        # the collections between turns leave out what has been imported
        gc.collect()
        gc.freeze()
        memory, neighbours = PeakMemory(contender.device), Neighbours()
        for times in numbers:
            gc.collect()
            # steps follow each other in training: not what the first one pays for having waited
            built.run()
            took = seconds(functools.partial(repeat, built.run, times), contender.device) / times
            peak_bytes = memory.peak_bytes() - memory.baseline_bytes
            answer(Turn(took, peak_bytes, built.kernels(), neighbours.waited_share())._asdict())


def repeat(call: Callable[[], None], times: int) -> None:
    """Call so many times."""
    for _ in range(times):
        call()


if __name__ == "__main__":
    main()
