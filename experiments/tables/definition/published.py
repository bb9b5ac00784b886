"""The numbers that a paper printed, each with its provenance. A number that could not be read is null."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import model_validator

from experiments.failures.failure import Mistake
from experiments.failures.wording import did_you_mean
from experiments.files.written_yaml import read_yaml
from experiments.settings.group import Group, Size, Text
from experiments.tables.definition import folder
from experiments.tables.definition.request import Request

Verification = Literal["primary", "secondary", "text_only", "derived", "none", "user"]

# the provenance of a number, with the meaning of its mark
MARKS: dict[str, tuple[str, str]] = {
    "primary": ("p", "read in the paper, or in its authors' repository"),
    "secondary": ("s", "a third party's transcription"),
    "text_only": ("t", "a sentence of the text"),
    "derived": ("d", "computed from the paper's formula"),
    "none": ("-", "not transcribed"),
    "user": ("u", "from the file given with --published"),
}


class PublishedTable(Group):
    """A table as the paper printed it."""

    setup: Text
    verification: Verification
    copies: Size | None = None  # number of transcriptions that were seen, for a secondary number
    source: Text
    metrics: list[Text]  # METRIC_pm beside METRIC is the number that the paper prints after +-
    rows: dict[Text, dict[Text, int | float | None]]

    @model_validator(mode="after")
    def _known_metrics(self) -> PublishedTable:
        if self.copies and self.verification != "secondary":
            raise ValueError(f"copies: numbers that are {self.verification} have none; only secondary ones do")
        allowed = {*self.metrics, *(f"{metric}_pm" for metric in self.metrics)}
        for row, numbers in self.rows.items():
            for metric in numbers:
                if metric not in allowed:
                    raise ValueError(f"rows.{row}: there is no metric {metric!r}" + did_you_mean(metric, allowed))
        return self


class Paper(Group):
    """The numbers that a paper printed: `published.yaml`."""

    paper: Text
    tables: dict[Text, PublishedTable]


@dataclass(frozen=True)
class PublishedNumber:
    """One printed number; its value is None if it was not transcribed."""

    value: float | None
    spread: float | None  # after +-
    mark: str


class Published:
    """A published table, looked up by our rows, in which the user's numbers replace its own."""

    def __init__(self, table: PublishedTable, user_numbers: dict[str, dict[str, float]]) -> None:
        self._table, self._user_numbers = table, user_numbers

    @property
    def metrics(self) -> list[str]:
        """The names of the numbers that the paper gives for a row."""
        return self._table.metrics

    @property
    def source(self) -> str:
        """The set-up and provenance in a sentence."""
        copies = f", {self._table.copies} seen" if self._table.copies else ""
        return f"{self._table.setup}; {MARKS[self._table.verification][1]}{copies}: {self._table.source}"

    def number(self, row: str, metric: str) -> PublishedNumber:
        """The number that is printed for a row of the published table."""
        if metric in self._user_numbers.get(row, {}):
            numbers: Mapping[str, float | None] = self._user_numbers[row]
            return PublishedNumber(numbers[metric], numbers.get(f"{metric}_pm"), MARKS["user"][0])
        numbers = self._table.rows[row]
        value = numbers.get(metric)
        mark = MARKS["none" if value is None else self._table.verification][0]
        return PublishedNumber(value, numbers.get(f"{metric}_pm"), mark)

    def check(self, rows: list[str], metric: str) -> None:
        """Raises Mistake for a row or a metric that the published table lacks."""
        for name, known in [*((row, list(self._table.rows)) for row in rows), (metric, self.metrics)]:
            if name not in known:
                raise Mistake(f"the published table has no {name!r}" + did_you_mean(name, known), f"it has {known}")


def published_of(request: Request) -> Published | None:
    """The published table that the rows of a request are compared with, checked; None if there is none.

    Raises Mistake, also for a user's file that is wrong, or that is given for a table without published numbers.
    """
    printed = request.printed
    if printed is None:
        if request.published_file:
            raise Mistake(f"--published {request.published_file}: {request.name} has no published numbers")
        return None
    published = read(request.name, printed.table, request.published_file)
    published.check([row.published for row in request.table.rows.values() if row.published], printed.metric)
    return published


def read(name: str, table: str, file: Path | None) -> Published:
    """The published table behind `PAPER/NAME`, with the numbers of the user's file filled in. Raises Mistake."""
    file_name = folder.published_file(name)
    paper = folder.read(file_name, Paper)
    if table not in paper.tables:
        raise Mistake(f"{file_name}.yaml has no table {table!r}" + did_you_mean(table, paper.tables))
    return Published(paper.tables[table], _user_numbers(file, table, paper) if file else {})


def _user_numbers(file: Path, table: str, paper: Paper) -> dict[str, dict[str, float]]:
    """The numbers of one table in a file of the same form as `published.yaml`; such a file needs only the rows."""
    try:
        tree = read_yaml(file, f"--published {file}")
        tables = {str(key): value for key, value in tree["tables"].items()}
        numbers = {
            str(row): {str(metric): value for metric, value in by_metric.items() if value is not None}
            for row, by_metric in tables.get(table, {"rows": {}})["rows"].items()
        }
    except OSError as error:
        raise Mistake(f"--published {file}: {error.strerror or error}") from error
    except (KeyError, TypeError, AttributeError) as error:
        hint = 'tables: {"1": {rows: {mh6: {ln_ppl: NUMBER}}}}, as in the conf/table/PAPER/published.yaml of the paper'
        raise Mistake(f"--published {file}: contains no tables", hint) from error
    for name in tables:
        _check_known(file, "the paper", name, paper.tables)
    for row, by_metric in numbers.items():
        _check_known(file, f"table {table}", row, paper.tables[table].rows)
        for metric, value in by_metric.items():
            known = paper.tables[table].metrics
            _check_known(file, f"table {table}, row {row}", metric.removesuffix("_pm"), known)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise Mistake(f"--published {file}: {row}.{metric} = {value!r}: must be a number")
    return numbers


def _check_known(file: Path, where: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        raise Mistake(
            f"--published {file}: {where} has no {name!r}" + did_you_mean(name, known), f"it has {list(known)}"
        )
