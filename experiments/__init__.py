"""Train, evaluate and compare models around an attention mechanism; each package imports only the packages below it.

import experiments

result = experiments.train(["variant=talking_heads", "heads=24"])
model, tokenizer, settings = experiments.load("talking_heads")
rows = experiments.runs(variant="talking_heads")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.commands.library import load, runs, train

__all__ = ["load", "runs", "train"]


def __getattr__(name: str) -> Any:
    """The functions of `experiments/commands/library.py`, which may import every package; imported at first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from experiments.commands import library

    return getattr(library, name)
