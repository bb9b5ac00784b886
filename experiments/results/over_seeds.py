"""Configurations side by side, as rows: means over their seeds, and differences from a baseline."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from experiments.record.result import Fields
from experiments.results.columns import by_task, is_varied, scores_of, settings_among, table_of
from experiments.results.configurations import Configuration, comparable
from experiments.results.differences import baselines, differences, measured
from experiments.results.selection import matching
from experiments.statistics.evidence import mean_and_deviation

# columns of a run without a mean; perplexity is a function of the loss
OF_RUN = ("perplexity", "backend", "status", "run")
DEVIATION = "_deviation"  # of a loss or score over the seeds, the sample standard deviation
# of the loss from that of the baseline, in nats; `why`: the reason for the verdict, or what it would take
DIFFERENCE = ("difference", "difference_low", "difference_high", "pairs", "verdict", "why")
BASELINE = "baseline"  # in place of its verdict


def tables_over_seeds(results: list[Fields], baseline: list[str]) -> list[list[Fields]]:
    """A table for each set of conditions under which losses may be compared, with a row for each configuration.

    A row has the name of the configuration and the settings that `table_of` shows, the number of seeds that have
    finished, means over them, and DIFFERENCE.

    baseline: key=value, with which the baseline of each table agrees. Of several such configurations, the most suitable
    one is taken; without any, a table has no differences. Raises Mistake for a key that no run has.
    """
    eligible = set(map(id, matching(baseline, results)))
    # a run whose settings are not known is of no configuration, and an imported one was never trained with its own
    known = [result for result in results if result["config"] is not None and result["status"] != "imported"]
    return [table for of_task in by_task(known).values() for table in _tables(of_task, eligible)]


def _tables(results: list[Fields], eligible: Collection[int]) -> list[list[Fields]]:
    """The tables of one task, or of pretraining. eligible: the identities of the results that the baseline may have."""
    rows = table_of(results)
    settings = settings_among(rows[0], results)
    numbers = [column for column in rows[0] if column not in (*settings, *OF_RUN)]
    spread = (*scores_of(results), "loss")
    found = comparable(results, rows, settings)
    tables = []
    for comparison, says in enumerate(found.comparisons):
        members = found.members(comparison)
        differences_of = _from_baseline(members, results, eligible)
        conditions = {"conditions": says} if len(found.comparisons) > 1 else {}
        table = []
        for number, configuration in members.items():
            row: Fields = conditions | {"configuration": configuration.name} | configuration.settings
            row["seeds"] = len(configuration.finished)
            for column in numbers:
                values = [rows[run][column] for run in configuration.finished.values()]
                row |= _mean(column, values, column in spread)
            table.append(row | differences_of[number])
        tables.append(table)
    return tables


def _mean(column: str, values: Sequence[float | None], has_deviation: bool) -> Fields:
    """The mean of the known values of a column, and their standard deviation, which a single value does not have."""
    known = [value for value in values if value is not None]
    mean, deviation = mean_and_deviation(known) if known else (None, None)
    # a count that all seeds share stays a count
    row: Fields = {column: mean if is_varied(known) or not known else known[0]}
    return row | {column + DEVIATION: deviation if len(known) > 1 else None} if has_deviation else row


def _from_baseline(
    members: Mapping[int, Configuration], results: Sequence[Fields], eligible: Collection[int]
) -> dict[int, Fields]:
    """The columns DIFFERENCE of each configuration."""

    def agrees(number: int) -> bool:
        return any(id(results[run]) in eligible for run in members[number].runs)

    unknown: Fields = dict.fromkeys(DIFFERENCE)
    columns = dict.fromkeys(members, unknown)
    known = measured(members, results)
    baseline = next(filter(agrees, baselines(known)), None)
    if baseline is None:
        return columns
    columns[baseline] = unknown | {"verdict": BASELINE}
    for number, found in differences(baseline, known).items():
        mean, half = found["mean"], found["half"]
        low, high = (None, None) if half is None else (mean - half, mean + half)
        values = (mean, low, high, found["n"], found["word"], found["why"] or None)
        columns[number] = dict(zip(DIFFERENCE, values, strict=True))
    return columns
