"""The interface of an objective's settings, which the rest of the program reads.

The kinds are in `experiments/objectives/kinds/`, one file each. `experiments/objectives/objective.py` explains how to
write one.
"""

from __future__ import annotations

from typing import ClassVar

from typing_extensions import Self

from experiments.settings.group import Group


class ObjectiveSettings(Group):
    """The keys of an objective, and its requirements for the data and the model; lengths in tokens."""

    architecture: ClassVar[str]  # the model that it trains, a key of experiments.model.build.ARCHITECTURES
    reads_targets: ClassVar[bool] = True  # the model is given what it predicts, hidden by what may attend to it
    reads_pairs: ClassVar[bool] = False  # its data are pairs, of a source and a target sentence
    generates: ClassVar[bool] = False  # its model is also scored by texts that it writes by itself
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

    def check_scorer(self, setting: str) -> None:
        """Raise Mistake, naming the `setting` that asks for scores, where the library that computes them is missing."""

    def without_generation(self) -> Self:
        """The same objective in a run that, when it ends, is scored by its loss alone and generates no text."""
        return self
