"""A section of the page of `attn heads`: the result of a measure of the heads, in words, figures and numbers."""

# L layers, H heads, N queries, M memory

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow
from matplotlib.figure import Figure

from experiments.heads import figures
from experiments.heads.figures import Array
from experiments.heads.measures.pruning import Head
from experiments.heads.options import HeadsOptions
from experiments.heads.parts import Part, parts_of
from experiments.heads.trained_run import TrainedRun
from experiments.model.transformer import Transformer


class Maps(NamedTuple):
    """The attention maps of one text."""

    queries: Sequence[str]  # the tokens that attend
    memory: Sequence[str]  # the tokens that they attend to
    layers: Sequence[Array]  # [H, N, M] of each layer


@dataclass(frozen=True)
class Section:
    """The content of the page about one measure."""

    title: str
    text: str  # the findings, in a few sentences
    figures: dict[str, Figure] = field(default_factory=dict)  # by file name
    # by file name; a large one is made of arrays
    tables: Mapping[str, list[dict[str, Any]] | pyarrow.Table] = field(default_factory=dict)
    maps: dict[str, Maps] | None = None  # of the page's viewer, by title
    # models to be written without these heads, by folder name
    models: dict[str, tuple[TrainedRun, list[Head]]] = field(default_factory=dict)


class Column(NamedTuple):
    """A run on the page."""

    name: str
    about: str  # a line
    sections: Sequence[Section]


# measures a run and makes its section; None if the run has nothing of its kind
SectionMaker = Callable[[TrainedRun, HeadsOptions], Section | None]


class Findings(NamedTuple):
    """What a measure finds in one part of a model."""

    figures: dict[str, Figure]  # by file name
    tables: dict[str, list[dict[str, Any]]]  # by file name
    text: str = ""


def over_parts(model: Transformer, measure: Callable[[Part], Findings]) -> Findings:
    """The findings in all parts of a model together.

    If there are several parts, each has its title before its text and above its figures, its name at the end of their
    file names, and its name in the column `attention` of the tables.
    """
    together, texts = Findings({}, {}), []
    for part in parts_of(model):
        found = measure(part)
        for name, figure in found.figures.items():
            together.figures[part.of(name)] = figures.titled(figure, part.title)
        for name, rows in found.tables.items():
            together.tables.setdefault(name, []).extend(_row_of(part, row) for row in rows)
        if found.text:
            texts.append(f"{part.title}: {found.text}" if part.title else found.text)
    return together._replace(text=" ".join(texts))


def _row_of(part: Part, row: dict[str, Any]) -> dict[str, Any]:
    """The row with the column `attention`, if it has one, before `layer`: together they name a head."""
    before = {name: row[name] for name in itertools.takewhile(lambda name: name != "layer", row)}
    return before | part.row | row


def layer_head_matrix(rows: list[dict[str, Any]], name: str) -> npt.NDArray[np.float64]:
    """The numbers of one column in the rows of a table, as a matrix [L, H]; nan where a layer has fewer heads."""
    matrix = np.full((max(row["layer"] for row in rows), max(row["head"] for row in rows)), np.nan)
    for row in rows:
        matrix[row["layer"] - 1, row["head"] - 1] = row[name]
    return matrix
