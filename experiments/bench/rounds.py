"""Interleaved timing: in every round each contender runs once, so a disturbance of the machine affects all."""

from __future__ import annotations

import math
from contextlib import ExitStack
from typing import NamedTuple

from experiments.bench.contenders import Contender, Work
from experiments.bench.worker import Turn, Worker
from experiments.processes.answering import AnswererEnded

SHORTEST = 0.5  # seconds that a timing takes at least, by repeating what is shorter


class Timing(NamedTuple):
    """The measurements of a contender."""

    turns: list[Turn]  # a round each
    warm: Turn  # the one before the rounds
    work: Work

    @property
    def seconds(self) -> list[float]:
        """Seconds of one run, for each round."""
        return [turn.seconds for turn in self.turns]

    @property
    def waited(self) -> float | None:
        """The share of the whole timing in which other processes used its cores; None if the system does not say."""
        return self.turns[-1].waited if self.turns else None


def timed(contenders: list[Contender], rounds: int) -> list[Timing | str]:
    """A timing of each contender in the same order, or the reason why there is none. Odd rounds go backwards.

    Raises Mistake for a contender that cannot be built.
    """
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker(contender)) for contender in contenders]
        outcomes: list[Timing | str] = []
        for worker in workers:
            try:
                outcomes.append(Timing([], work=worker.work(), warm=worker.go(1)))
            except AnswererEnded as ended:
                outcomes.append(str(ended))
        for number in range(rounds):
            order = range(len(workers))
            for index in order if number % 2 == 0 else reversed(order):
                timing = outcomes[index]
                if isinstance(timing, str):
                    continue
                try:
                    timing.turns.append(workers[index].go(math.ceil(SHORTEST / timing.warm.seconds)))
                except AnswererEnded as ended:
                    outcomes[index] = str(ended)
        return outcomes
