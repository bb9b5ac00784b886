"""`attn compare`: finished runs, or configurations over their seeds, side by side, from their result files alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from experiments.display.latex import as_latex
from experiments.display.lines import warn
from experiments.display.numbers import difference_text
from experiments.display.rows import Row, readable, show
from experiments.failures.failure import Mistake
from experiments.failures.wording import did_you_mean
from experiments.processes.collection import without_collection
from experiments.results.checked import ended_results, first_lines
from experiments.results.columns import tables_of
from experiments.results.comparability import differing_conditions, has_disturbed_speed, remarks
from experiments.results.configurations import is_finished
from experiments.results.find import NO_RUNS, where
from experiments.results.over_seeds import BASELINE, DEVIATION, tables_over_seeds
from experiments.results.selection import matching, settings_in, without_match


@without_collection()
def compare_runs(
    selection: list[str], runs: Path, sort: str, format: str, over_seeds: bool = False, baseline: Sequence[str] = ()
) -> None:
    """Print the runs that are named or that match every key=value; without either, all finished runs.

    over_seeds: print their configurations instead. baseline: key=value, with which the baseline of these agrees.

    Raises Mistake.
    """
    _check_baseline(baseline, over_seeds)
    ended = ended_results(runs, selection, warn)
    results = matching(settings_in(selection, runs), ended)
    tables = tables_over_seeds(results, [*baseline]) if over_seeds else tables_of(results)
    if not tables:
        hint = "" if ended else NO_RUNS
        if any(item.startswith("runs=") for item in selection):
            hint = "--runs FOLDER names another folder"
        raise Mistake(f"no finished run {where(runs)}{without_match(selection, ended)}", hint)
    if baseline and not any(row["verdict"] == BASELINE for rows in tables for row in rows):
        raise Mistake(f"--baseline: no configuration with a loss{without_match([*baseline], results)}")
    tables = sorted_tables(sort, tables)
    if over_seeds and (left := len(results) - sum(map(is_finished, results))):
        warn(f"in no mean, because they have not finished with a loss: {left} of {len(results)} runs")
    if beside := sum(map(has_disturbed_speed, results)):
        warn(f"the speeds of {beside} of {len(results)} runs were measured while the machine was busy")
    if conditions := differing_conditions(results):
        warn(f"losses can be compared only between runs with the same {', '.join(conditions)}")
    for line in remarks(results):
        warn(line)
    if format in ("table", "markdown", "latex"):
        if over_seeds:
            _say_why(tables)
        for number, rows in enumerate(tables):
            if number:
                print()
            shown = _for_people(rows) if over_seeds else rows
            if format == "latex":
                print(as_latex(shown), end="")
            else:
                show(shown, format)
        return
    columns = list(dict.fromkeys(column for rows in tables for column in rows[0]))
    show([{column: row.get(column) for column in columns} for rows in tables for row in rows], format)


def _check_baseline(baseline: Sequence[str], over_seeds: bool) -> None:
    for item in baseline:
        if not over_seeds:
            raise Mistake(f"--baseline {item}: needs --over-seeds")
        if "=" not in item:
            raise Mistake(f"--baseline {item}: must be KEY=VALUE", "such as variant=multi_head")


def _say_why(tables: list[list[Row]]) -> None:
    """The reasons for verdicts, which have no room in a table for people, on stderr."""
    with first_lines(warn) as say:
        for row in chain.from_iterable(tables):
            if row["why"]:
                say(f"{row['configuration']}: {row['verdict']}: {row['why']}")


def _for_people(rows: list[Row]) -> list[Row]:
    """Rows of configurations with each mean and its deviation, and each difference and its interval, in one column.

    Columns without any value are left out, and sizes of heads that follow from the others.
    """
    merged = [_merged(row) for row in rows]
    kept = [key for key in merged[0] if any(row[key] is not None for row in merged) and not _follows(key, merged)]
    return [{key: row[key] for key in kept} for row in merged]


def _follows(column: str, rows: list[Row]) -> bool:
    """Whether a column is the size of a head of which all together are as wide as the model."""
    is_size = column in ("key_size", "value_size")
    return is_size and all(row[column] and row[column] * row["heads"] == row["hidden_size"] for row in rows)


def _merged(row: Row) -> Row:
    texts = {
        column: f"{readable(column, row[column])} +- {readable(column, row[column + DEVIATION])}"
        for column in row
        if row.get(column + DEVIATION) is not None
    }
    if row["difference"] is not None:
        low, high = row["difference_low"], row["difference_high"]
        texts["difference"] = difference_text(row["difference"], None if low is None else (low, high))
    others = ("configuration", "difference_low", "difference_high", "why")
    return {key: texts.get(key, row[key]) for key in row if key not in others and not key.endswith(DEVIATION)}


def sorted_tables(sort: str, tables: list[list[Row]]) -> list[list[Row]]:
    """Sort each table by a column, if it has it; `-column` puts the largest first.

    Raises Mistake if no table has it.
    """
    column = sort.lstrip("-")
    known = dict.fromkeys(column for rows in tables for column in rows[0])
    if column not in known:
        hint = f"there are: {', '.join(known)}"
        raise Mistake(f"--sort {column}: there is no such column" + did_you_mean(column, known), hint)
    return [sorted_by(sort, rows) if column in rows[0] else rows for rows in tables]


def sorted_by(sort: str, rows: list[Row]) -> list[Row]:
    """Sort rows by a column that they have; `-column` puts the largest first. Rows without a value stand last."""
    descending, column = sort.startswith("-"), sort.lstrip("-")
    known = [row for row in rows if row[column] is not None]
    unknown = [row for row in rows if row[column] is None]
    return sorted(known, key=lambda row: _orderable(row[column]), reverse=descending) + unknown


def _orderable(value: Any) -> tuple[int, Any]:
    return (0, value) if isinstance(value, int | float) else (1, str(value))
