"""The options of `attn heads`."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.failures.failure import Mistake

if TYPE_CHECKING:
    from experiments.failures.unread import Modes
    from experiments.heads.measures.syntax import Tree
    from experiments.settings.group import WhichCheckpoint

_ALWAYS = "--runs --checkpoint --sequences --sentence --treebank --export --equal"
HEADS: Modes = {
    "--gates": f"{_ALWAYS} --penalty",
    "attn heads without --gates": _ALWAYS,
}


@dataclass(frozen=True, kw_only=True)
class HeadsOptions:
    """The options of `attn heads`. Raises Mistake for a number out of range, and for an empty sentence."""

    checkpoint: WhichCheckpoint = "best"
    sequences: int = 64  # held-out sequences, from the start of the validation split
    sentence: str | None = None  # text whose maps are shown; None: the start of the held-out text
    treebank: Path | None = None  # for syntactic heads
    export: int | None = None  # number of heads of a smaller model to write; None: no model is written
    equal: int | None = None  # steps of the experiment with heads that start equal; None: no experiment
    gates: int | None = None  # steps of fine-tuning with gates on the heads; None: no fine-tuning
    penalty: float = 0.02  # nats for each open head

    def __post_init__(self) -> None:
        if self.sequences < 1:
            raise Mistake(f"--sequences {self.sequences}: must be at least 1")
        if self.sentence is not None and not self.sentence.strip():
            raise Mistake("--sentence: is empty")
        for name, steps in (("--equal", self.equal), ("--gates", self.gates)):
            if steps is not None and steps < 1:
                raise Mistake(f"{name} {steps}: the number of steps must be at least 1")
        if not 0 <= self.penalty < math.inf:
            raise Mistake(f"--penalty {self.penalty}: must be a finite number of at least 0")

    @functools.cached_property
    def trees(self) -> Sequence[Tree] | None:
        """The sentences of the treebank; None without one. Raises Mistake for a file that is not a treebank."""
        from experiments.heads.measures.syntax import read_treebank

        return None if self.treebank is None else read_treebank(self.treebank)
