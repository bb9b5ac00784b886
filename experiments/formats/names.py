"""The names of the weights of a format, theirs and ours: one table, read in both directions."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from experiments.failures.failure import Mistake

NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")  # of a layer, which the table writes as N


class Names:
    """Their modules -> ours, as they stand in front of `.weight` and `.bias`; N is the number of a layer.

    A module of theirs may hold several of ours, one below the other. Of several of theirs for one of ours, the last is
    written. model: what has these weights, for messages.
    """

    def __init__(self, modules: Mapping[str, str | tuple[str, ...]], model: str) -> None:
        self._model = model
        self._ours = {theirs: (ours,) if isinstance(ours, str) else ours for theirs, ours in modules.items()}
        self._theirs = {ours: (theirs,) for theirs, parts in self._ours.items() for ours in parts}

    def to_ours(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Their state dict under our names. Raises Mistake for a weight that such a model does not have."""
        ours: dict[str, Tensor] = {}
        for name, tensor in state.items():
            parts = self._renamed(name, self._ours)
            ours |= zip(parts, [tensor] if len(parts) == 1 else tensor.chunk(len(parts)), strict=True)
        return ours

    def to_theirs(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Our state dict under their names. Raises Mistake for a weight that such a model does not have."""
        theirs: dict[str, Tensor] = {}
        for name in dict.fromkeys(each for ours in state for each in self._renamed(ours, self._theirs)):
            parts = [state[ours] for ours in self._renamed(name, self._ours)]
            theirs[name] = parts[0] if len(parts) == 1 else torch.cat(parts)
        return theirs

    def _renamed(self, name: str, table: Mapping[str, tuple[str, ...]]) -> list[str]:
        """The names that a weight has in the other model."""
        module, _, parameter = name.rpartition(".")
        # a layer that is in the table by its own number is not one of N
        number = None if module in table else NUMBER.search(name)
        if number:
            module = NUMBER.sub("N", name, count=1).rpartition(".")[0]
        if module not in table:
            raise Mistake(f"{name} is not a weight of {self._model}")
        others = (f"{each}.{parameter}" for each in table[module])
        return [each.replace(".N.", f".{number[0]}.") if number else each for each in others]
