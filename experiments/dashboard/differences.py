"""Differences to a baseline, paired by seed, by the same statistics that decide the papers' claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.dashboard.comparable import Configuration
from experiments.statistics.comparison import Compared, Word, claim_p_value, claim_word
from experiments.statistics.evidence import ALPHA, Anytime, holm_levels, interval, mean_and_deviation, standard_error
from experiments.statistics.plateau import at_plateau, late_gain, marks

MARGIN = 0.01  # nats: a difference that would matter
# differences that are computed at most, over all the configurations that may be the baseline
MOST = 3000
BASELINES = 12
DEFAULT = "multi_head"  # variant of the first baseline, where there is one
# of the claim "better than the baseline"
WORDS: dict[Word, str] = {"holds": "better", "reversed": "worse"}
HINTS = 3  # of the lowest, it is said how many seeds they still need
SEEDS = 12  # whose differences are shown one by one

Results = Sequence[Mapping[str, Any]]


def summary(values: Sequence[float]) -> dict[str, float | None]:
    """Mean, standard error and the half width of the 95% interval of the mean, which may be looked at at any time."""
    if not values:
        return {"mean": None, "error": None, "half": None}
    found = interval(Anytime(), values)
    mean = mean_and_deviation(values)[0]
    return {"mean": mean, "error": standard_error(values), "half": found[1] - mean if found else None}


def baselines(configurations: Mapping[int, Configuration], results: Results, variants: Sequence[str]) -> list[int]:
    """The configurations that may be the baseline, the best suited first.

    Those of the variant DEFAULT come first, then those with most seeds, then those with the lowest loss. The others of
    the first comparison need their differences too, so that the more configurations there are the fewer are chosen.
    """

    def suited(number: int) -> tuple[bool, int, float]:
        losses = of_seeds(configurations[number], results)
        return variants[number] != DEFAULT, -len(losses), sum(losses.values()) / len(losses)

    known = [number for number, each in configurations.items() if each.finished]
    return sorted(known, key=suited)[: max(1, min(BASELINES, MOST // max(1, len(known))))]


def differences(baseline: int, configurations: Mapping[int, Configuration], results: Results) -> dict[int, Any]:
    """What each other configuration has over the baseline: number -> {mean, half, n, word, why, seeds}.

    Of the loss; half: of the 95% interval, None where it is infinite. word: what is shown of "better than the
    baseline", with Holm's correction over all the configurations that share two seeds with it. why: of `not tested`.
    """
    losses = {number: of_seeds(each, results) for number, each in configurations.items()}
    ended = {number: [results[run] for run in each.finished.values()] for number, each in configurations.items()}
    stuck = {number: why for number, each in configurations.items() if (why := _stuck(each, results, ended[number]))}
    gains = {number: gain for number, each in ended.items() if (gain := late_gain(each)) is not None}
    compared: dict[int, Compared] = {}
    for number in configurations:
        shared = sorted(losses[number].keys() & losses[baseline].keys()) if number != baseline else []
        if shared:
            paired = {seed: losses[number][seed] - losses[baseline][seed] for seed in shared}
            rows = (configurations[number].name, configurations[baseline].name)
            made = Compared("", ">", paired, -1, MARGIN, rows)
            of = {configurations[each].name: each for each in (number, baseline)}
            found = marks(made, _named(stuck, of), _named(gains, of))
            compared[number] = Compared("", ">", paired, -1, MARGIN, rows, marks=found)
    # one pair alone can show nothing, whatever it is: it takes no share of the allowed errors
    family = [number for number, each in compared.items() if len(each.values) > 1]
    levels = dict(zip(family, holm_levels([claim_p_value([compared[number]]) for number in family]), strict=True))
    shown = {number: _shown(each, levels.get(number, 0.0)) for number, each in compared.items()}
    next_level = ALPHA / max(1, sum(level == 0 for level in levels.values()))
    for number in sorted(shown, key=lambda number: shown[number]["mean"])[:HINTS]:
        if shown[number]["word"] == "not resolved" and (needed := compared[number].seeds_needed(next_level)):
            shown[number]["why"] = f"about {needed} seeds would resolve it if their mean and spread stay"
    return shown


def of_seeds(configuration: Configuration, results: Results) -> dict[int, float]:
    """The loss of each seed that has ended."""
    return {seed: results[run]["validation_loss"] for seed, run in configuration.finished.items()}


def _shown(compared: Compared, level: float) -> dict[str, Any]:
    word: Word = claim_word([compared], level) if level or compared.marks else "not resolved"
    values = compared.values
    why = "; ".join(compared.marks)
    word_here = WORDS.get(word, str(word))
    return {**summary(values), "n": len(values), "word": word_here, "why": why, "seeds": values[:SEEDS]}


def _stuck(configuration: Configuration, results: Results, ended: Results) -> str:
    diverged = sum(results[run]["status"] == "nan" for run in configuration.runs)
    said = [f"diverged with {diverged} of {len(configuration.runs)} seeds"] if diverged else []
    return " and ".join([*said, *filter(None, [at_plateau(ended)])])


def _named(values: Mapping[int, Any], names: Mapping[str, int]) -> dict[str, Any]:
    return {name: values[number] for name, number in names.items() if number in values}
