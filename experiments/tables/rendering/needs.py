"""What a claim that is not decided would need: runs, and their time on a CPU and on one GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from experiments.display.numbers import rough_duration
from experiments.failures.wording import joined, plural
from experiments.statistics.comparison import Compared, Mark, MarkKind
from experiments.statistics.evidence import MOST_SEEDS, Anytime, Waiting
from experiments.tables.definition.table import BUDGETS
from experiments.tables.report import Report
from experiments.tables.seeds import FIRST_SEEDS
from experiments.tables.tuning import fewest_trials
from experiments.tables.verdict import UNDECIDED, Outlook, Verdict

# of an H200 in fp32, with AT_ONCE runs of models of 4 layers, with their starts and evaluations (docs/gpu.md)
AT_ONCE = 15
LAYERS_TIMES_TOKENS_PER_SECOND = 4 * 457_000


def needs(verdict: Verdict, scheme: str, report: Report) -> str | None:
    """What would decide a claim under a scheme of positions; None if it is decided there, and stays so if seeds are
    added.
    """
    finding = verdict.findings[scheme]
    if verdict.word not in UNDECIDED or {finding.word, finding.outlook.word}.isdisjoint(UNDECIDED):
        return None
    if finding.word == "not tested":
        if not _marks(finding.comparisons):
            return _other_budget(verdict, report)
        return "; ".join(_better_trainings(_marks(finding.comparisons), verdict.key, scheme, report))
    if verdict.claim.of == "step_time":
        return _more_rounds(finding.outlook, report)
    if any(isinstance(each.evidence, Waiting) for each in finding.comparisons):
        return "the other cells of its plan"
    if marks := [*_marks(finding.outlook.comparisons), *finding.outlook.marks]:
        return "; ".join(_better_trainings(marks, verdict.key, scheme, report))
    if finding.outlook.lacks_rows:
        return _other_budget(verdict, report)
    seeds = _more_seeds(finding.outlook, scheme, report)
    if not isinstance(report.evidence, Anytime):
        seeds += "; or a new plan on fresh seeds (--plan)"
    first = [name for name, other in verdict.findings.items() if not other.outlook.can_decide]
    return seeds + (f"; but first what {joined(first)} needs, without which no seed decides the claim" if first else "")


def _more_seeds(outlook: Outlook, scheme: str, report: Report) -> str:
    rows = list(dict.fromkeys(row for comparison in outlook.undecided for row in comparison.rows))
    have, more = outlook.have, outlook.more
    if have < FIRST_SEEDS:
        seeds, size = FIRST_SEEDS - have, "at least "
    elif more is None:
        seeds, size = MOST_SEEDS - have, "over "
    else:
        seeds, size = more, "about "
    said = f"{size}{seeds:,} more {plural('seed', seeds)} of {joined(rows)}"
    return f"{said}, {_cost(dict.fromkeys(rows, seeds), scheme, report)}"


def _more_rounds(outlook: Outlook, report: Report) -> str:
    have, more = outlook.have, outlook.more
    every = "each of which times a step of every row"
    if have < FIRST_SEEDS:
        return f"at least {FIRST_SEEDS} rounds on a quiet machine (--rounds {FIRST_SEEDS}), {every}"
    if more is None:
        return f"over {MOST_SEEDS:,} rounds on a quiet machine, {every}"
    seconds = sum(filter(None, (line.measured.step_seconds for line in report.lines)))
    time = f", at least {rough_duration(more * seconds)} on this table's machine" if seconds else ""
    return f"about {more:,} more {plural('round', more)} on a quiet machine (--rounds {have + more}){time}, {every}"


def _better_trainings(marks: Sequence[Mark], claim: str, scheme: str, report: Report) -> Iterator[str]:
    """For the rows with marks, the trainings that could decide the claim of this key."""
    rows: dict[MarkKind, list[str]] = {}
    for mark in marks:
        rows.setdefault(mark.kind, []).append(mark.row)
    seeds = {mark.row: report.known(mark.row, scheme, lambda line: line.seeds) or FIRST_SEEDS for mark in marks}
    if untuned := rows.get("untuned", []):
        yield _tuned_rates({row: seeds[row] for row in untuned}, claim, scheme, report)

    def others(*kinds: MarkKind) -> dict[str, int]:
        # with a tuned rate, a row is trained anew anyway
        marked = [row for kind in kinds for row in rows.get(kind, []) if row not in untuned]
        return {row: seeds[row] for row in marked}

    if runs := others("diverged"):
        lower = "that does not diverge, for example at a lower learning rate"
        yield f"a training of {joined(list(runs))} {lower}, in {_cost(runs, scheme, report)}"
    at_plateau = others("plateau")
    still_learn = {row: count for row, count in others("late gain").items() if row not in at_plateau}
    if runs := at_plateau:
        yield f"a longer training of {joined(list(runs))}; twice the steps are {_cost(runs, scheme, report, steps=2)}"
    if runs := still_learn:
        ends = f"a training of {joined(list(runs))} that gains less in its last tenth"
        yield f"{ends}; twice the steps, which may not be enough, are {_cost(runs, scheme, report, steps=2)}"
    if runs := others("unknown gain"):
        before = "before the last tenth of the steps (trainer.evaluate_every)"
        yield f"an evaluation of {joined(list(runs))} {before}, in {_cost(runs, scheme, report)}"


def _tuned_rates(seeds: Mapping[str, int], claim: str, scheme: str, report: Report) -> str:
    """The tuning of all rows of a claim, and after it new runs of those that it lacks, by their numbers of seeds."""
    request = replace(report.request, chosen_claims=[claim])
    families = request.untuned_families
    tuned = "a tuned rate of the family" if len(families) == 1 else "tuned rates of the families"
    rates = f"{tuned} {joined(families)} ({request.tuning_command()})"
    new = f"new runs of the {plural('row', len(seeds))} {joined([*seeds])}"
    return f"{rates}, and {new}, at least {_cost(fewest_trials(request) + Counter(seeds), scheme, report)}"


def _other_budget(verdict: Verdict, report: Report) -> str:
    """A budget with all rows of the claim."""
    table = report.request.table
    for name in table.budgets:
        if verdict.key in table.claims_at(name) and {*verdict.claim.rows} <= table.rows_at(name).keys():
            other = replace(report.request, budget_name=name, overrides=(), chosen_claims=())
            return f"the budget {name}, made for a GPU; {other.dry_run_command()} estimates its time on a CPU or a GPU"
    return "a budget with these rows"


def _marks(comparisons: Sequence[Compared]) -> list[Mark]:
    """The reasons why rows may not decide comparisons, each once."""
    return list(dict.fromkeys(mark for comparison in comparisons for mark in comparison.marks))


def _cost(runs: Mapping[str, int], scheme: str, report: Report, steps: int = 1) -> str:
    """The number of runs, and at `nano` their time, as far as it is known: one after another on the table's machine,
    and on one GPU.

    runs: the number of runs of each row. steps: how many times the steps of the table's own runs they have.
    """
    count = sum(runs.values())
    said = f"{count:,} {plural('run', count)}"
    dry_run = f"{report.request.dry_run_command()} estimates"
    is_nano = report.request.budget_name == BUDGETS[0]
    on_machine = _total(runs, [_seconds(report, scheme, row) for row in runs]) if is_nano else None
    times = []
    if on_machine:
        times.append(f"about {rough_duration(steps * on_machine)} one after another on this table's machine")
    if is_nano and (on_gpu := _on_gpu(runs, scheme, report, steps)):
        times.append(on_gpu)
    if not times:
        return f"{said} ({dry_run} a run's time on a CPU or a GPU)"
    return f"{said}: {', or '.join(times)}" + ("" if on_machine else f" ({dry_run} a run's time on a CPU)")


def _on_gpu(runs: Mapping[str, int], scheme: str, report: Report, steps: int) -> str | None:
    """The time of runs on one GPU: at least that of their tokens, if sequences are padded, which was not timed there.
    None if it is not known.
    """
    work = [_layers_times_tokens(report, scheme, row) for row in runs]
    if not (total := _total(runs, work)):
        return None
    seconds = steps * max(total, AT_ONCE * max(filter(None, work))) / LAYERS_TIMES_TOKENS_PER_SECOND
    padded = any(tokens % steps for row in runs for tokens, steps in [_extent(report, scheme, row)] if tokens and steps)
    about, beside = ("at least", ", if padding cost nothing") if padded else ("about", "")
    return f"{about} {rough_duration(seconds)} on one GPU (H200, fp32, {AT_ONCE} at once{beside})"


def _seconds(report: Report, scheme: str, row: str) -> float | None:
    """The time of a run by the table's bench, else the processor time of its runs."""
    steps = report.known(row, scheme, lambda line: line.measured.steps)
    step_seconds = report.known(row, scheme, lambda line: line.measured.step_seconds)
    if steps and step_seconds:
        return steps * step_seconds
    return report.known(row, scheme, lambda line: line.measured.processor_seconds)


def _layers_times_tokens(report: Report, scheme: str, row: str) -> float | None:
    """The work of a run, without padding. Where steps were timed, the row counts with the baseline's layers, times the
    ratio of its step to the baseline's.
    """
    ratio = report.known(row, scheme, lambda line: line.measured.step_time)
    as_deep_as = report.request.table.baseline if ratio else row
    layers = report.known(as_deep_as, scheme, lambda line: line.given.get("layers"))
    tokens, steps = _extent(report, scheme, row)
    return tokens * layers * (ratio or 1.0) if tokens and steps and layers else None


def _extent(report: Report, scheme: str, row: str) -> tuple[float | None, float | None]:
    """The tokens and the steps of a run."""
    tokens = report.known(row, scheme, lambda line: line.measured.tokens)
    return tokens, report.known(row, scheme, lambda line: line.measured.steps)


def _total(runs: Mapping[str, int], of_one: Sequence[float | None]) -> float | None:
    """The time or the work of all runs from that of one run of each row; None if it is unknown for a row."""
    known = [count * each for count, each in zip(runs.values(), of_one, strict=True) if each]
    return sum(known) if len(known) == len(runs) else None
