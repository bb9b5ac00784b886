"""The lines of a report: one for each configuration, and one for each of its cells."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Literal

from experiments.display.rows import Row
from experiments.statistics.evidence import Interval

Sign = Literal["same", "opposite", "not resolved"]


@dataclass(frozen=True, kw_only=True)
class SeedLine:
    """A cell: its score, and how it ended. None: unknown, or the cell is not done."""

    row: str
    scheme: str  # of positions; empty in a table without schemes
    seed: int
    score: float | None  # of a diverged cell, the stand-in that the budget gives it
    unigram_loss: float | None
    late_gain: float | None
    state: str
    machine: str | None  # on which it was trained and fine-tuned

    def columns(self, score: str) -> Row:
        """The line of the CSV. score: the name of the score's column."""
        return _named(self.row, self.scheme) | {
            "seed": self.seed,
            score: self.score,
            "unigram_loss": self.unigram_loss,
            "late_gain": self.late_gain,
            "state": self.state,
            "machine": self.machine,
        }


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """Numbers of a configuration's finished cells, besides scores and losses, and of the table's bench. None: unknown.

    They are means over the cells, but the most of the memory.
    """

    own: Row  # the table's own columns
    parameters: int | None
    step_seconds: float | None  # the median over the rounds of the bench
    step_time: float | None  # the median of the rounds' ratios to the baseline
    steps: float | None
    tokens: float | None
    processor_seconds: float | None
    peak_memory_bytes: int | None

    def columns(self) -> Row:
        """The columns of every table."""
        return {name: getattr(self, name) for name in MEASURED}


MEASURED = tuple(each.name for each in fields(Measurements) if each.name != "own")


@dataclass(frozen=True, kw_only=True)
class BesidePrinted:
    """A configuration beside the paper's numbers. None: one of the two is not known."""

    rank: int | None = None  # by the score
    published_rank: int | None = None
    rank_deviation: int | None = None
    sign: Sign | None = None  # whether the difference from the baseline has the paper's sign


@dataclass(frozen=True, kw_only=True)
class Line:
    """A configuration: a row under a scheme of positions, with its numbers over the seeds. None: unknown."""

    row: str
    scheme: str  # of positions; empty in a table without schemes
    label: str
    given: Row  # columns that need no result: its sizes, and what the paper printed
    score: float | None  # the mean over the seeds
    standard_error: float | None
    seeds: int
    of_seeds: str | None  # the seeds of the mean, if others have a score in other rows
    difference: float | None  # from the baseline, the mean over the seeds that both have
    interval: Interval | None  # of the difference
    difference_of_seeds: str | None  # likewise
    unigram_loss: float | None
    late_gain: float | None
    mark: str | None  # why it may not decide a claim
    measured: Measurements
    state: str
    beside_printed: BesidePrinted = BesidePrinted()

    def columns(self, score: str) -> Row:
        """The line of the CSV. score: the name of the score's column."""
        low, high = self.interval or (None, None)
        return {
            **_named(self.row, self.scheme), "label": self.label, **self.given,
            score: self.score,
            "standard_error": self.standard_error,
            "seeds": self.seeds,
            "of_seeds": self.of_seeds,
            **self.measured.own,
            "difference": self.difference, "difference_low": low, "difference_high": high,
            "difference_of_seeds": self.difference_of_seeds,
            "unigram_loss": self.unigram_loss,
            "late_gain": self.late_gain,
            "mark": self.mark,
            **self.measured.columns(),
            "state": self.state,
            **asdict(self.beside_printed),
        }  # fmt: skip


def _named(row: str, scheme: str) -> Row:
    return {"row": row, "positions": scheme} if scheme else {"row": row}
