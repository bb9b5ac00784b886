"""`attn compare`: finished runs side by side, from their result files alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from experiments.display.rows import Row, show
from experiments.failures.failure import Mistake
from experiments.failures.wording import did_you_mean
from experiments.processes.collection import without_collection
from experiments.record.folder import RESULT
from experiments.record.result import Fields
from experiments.results.checked import first_lines, marked_result
from experiments.results.columns import tables_of
from experiments.results.comparability import differing_conditions, remarks, shared_its_machine
from experiments.results.find import where
from experiments.results.index import Index
from experiments.results.selection import matching, named_folders, without_match


@without_collection()
def compare_runs(selection: list[str], runs: Path, sort: str, format: str) -> None:
    """Print the runs that are named or that match every key=value; without either, all finished runs.

    Raises Mistake.
    """
    ended = ended_results(runs, selection)
    results = matching(selection, ended)
    tables = tables_of(results)
    if not tables:
        hint = "" if ended else "attn train makes one; --runs names another folder"
        raise Mistake(f"no finished run {where(runs)}{without_match(selection, ended)}", hint)
    tables = sorted_tables(sort, tables)
    if beside := sum(map(shared_its_machine, results)):
        print(f"tokens_per_second of {beside} of {len(results)} runs were measured beside other work", file=sys.stderr)
    if conditions := differing_conditions(results):
        print(f"losses can be compared only between runs with the same {', '.join(conditions)}", file=sys.stderr)
    for line in remarks(results):
        print(line, file=sys.stderr)
    if format in ("table", "markdown"):
        for number, rows in enumerate(tables):
            if number:
                print()
            show(rows, format)
        return
    columns = list(dict.fromkeys(column for rows in tables for column in rows[0]))
    show([{column: row.get(column) for column in columns} for rows in tables for row in rows], format)


def ended_results(runs: Path, selection: list[str]) -> list[Fields]:
    """`result.json` of each run that is named; if none is, of all runs that have ended.

    Raises Mistake for a named run that has not ended.
    """
    with Index(runs) as index, first_lines(_say) as say:
        named = named_folders(selection, runs)
        return list(_results(named, index, say) if named else _ended(index, say))


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


def _ended(index: Index, say: Callable[[str], None]) -> Iterator[Fields]:
    """The results of the runs that have ended, by name."""
    return (result for folder in index.folders() if (result := marked_result(folder, index, say)) is not None)


def _results(folders: list[Path], index: Index, say: Callable[[str], None]) -> Iterator[Fields]:
    for folder in folders:
        result = marked_result(folder, index, say)
        if result is None:
            raise Mistake(
                f"{folder}: the run has not finished; there is no {RESULT}",
                "the command that began the run continues it",
            )
        yield result


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _orderable(value: Any) -> tuple[int, Any]:
    return (0, value) if isinstance(value, int | float) else (1, str(value))
