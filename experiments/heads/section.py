"""What a section of the report is, and what the reader can ask for."""

# L layers, H heads

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from experiments.heads.measures.pruning import Head
from experiments.heads.measures.syntax import Tree
from experiments.heads.trained_run import Subject


@dataclass(frozen=True)
class Options:
    """What the reader asks for."""

    sentence: str | None = None  # whose maps are shown; None: the start of the held-out text
    trees: Sequence[Tree] | None = None  # of a treebank, for syntactic heads
    equal_steps: int | None = None  # of the experiment with heads that start equal; None: not made
    gate_steps: int | None = None  # of fine-tuning with gates on the heads; None: not made
    penalty: float = 0.02  # nats for each head that is open


@dataclass(frozen=True)
class Section:
    title: str
    text: str  # what is seen, in a few sentences
    figures: dict[str, Figure] = field(default_factory=dict)  # by file name
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # by file name
    maps: dict[str, Any] | None = None  # what the page's viewer of maps shows
    models: dict[str, tuple[Subject, list[Head]]] = field(default_factory=dict)  # to be written without these heads


# measures a run and says what was found; None where there is nothing of its kind
Make = Callable[[Subject, Options], Section | None]


def by_layer(rows: list[dict[str, Any]], name: str) -> npt.NDArray[np.float64]:
    """[L, H], nan where a layer has fewer heads."""
    matrix = np.full((max(row["layer"] for row in rows), max(row["head"] for row in rows)), np.nan)
    for row in rows:
        matrix[row["layer"] - 1, row["head"] - 1] = row[name]
    return matrix
