"""The interface of an objective's settings, which the rest of the program reads.

The kinds are in `experiments/objectives/kinds/`, one file each. `experiments/objectives/objective.py` explains how to
write one.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from typing import ClassVar

from typing_extensions import Self

from experiments.failures.failure import Mistake
from experiments.failures.wording import did_you_mean
from experiments.settings.group import Group
from experiments.settings.plugins import module_file

ARCHITECTURES = "experiments.model.architectures"  # the package; it lies above the settings, which know its name only


class ObjectiveSettings(Group):
    """The keys of an objective, and its requirements for the data and the model; lengths in tokens."""

    architecture: ClassVar[str]  # the model that it trains, a file of experiments/model/architectures
    reads_targets: ClassVar[bool] = True  # the model is given what it predicts, hidden by what may attend to it
    reads_pairs: ClassVar[bool] = False  # its data are pairs, of a source and a target sentence
    # the settings by which its model writes texts, for which it is scored too; without one it writes none
    generation_keys: ClassVar[tuple[str, ...]] = ()
    pads: ClassVar[bool] = False  # rows are filled up with padding: how much, only the text says

    kind: str

    def row_length(self, length: int) -> int:
        """Tokens of a row of the packed data, for sequences of `length`."""
        return length

    def tokens_read(self, length: int) -> int | None:
        """Tokens of a row that the model reads, on all its sides, padding apart; None where only the text says."""
        return None if self.pads else length

    def sentinel_count(self) -> int:
        """Special tokens that the vocabulary has for the objective."""
        return 0

    def check(self, length: int) -> None:
        """Raise ValueError, as validators do, for sequences of a length that the objective can't use."""

    def measured(self) -> list[str]:
        """The numbers of a result that the objective gives and other objectives do not, `text_scores.NAME` by name."""
        return []

    def check_scorer(self, setting: str) -> None:
        """Raise Mistake, naming the `setting` that asks for scores, where the library that computes them is missing."""

    def without_generation(self) -> Self:
        """The same objective in a run that, when it ends, is scored by its loss alone and generates no text."""
        return self


def architecture_of(objective: type[ObjectiveSettings]) -> str:
    """The architecture that an objective names. Raises Mistake if it has no file."""
    name: str = getattr(objective, "architecture", "")
    known = _files_in(tuple(import_module(ARCHITECTURES).__path__))
    if name not in known:
        module = objective.__module__
        file = module_file(module) or "/".join(module.split(".")) + ".py"
        must = f"must be one of {', '.join(known)}{did_you_mean(name, known)}"
        raise Mistake(f"{file}: architecture = {name!r}: {must}")
    return name


@cache
def _files_in(folders: tuple[str, ...]) -> list[str]:
    """The names of their modules. To read the folders would take about as long as the rest of a digest of code."""
    return sorted(module.name for module in pkgutil.iter_modules(folders))
