"""The printed difference of a comparison, in the unit of our score if the two units can be converted."""

from __future__ import annotations

import math
from typing import NamedTuple

from experiments.tables.definition.inequality import Statement
from experiments.tables.definition.table import Direction
from experiments.tables.report import Report

PERPLEXITIES = ("ppl", "perplexity", "avg_ppl")  # metrics whose logarithm is a loss in nats
LOSSES = ("ln_ppl",)


class PublishedDifference(NamedTuple):
    """The left side of a comparison minus the right side, as printed; for perplexities, the difference of their
    logarithms.
    """

    value: float
    metric: str
    comparable: bool  # in the unit of our score
    better: Direction  # of the metric

    def __str__(self) -> str:
        return f"{self.value:+.3g} {self.metric}" + (" (higher is better)" if self.better == "higher" else "")


def published_difference(part: Statement, report: Report) -> PublishedDifference | None:
    """The printed difference of a comparison; None if one of its numbers was not printed, not read, or has another unit
    than a number of the comparison.
    """
    printed = report.request.printed
    if printed is None or part.relation == "=":
        return None
    factors = part.contrast({line.row: line.columns(report.score) for line in report.lines})
    numbers = [report.printed.get(row, {}).get(printed.metric) for row in factors]
    values = [number.value for number in numbers if number is not None and number.value is not None]
    if len(values) < len(factors):
        return None
    metric = printed.metric
    if metric in PERPLEXITIES:
        values, metric = [math.log(value) for value in values], f"ln {metric}"
    value = sum(factor * value for factor, value in zip(factors.values(), values, strict=True))
    in_nats = printed.metric in (*PERPLEXITIES, *LOSSES) and report.request.budget.unit == "nats"
    comparable = in_nats or printed.metric == report.score
    if part.constant and not comparable:
        # it is a number of our score
        return None
    return PublishedDifference(value + part.constant, metric, comparable, printed.better)
