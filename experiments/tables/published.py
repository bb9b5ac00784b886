"""What a paper printed, with where each number comes from; a number that nobody here has read stays null."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import model_validator

from experiments.settings.group import Group, Size, Text
from experiments.settings.mistake import Mistake, nearest
from experiments.tables.definition import PUBLISHED, TABLES, checked

Verification = Literal["primary", "secondary", "text_only", "derived", "none", "user"]

# what stands behind a number, and what the mark means
MARKS: dict[str, tuple[str, str]] = {
    "primary": ("p", "read in the paper, or in its authors' repository"),
    "secondary": ("s", "a third party's transcription"),
    "text_only": ("t", "a sentence of the text"),
    "derived": ("d", "computed from the paper's formula"),
    "none": ("-", "not transcribed"),
    "user": ("u", "from the file given with --published"),
}


class PublishedTable(Group):
    setup: Text
    verification: Verification
    copies: Size | None = None  # transcriptions that were seen, of a secondary one
    source: Text
    metrics: list[Text]  # METRIC_pm, beside METRIC, is what the paper gives after +-
    rows: dict[Text, dict[Text, int | float | None]]

    @model_validator(mode="after")
    def _known_metrics(self) -> PublishedTable:
        allowed = {*self.metrics, *(f"{metric}_pm" for metric in self.metrics)}
        for row, numbers in self.rows.items():
            for metric in numbers:
                if metric not in allowed:
                    raise ValueError(f"rows.{row}: there is no metric {metric!r}" + nearest(metric, allowed))
        return self


class Paper(Group):
    paper: Text
    tables: dict[Text, PublishedTable]


@dataclass(frozen=True)
class Number:
    """One printed number; value None: not transcribed."""

    value: float | None
    spread: float | None  # after +-
    mark: str


class Published:
    """A published table as the rows of ours ask for it."""

    def __init__(self, table: PublishedTable, given: dict[str, dict[str, float]]) -> None:
        self._table, self._given = table, given

    @property
    def metrics(self) -> list[str]:
        return self._table.metrics

    @property
    def source(self) -> str:
        """The set-up and provenance in a sentence."""
        copies = f", {self._table.copies} seen" if self._table.copies else ""
        return f"{self._table.setup}; {MARKS[self._table.verification][1]}{copies}: {self._table.source}"

    def number(self, row: str, metric: str) -> Number:
        if metric in self._given.get(row, {}):
            return Number(self._given[row][metric], self._given[row].get(f"{metric}_pm"), MARKS["user"][0])
        numbers = self._table.rows[row]
        value = numbers.get(metric)
        mark = MARKS["none" if value is None else self._table.verification][0]
        return Number(value, numbers.get(f"{metric}_pm"), mark)

    def check(self, rows: list[str], metric: str) -> None:
        """Raises Mistake for a row or metric that isn't there."""
        for name, known in [*((row, list(self._table.rows)) for row in rows), (metric, self.metrics)]:
            if name not in known:
                raise Mistake(f"the published table has no {name!r}" + nearest(name, known), f"it has {known}")


def read(name: str, table: str, file: Path | None) -> Published:
    """The published table behind `PAPER/NAME`, with the numbers of the user's file in place. Raises Mistake."""
    path = TABLES / name.split("/")[0] / f"{PUBLISHED}.yaml"
    paper: Paper = checked(Paper, yaml.safe_load(path.read_text(encoding="utf-8")), f"{path.parent.name}/{path.name}")
    if table not in paper.tables:
        raise Mistake(f"{path.parent.name}/{path.name} has no table {table!r}" + nearest(table, paper.tables))
    return Published(paper.tables[table], _given(file, table, paper) if file else {})


def _given(file: Path, table: str, paper: Paper) -> dict[str, dict[str, float]]:
    """The numbers of one table in a file of the same form as `published.yaml`, of which only the rows are needed."""
    known = paper.tables[table]
    try:
        tree = yaml.safe_load(file.read_text(encoding="utf-8"))
        tables = {str(key): value for key, value in tree["tables"].items()}
        rows = tables.get(table, {"rows": {}})["rows"]
        numbers = {
            str(row): {str(key): value for key, value in found.items() if value is not None}
            for row, found in rows.items()
        }
    except (OSError, UnicodeDecodeError) as error:
        raise Mistake(f"--published {file}: {getattr(error, 'strerror', None) or error}") from error
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        hint = 'tables: {"1": {rows: {mh6: {ln_ppl: NUMBER}}}}, as in the conf/table/PAPER/published.yaml of the paper'
        raise Mistake(f"--published {file}: holds no tables", hint) from error
    for name in tables:
        _check(file, "the paper", name, paper.tables)
    for row, found in numbers.items():
        _check(file, f"table {table}", row, known.rows)
        for metric, value in found.items():
            _check(file, f"table {table}, row {row}", metric.removesuffix("_pm"), known.metrics)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise Mistake(f"--published {file}: {row}.{metric} = {value!r}: must be a number")
    return numbers


def _check(file: Path, where: str, name: str, known: Any) -> None:
    if name not in known:
        raise Mistake(f"--published {file}: {where} has no {name!r}" + nearest(name, known), f"it has {list(known)}")
