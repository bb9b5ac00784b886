"""Rows of plain values as a terminal table, Markdown, CSV or JSON."""

from __future__ import annotations

import csv
import functools
import io
import textwrap
from typing import Any, Literal

from rich.columns import Columns
from rich.console import Console
from rich.table import Table
from rich.text import Text

from experiments.display.numbers import megabytes, rough_duration
from experiments.failures.wording import as_typed
from experiments.files.durable import to_json

Row = dict[str, Any]

SENTENCE = 20  # columns that a sentence gets at least
PROSE = 32  # letters of a value in several words from which it is a sentence and may be broken
# more are no use to the eye, and take seconds to lay out
TERMINAL_ROWS = 500


def show(rows: list[Row], format: str, caption: str = "", console: Console | None = None) -> None:
    """Print rows that share their keys: rounded for people (table, markdown), exact for programs (csv, json)."""
    if format == "json":
        print(to_json(rows, indent=2))
    elif format == "csv":
        print(as_csv(rows), end="")
    elif format == "markdown":
        print(as_markdown(rows))
    else:
        _print_table(rows, caption, console or Console())


def as_csv(rows: list[Row]) -> str:
    """Rows as CSV text under a header of their keys."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_markdown(rows: list[Row]) -> str:
    """Rows as a table in Markdown, numbers aligned right; nothing for no rows."""
    if not rows:
        return ""
    keys = list(rows[0])
    rule = ["---:" if is_number_column(rows, key) else "---" for key in keys]
    cells = ([" ".join(readable(key, row[key]).split("\n")).replace("|", "\\|") for key in keys] for row in rows)
    lines = [map(title, keys), rule, *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def readable(key: str, value: Any) -> str:
    """A value in a form for people, with its unit if the key has one."""
    if value is None:
        return "-"
    if key.endswith("_bytes"):
        return megabytes(value)
    if key == "seconds":
        return rough_duration(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return as_typed(value)
    if isinstance(value, float) and _is_setting(key):
        # what is measured is rounded; a setting must tell the runs apart, and be as it was typed
        return as_typed(value)
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    if 0 < abs(value) < 1e-3:
        return f"{value:.4g}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.4f}"


@functools.cache
def _is_setting(key: str) -> bool:
    """Whether a column has a setting, of a group or outside of groups."""
    from experiments.settings.run import Settings

    return "." in key or key in Settings.model_fields


def is_number_column(rows: list[Row], key: str) -> bool:
    """Whether a column contains numbers, which are aligned on the right."""
    return any(isinstance(row[key], int | float) for row in rows)


def shared_by(rows: list[Row]) -> Row:
    """The columns in which several rows have the same value, which can be said once; none for a single row."""
    return {key: value for key, value in rows[0].items() if len(rows) > 1 and all(row[key] == value for row in rows)}


def title(key: str) -> str:
    """The title of a column for people; its values have the unit."""
    return key.removesuffix("_bytes")


def _print_table(rows: list[Row], caption: str, console: Console) -> None:
    # a pipe has no width to fit into: keep each row on one line, and all rows
    if not console.is_terminal:
        print(*_padded(rows), *([caption] if caption else []), sep="\n", file=console.file)
        return
    if len(rows) > TERMINAL_ROWS:
        caption = f"{caption}\nthe first {TERMINAL_ROWS} of {len(rows):,} rows; a pipe or --format csv has all".strip()
        rows = rows[:TERMINAL_ROWS]
    whole = _table(rows, caption)
    if _fits(whole, console):
        console.print(whole)
        return
    # too wide: what all rows share is said once, above, then the longest text goes under its row; at the worst a block
    shared = shared_by(rows)
    rest = [{key: row[key] for key in row if key not in shared} for row in rows]
    if shared:
        console.print(_block(shared), "")
    table = _table(rest, caption, broken="_\n")
    if _fits(table, console):
        console.print(table)
        return
    if longest := _longest(rest):
        table = _table([{key: row[key] for key in row if key != longest} for row in rest], "", broken="_\n", whole=True)
        if _fits(table, console):
            _print_with_texts(table, [readable(longest, row[longest]) for row in rest], caption, console)
            return
    for row in rest:
        console.print(_block(row), "")
    if caption:
        console.print(caption, markup=False, highlight=False)


def _longest(rows: list[Row]) -> str | None:
    """The column with the longest text, except the first; None if there is none."""
    texts = [key for key in [*rows[0]][1:] if not is_number_column(rows, key)]
    return max(texts, key=lambda key: max(len(readable(key, row[key])) for row in rows), default=None)


def _print_with_texts(table: Table, texts: list[str], caption: str, console: Console) -> None:
    """A table with a text under each of its rows. A name stays whole, in the form that other commands take."""
    with console.capture() as captured:
        console.print(table)
    lines = captured.get().splitlines()
    paragraph = textwrap.TextWrapper(console.width, "  ", "  ", break_long_words=False, break_on_hyphens=False)
    below = [paragraph.fill(text) for text in texts]
    rows = [f"{line}\n{text}" for line, text in zip(lines[-len(texts) :], below, strict=True)]
    print(*lines[: -len(texts)], *rows, *([caption] if caption else []), sep="\n", file=console.file)


def _fits(table: Table, console: Console) -> bool:
    return console.measure(table, options=console.options.update(width=1000)).minimum <= console.width


def _block(row: Row) -> Columns:
    # a name that is longer than a line continues on the next one
    texts = [Text(f"{title(key)} {readable(key, value)}", overflow="fold") for key, value in row.items()]
    return Columns(texts, padding=(0, 3))


def _padded(rows: list[Row]) -> list[str]:
    """One line for each row, with columns padded to their widest value."""
    columns = []
    for key in rows[0] if rows else []:
        column = [title(key), *_texts(key, [row[key] for row in rows])]
        width, right = max(map(len, column)), is_number_column(rows, key)
        columns.append([value.rjust(width) if right else value.ljust(width) for value in column])
    return ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]


def _texts(key: str, values: list[Any]) -> list[str]:
    """Each value in a form for people. Most columns repeat a few values, so a value is formatted once."""
    formatted = functools.lru_cache(maxsize=None, typed=True)(functools.partial(readable, key))
    try:
        return list(map(formatted, values))
    except TypeError:  # a list cannot be a key of the cache
        return [readable(key, value) for value in values]


def _table(rows: list[Row], caption: str, broken: str = "_", whole: bool = False) -> Table:
    """The table. `broken` replaces _ in the titles; `whole`: rows of one line, whatever they say, with narrow gaps."""
    gaps = (0, 1, 0, 0) if whole else (0, 1)
    below = Text(caption) if caption else None
    table = Table(box=None, header_style="bold", caption=below, caption_justify="left", pad_edge=False, padding=gaps)
    for key in rows[0] if rows else []:
        # sentences may take several lines; numbers, their intervals and names stay in one
        texts = [readable(key, row[key]) for row in rows]
        is_prose = not whole and any(" " in text and len(text) > PROSE for text in texts)
        width = SENTENCE if is_prose else max(map(len, texts))
        side: Literal["left", "right"] = "right" if is_number_column(rows, key) else "left"
        table.add_column(title(key).replace("_", broken), justify=side, min_width=width)
    for row in rows:
        table.add_row(*(Text(readable(key, value)) for key, value in row.items()))
    return table
