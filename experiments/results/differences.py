"""Differences from a baseline, paired by seed, with the statistics that also decide the papers' claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.record.dotted import value_at
from experiments.record.result import Fields
from experiments.results.columns import COLUMNS, TASK
from experiments.results.configurations import Configuration
from experiments.statistics.comparison import Compared, MarkKind, Word, claim_p_value, claim_word
from experiments.statistics.evidence import ALPHA, Anytime, finite_half_width, mean_and_deviation, standard_error
from experiments.statistics.holm import holm_levels, next_level
from experiments.statistics.marks import late_marks, mean_late_gain, stuck_marks, why_stuck

MARGIN = 0.01  # nats: a difference that would matter
DEFAULT = "multi_head"  # variant of the first baseline, if there is one
# of the claim "better than the baseline"
WORDS: dict[Word, str] = {"holds": "better", "reversed": "worse"}
HINTS = 3  # of the lowest, it is said how many seeds they still need
SEEDS = 12  # whose differences are shown one by one


def summary(values: Sequence[float]) -> dict[str, float | None]:
    """The mean, its standard error, and the half width of its anytime-valid 95% interval."""
    if not values:
        return {"mean": None, "error": None, "half": None}
    mean, deviation = mean_and_deviation(values)
    half = finite_half_width(Anytime(), len(values), deviation)
    return {"mean": mean, "error": standard_error(values), "half": half}


@dataclass(frozen=True)
class Measured:
    """What the comparisons of a configuration with others rest on."""

    name: str
    variant: str
    losses: dict[int, float]  # of each seed that has finished
    stuck: Mapping[MarkKind, str]  # why it may not decide a comparison
    late_gain: float | None  # in nats


def measured(configurations: Mapping[int, Configuration], results: Sequence[Fields]) -> dict[int, Measured]:
    """What is known of each configuration."""
    return {number: _measured(configuration, results) for number, configuration in configurations.items()}


def baselines(known: Mapping[int, Measured]) -> list[int]:
    """The configurations that may be the baseline, the most suitable first.

    Those of the variant DEFAULT come first, then those with most seeds, then the first of `known`. Losses do not count:
    against the luckiest of several configurations, the others would too often seem worse.
    """

    def suited(number: int) -> tuple[bool, int]:
        return known[number].variant != DEFAULT, -len(known[number].losses)

    return sorted((number for number, one in known.items() if one.losses), key=suited)


def differences(baseline: int, known: Mapping[int, Measured]) -> dict[int, Any]:
    """The differences of all other configurations from the baseline: number -> {mean, half, n, word, why, seeds}.

    They are differences of the loss. half: of the 95% interval, None if it is infinite. word: the outcome of "better
    than the baseline", with Holm's correction over all configurations that share two seeds with it; an outcome that it
    would only have without the correction is followed by `alone`. why: the reason for `not tested`.
    """
    others = {number: other for number, other in known.items() if number != baseline}
    found = {number: _compared(other, known[baseline]) for number, other in others.items()}
    compared = {number: comparison for number, comparison in found.items() if comparison.values}
    # a single pair can show nothing, so it takes no share of the allowed error
    family = [number for number, comparison in compared.items() if len(comparison.values) > 1]
    levels = holm_levels([claim_p_value([compared[number]]) for number in family])
    level_of = dict(zip(family, levels, strict=True))
    words = {number: _word(comparison, level_of.get(number, 0.0)) for number, comparison in compared.items()}
    described = {number: _described(comparison, words[number]) for number, comparison in compared.items()}
    for number in sorted(described, key=lambda number: described[number]["mean"])[:HINTS]:
        if words[number] != "not resolved" or compared[number].later:
            continue
        if needed := compared[number].seeds_needed(next_level(levels)):
            described[number]["why"] = f"about {needed} seeds in all would resolve it at this mean and spread"
    return described


def of_seeds(configuration: Configuration, results: Sequence[Fields]) -> dict[int, float]:
    """The loss of each seed that has finished."""
    return {seed: results[run]["validation_loss"] for seed, run in configuration.finished.items()}


def _measured(configuration: Configuration, results: Sequence[Fields]) -> Measured:
    ended = [results[run] for run in configuration.finished.values()]
    diverged = sum(results[run]["status"] == "nan" for run in configuration.runs)
    first = results[configuration.runs[0]]
    pretrained = value_at(first, TASK["task"]) is None
    reasons = why_stuck(ended, diverged, len(configuration.runs), by_loss=pretrained)
    variant = str(value_at(first, COLUMNS["variant"]))
    losses = of_seeds(configuration, results)
    late_gain = mean_late_gain(result["late_gain"] for result in ended)
    return Measured(configuration.name, variant, losses, reasons, late_gain)


def _compared(one: Measured, baseline: Measured) -> Compared:
    shared = sorted(one.losses.keys() & baseline.losses.keys())
    paired = {seed: one.losses[seed] - baseline.losses[seed] for seed in shared}
    compared = Compared(
        "validation_loss", f"{one.name} < {baseline.name}", ">", paired, -1, MARGIN, (one.name, baseline.name)
    )
    both = (one, baseline)
    reasons = stuck_marks(compared.rows, {each.name: each.stuck for each in both})
    gains = {each.name: each.late_gain for each in both if each.late_gain is not None}
    factors = {one.name: 1.0, baseline.name: -1.0}
    return compared.decided_by(reasons, lambda outcome: late_marks(compared, outcome, factors, gains))


def _word(compared: Compared, level: float) -> Word:
    return claim_word([compared], level) if level or compared.marks else "not resolved"


def _described(compared: Compared, word: Word) -> dict[str, Any]:
    alone = claim_word([compared], ALPHA) if word == "not resolved" else word
    shown = WORDS.get(alone, alone) + (" alone" if alone != word else "")
    values = compared.values
    why = "; ".join(map(str, [*compared.marks, *compared.later]))
    return {**summary(values), "n": len(values), "word": shown, "why": why, "seeds": values[:SEEDS]}
