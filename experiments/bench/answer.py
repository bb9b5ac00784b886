"""The cost of an answer: processor time until a difference between two configurations is resolved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console

from experiments.bench.side_by_side import LeftOut
from experiments.cells.outcome import Outcome
from experiments.cells.resources import Workers
from experiments.display.rows import Row
from experiments.failures.failure import Mistake
from experiments.launch.local import train_cells
from experiments.results.columns import settings_beside, settings_of
from experiments.settings.run import Settings
from experiments.statistics.evidence import ALPHA, Anytime, fewest_seeds, interval, mean_and_deviation

SHOWN = ("variant", "heads", "key_size")  # settings that every row shows
UPPER = 0.9  # level of the one-sided bound on a standard deviation, which a few seeds tell badly


def answers(
    cells: Sequence[Settings], seeds: int, difference: float, console: Console, workers: Workers
) -> tuple[list[Row], list[LeftOut]]:
    """A row for each configuration compared with the first one, and the cells without a result.

    Every configuration is trained with the seeds 0 to `seeds` - 1; finished runs in the run folders are reused. The
    standard deviation of the paired differences of validation loss determines how many seeds an anytime-valid interval
    needs to exclude 0 at a mean of `difference` [nats]. This number times the processor time of a pair of cells is the
    cost of the answer. Raises Interrupted, and Mistake for a single configuration.
    """
    if len(cells) < 2:
        raise Mistake("--scope answer compares configurations", "list two or more: variant=multi_head,talking_heads")
    by_seed = [cell.model_copy(update={"seed": seed}) for seed in range(seeds) for cell in cells]
    outcomes = train_cells(by_seed, console, workers)
    # by configuration, in the order of the seeds
    trained = [outcomes[index :: len(cells)] for index in range(len(cells))]
    failed = [outcome for of_cell in trained for outcome in of_cell if not outcome.done]
    left_out = [LeftOut(f"{outcome.folder.name}: {outcome.reason}", failed=True) for outcome in failed]
    first = trained[0]
    others = settings_beside(SHOWN, cells)
    rows = [
        _settings_of(cell, others) | _measured(of_cell, first, difference)
        for cell, of_cell in zip(cells, trained, strict=True)
    ]
    return rows, left_out


def seeds_to_resolve(difference: float, deviation: float) -> int | None:
    """The number of seeds until the anytime-valid interval of a mean `difference` excludes 0; None for more than
    MOST_SEEDS.
    """
    return fewest_seeds(2, lambda count: Anytime().p_value(count, difference, deviation, 0.0) <= ALPHA)


def highest_deviation(deviation: float, count: int) -> float:
    """An upper bound for the standard deviation behind `count` normal values, from the chi-squared distribution."""
    from scipy.stats import chi2

    return deviation * math.sqrt((count - 1) / chi2.ppf(1 - UPPER, count - 1))


def _settings_of(cell: Settings, others: Sequence[str]) -> Row:
    row: Row = {"contender": str(cell.variant["name"]), "heads": cell.heads, "key_size": cell.key_size}
    return row | settings_of(cell, others)


def _measured(outcomes: Sequence[Outcome], baseline: Sequence[Outcome], difference: float) -> Row:
    losses = _by_seed(outcomes, "validation_loss")
    row: Row = {"validation_loss": float(np.mean([*losses.values()])) if losses else None}
    unknown = ("difference", "low", "high", "spread", "seeds", "answer_minutes", "answer_minutes_at_most")
    row |= dict.fromkeys(unknown)
    theirs = _by_seed(baseline, "validation_loss")
    paired = [loss - theirs[seed] for seed, loss in losses.items() if seed in theirs]
    if outcomes is baseline or len(paired) < 2:
        return row
    mean, deviation = mean_and_deviation(paired)
    row["difference"], row["spread"] = mean, deviation
    row["low"], row["high"] = interval(Anytime(), paired) or (None, None)
    row["seeds"] = seeds_to_resolve(difference, deviation)
    minutes = sum(float(np.mean([*_by_seed(each, "processor_seconds").values()])) for each in (outcomes, baseline)) / 60
    at_most = seeds_to_resolve(difference, highest_deviation(deviation, len(paired)))
    row["answer_minutes"] = row["seeds"] and row["seeds"] * minutes
    row["answer_minutes_at_most"] = at_most and at_most * minutes
    return row


def _by_seed(outcomes: Sequence[Outcome], name: str) -> dict[int, Any]:
    """A number of the cells that have a result, by seed."""
    return {result.seed: getattr(result, name) for each in outcomes if (result := each.finished_result)}
