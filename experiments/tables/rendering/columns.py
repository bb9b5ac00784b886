"""The rows of a report as one table for people that fits on a page. The CSV has the exact numbers."""

from __future__ import annotations

import math

from experiments.display.numbers import difference_text, rounded
from experiments.display.rows import Row
from experiments.tables.line import Line
from experiments.tables.partial_seeds import SIGN
from experiments.tables.report import Report

HEADS = ("h_k", "h", "h_v")
MOST_COLUMNS = 9  # of a table; with more, its numbers could not be read on a page
NAMES = ("row", "positions")
# besides published numbers, the columns of a second table
BESIDE = ("rank (paper's)", "parameters", "step", "memory_bytes")


def readable_table(report: Report) -> list[Row]:
    """A row for each configuration. Columns without any value are left out."""
    rows = [_row(line, report) for line in report.lines]
    keys = [key for key in rows[0] if any(row[key] is not None for row in rows)]
    return [{key: row[key] for key in keys} for row in rows]


def divided(rows: list[Row]) -> list[list[Row]]:
    """The rows as one table; if it had many columns, as two: the scores, and published numbers and costs.

    The second one begins with the names of the rows.
    """
    keys = list(rows[0])
    beside = [key for key in keys if key in BESIDE or key.startswith("published ")]
    if len(keys) <= MOST_COLUMNS or not beside:
        return [rows]
    tables = [key for key in keys if key not in beside], [key for key in keys if key in (*NAMES, *beside)]
    return [[{key: row[key] for key in columns} for row in rows] for columns in tables]


def _row(line: Line, report: Report) -> Row:
    row: Row = {"row": line.row, "positions": line.scheme or None, "what": line.label}
    sizes, measured = line.given, line.measured
    row |= {"heads": sizes.get("heads", _heads(line)), "d_k": sizes.get("d_k"), "d_v": _value_size(line, report)}
    row |= {report.score: _mean(line)}
    row |= {name: value for name, value in measured.own.items() if name not in row}
    row |= {"seeds": line.seeds or None, "difference": _difference(line), "unigram_loss": _unigram(line, report)}
    row |= _published(line, report)
    row |= {"parameters": measured.parameters, "step": _step(line, report), "memory_bytes": measured.peak_memory_bytes}
    unfinished = line.state if line.state != "done" else None
    row["mark"] = "; ".join(filter(None, [line.mark, unfinished])) or None
    return row


def _heads(line: Line) -> str | None:
    """One number if h_k, h and h_v agree, else all three; None for a row without a model."""
    counts = [line.given[key] for key in HEADS if line.given.get(key) is not None]
    return "/".join(map(str, dict.fromkeys(counts) if len(set(counts)) == 1 else counts)) or None


def _value_size(line: Line, report: Report) -> int | None:
    """The width of the values, if it differs from that of the keys in any row."""
    differs = any(other.given.get("d_v") != other.given.get("d_k") for other in report.lines)
    return line.given.get("d_v") if differs else None


def _mean(line: Line) -> str | None:
    """The mean with its standard error, and a sign if it lacks some seeds."""
    if line.score is None:
        return None
    spread = f" +- {rounded(line.standard_error)}" if line.standard_error is not None else ""
    return f"{rounded(line.score)}{spread}" + (f" {SIGN}" if line.of_seeds else "")


def _difference(line: Line) -> str | None:
    if line.difference is None:
        return None
    return difference_text(line.difference, line.interval) + (f" {SIGN}" if line.difference_of_seeds else "")


def _unigram(line: Line, report: Report) -> float | None:
    """The unigram loss, if rows differ in it; otherwise the legend has it."""
    distinct = {other.unigram_loss for other in report.lines} - {None}
    return line.unigram_loss if len(distinct) > 1 else None


def _published(line: Line, report: Report) -> Row:
    """The printed numbers with spread and mark, and our rank beside the paper's."""
    row: Row = {}
    for metric, number in report.printed.get(line.row, {}).items():
        spread = f" +- {number.spread:g}" if number.spread is not None else ""
        row[f"published {metric}"] = None if number.value is None else f"{number.value:g}{spread} ({number.mark})"
    for numbers in report.printed.values():
        row |= {f"published {metric}": None for metric in numbers if f"published {metric}" not in row}
    beside = line.beside_printed
    row["rank (paper's)"] = f"{beside.rank} ({beside.published_rank})" if beside.rank else None
    return row


def _step(line: Line, report: Report) -> str | None:
    """The time of a step, and its ratio to the baseline's with the interval of the ratio."""
    seconds, ratio = line.measured.step_seconds, line.measured.step_time
    if not seconds:
        return None
    time, baseline = f"{1000 * seconds:.0f} ms", report.request.table.baseline
    if not ratio or line.row == baseline:
        return time
    bounds = report.step_ratio_interval(line.row, baseline, line.scheme)
    between = f" [{math.exp(bounds[0]):.2f}, {math.exp(bounds[1]):.2f}]" if bounds else ""
    return f"{time} (x{ratio:.2f}{between})"
