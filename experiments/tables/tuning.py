"""The learning rates of a table's families, as `--tune` finds them.

A family takes the rate with the best mean score of its first and its last row, which differ most in what the table
varies, under every scheme of positions. Rates are a factor of sqrt(2) apart. More are tried until both neighbours of
the best one are worse.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rich.console import Console

from experiments.cells.resources import Workers
from experiments.display.lines import say
from experiments.failures.failure import Failure, Mistake
from experiments.failures.wording import joined, plural
from experiments.record.dotted import value_at
from experiments.statistics.evidence import MOST_SEEDS
from experiments.tables.definition.request import Configuration, Request
from experiments.tables.definition.table import Tuning
from experiments.tables.seeds import seeds_text
from experiments.tables.sources.choose import source_of
from experiments.tables.sources.source import ENDED

STEP = math.sqrt(2)
SEEDS = range(MOST_SEEDS, MOST_SEEDS + 2)  # of the trials, unless the user names others; no table needs them
_FEWEST_TRIALS = 3 * len(SEEDS)  # of a configuration: its best rate and the two beside it, with each of the seeds
FARTHEST = 8  # steps from the rate that the table has now: a factor of 16


@dataclass
class _Trials:
    """The rates of one family that were tried, by their number of steps from the one that the table has now."""

    rate: float  # that the table has now
    sense: int  # sign of a better score's difference
    rows: dict[str, Configuration]
    scores: dict[int, float] = field(default_factory=dict)
    extent: str = ""  # length and precision of the trials

    def at(self, steps: int) -> float:
        """The rate so many steps from the present one, to two digits."""
        return float(f"{self.rate * STEP**steps:.2g}")

    @property
    def best(self) -> int:
        """The number of steps to the best rate, and to the lowest one among equals."""
        return max(sorted(self.scores), key=lambda steps: self.sense * self.scores[steps])

    @property
    def missing(self) -> list[int]:
        """What to try next; empty if the best rate lies between two others."""
        if not self.scores:
            return [-1, 0, 1]
        return [at for at in (self.best - 1, self.best + 1) if at not in self.scores and abs(at) <= FARTHEST]


def tune(request: Request, console: Console, workers: Workers = "auto") -> dict[str, Tuning]:
    """Find the rate of each family of the request's rows whose rate was not tuned.

    A cell that diverges has an infinitely bad score. Raises Mistake if there is no such family, and if the user gives
    the rate; Failure for a cell that fails, and for a best rate at the end of the range; and Interrupted, after which
    the same call continues.
    """
    if not request.names_seeds:
        request = replace(request, seeds=SEEDS)
    families = {family: _trials(request, family) for family in _untuned(request)}
    while waiting := [(family, steps) for family, trials in families.items() for steps in trials.missing]:
        for family, steps in waiting:
            trials = families[family]
            trials.scores[steps] = score = _score(request, trials, steps, console, workers)
            line = f"{family}, learning rate {trials.at(steps):g}: {score:g} {request.budget.unit}".rstrip()
            say(console, line)
    return {family: _tuning(request, family, trials) for family, trials in families.items()}


def fewest_trials(request: Request) -> Counter[str]:
    """The number of cells of each row that `tune` trains if the present rate of every family is its best."""
    trials: Counter[str] = Counter()
    for family in request.untuned_families:
        for each in _first_and_last(request, family).values():
            trials[each.row] += _FEWEST_TRIALS
    return trials


def as_yaml(tunings: Mapping[str, Tuning]) -> str:
    """The rates as `learning_rates` of a table's file has them."""
    lines = []
    for family, tuning in tunings.items():
        tried = ", ".join(f"{rate:.1e}: {_yaml(score)}" for rate, score in (tuning.tried or {}).items())
        lines.append(f'{family}: {{chosen: {tuning.chosen:.1e}, tried: {{{tried}}}, where: "{tuning.where}"}}\n')
    return "".join(lines)


def _untuned(request: Request) -> list[str]:
    if request.gives_rate:
        raise Mistake("--tune: finds the learning rate itself", "leave learning_rate=... out")
    if not (families := request.family_tunings):
        raise Mistake(f"--tune: no row of the budget {request.budget_name} of {request.name} has a rate to tune")
    if not (untuned := request.untuned_families):
        raise Mistake(
            f"--tune: no rate is left to tune; the families are {joined(list(families))}",
            "a family with tried: {} is tuned again",
        )
    return untuned


def _trials(request: Request, family: str) -> _Trials:
    rows = _first_and_last(request, family)
    chosen = request.family_tunings[family].chosen
    return _Trials(chosen or _rate_of_settings(request, next(iter(rows.values()))), request.budget.sense, rows)


def _first_and_last(request: Request, family: str) -> dict[str, Configuration]:
    """The first and the last row of the family under each scheme, by key, whatever claims the user chose."""
    rows: dict[str, Configuration] = {}
    # nobody may choose between two rates
    configurations = replace(request, chosen_claims=()).configurations
    of_family = [each for each in configurations.values() if each.definition.family == family]
    for scheme in dict.fromkeys(each.scheme for each in of_family):
        under_it = [each for each in of_family if each.scheme == scheme]
        rows |= {each.key: each for each in (under_it[0], under_it[-1])}
    return rows


def _rate_of_settings(request: Request, row: Configuration) -> float:
    pretraining, *_ = source_of(request, {row.key: row.definition}).trained(row.key)
    return pretraining.learning_rate


def _score(request: Request, trials: _Trials, steps: int, console: Console, workers: Workers) -> float:
    """The mean score of the family's rows and seeds at a rate, to four digits."""
    trial = replace(request, overrides=[*request.overrides, f"learning_rate={trials.at(steps)!r}"])
    source = source_of(trial, {key: row.definition for key, row in trials.rows.items()})
    source.check()
    cells = source.cells(request.seeds)
    source.make(cells, f"{request.group}-tuning", console, workers)
    scores = []
    for cell in cells:
        outcome = source.outcome(cell)
        if outcome.state not in ENDED:
            raise Failure(": ".join(filter(None, [cell.name, outcome.state, outcome.reason])))
        if outcome.state == "done":
            trials.extent = f"{outcome.result['steps']} steps in {outcome.result['precision']}"
        worst = -trials.sense * math.inf
        scores.append(value_at(outcome.result, request.budget.score) if outcome.state == "done" else worst)
    return float(f"{math.fsum(scores) / len(scores):.4g}")


def _tuning(request: Request, family: str, trials: _Trials) -> Tuning:
    tried = {trials.at(steps): score for steps, score in sorted(trials.scores.items())}
    if abs(trials.best) == FARTHEST:
        raise Failure(
            f"{family}: no rate from {min(tried):g} to {max(tried):g} is better than both of its neighbours\n"
            "  set another rate for the family where the table has its learning_rates, and run the command again"
        )
    labels = list(dict.fromkeys(each.row for each in trials.rows.values()))
    schemes = [scheme for scheme in dict.fromkeys(each.scheme for each in trials.rows.values()) if scheme]
    where = [f"{plural('row', len(labels))} {joined(labels)}", *([f"{joined(schemes)} positions"] if schemes else [])]
    return Tuning(
        chosen=trials.at(trials.best),
        where=", ".join([*where, seeds_text(request.seeds), *filter(None, [trials.extent])]),
        tried=tried,
    )


def _yaml(score: float) -> str:
    return f"{score:g}" if math.isfinite(score) else f"{'-' * (score < 0)}.inf"
