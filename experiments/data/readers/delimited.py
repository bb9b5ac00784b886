"""Local CSV and TSV files with a header.

The reader is Python's own `csv`: it knows the line of each row and leaves cells as they are. pandas, through which
`datasets` reads such files, guesses types, takes the words NA and None for missing values, and fills short rows.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from experiments.data.errors import DataError
from experiments.data.readers.files import whole_text
from experiments.failures.wording import plural

QUOTED_QUOTE = re.compile(r'"(?:[^"]|"")*""(?:[^"]|"")*"')  # a cell that a writer of CSV has quoted


class Form(NamedTuple):
    """How cells are divided, and the rule that a wrong row breaks."""

    delimiter: str
    has_quotes: bool  # around a cell; else a quote is a character like any other
    rule: str


FORMS = {
    ".csv": Form(",", True, "a text with a comma, a quote or a line end must be in quotes, and a quote in it doubled"),
    # as in GLUE
    ".tsv": Form(
        "\t", False, "in a .tsv file a quote is part of the text, which has no tab or line end; .csv allows all of them"
    ),
}


def rows(path: Path, check: Callable[[str, list[str]], list[str]]) -> Iterator[tuple[str, dict[str, str]]]:
    """Each row after its place, the file and the line; it has the columns that `check(where, names)` picks.

    The first line names the columns. Raises DataError.
    """
    form = FORMS[path.suffix]
    lines = _lines(path, form)
    where, header = next(lines, (f"{path}, line 1", []))
    columns = check(f"{where}, which must name the columns,", header)
    for where, cells in lines:
        if len(cells) != len(header):
            found = f"{len(cells)} {plural('cell', len(cells))}"
            raise DataError(f"{where} has {found}, and the header names {len(header)} columns; {form.rule}")
        named = dict(zip(header, cells, strict=True))
        row = {column: named[column] for column in columns}
        for column, cell in row.items():
            if not form.has_quotes and QUOTED_QUOTE.fullmatch(cell):
                raise DataError(f"{where}: column {column} is quoted as in CSV; {form.rule}")
        yield where, row


def _lines(path: Path, form: Form) -> Iterator[tuple[str, list[str]]]:
    """The cells of each row that is not blank, after the line in which the row begins."""
    # line ends inside of quotes stay as they are
    text = io.StringIO(whole_text(path), newline="")
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if form.has_quotes else csv.QUOTE_NONE
    lines = csv.reader(text, delimiter=form.delimiter, quoting=quoting, strict=True)
    first = 1
    try:
        for cells in lines:
            if cells:
                yield f"{path}, line {first}", cells
            first = lines.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}, line {first}: {error}; {form.rule}") from error
