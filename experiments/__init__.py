"""Train, evaluate and compare models around an attention mechanism; each package imports only the packages below it.

import experiments

result = experiments.train(["variant=talking_heads", "heads=24"])
model, tokenizer, settings = experiments.load("talking_heads")
rows = experiments.runs(variant="talking_heads")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.commands.library import load, runs, train
    from experiments.settings.plugins import use_plugins

__all__ = ["load", "runs", "train", "use_plugins"]


def __getattr__(name: str) -> Any:
    """Functions of `experiments/commands/library.py`, which may import every package; imported at first use.

    `use_plugins` is imported alone: it comes before the settings are, which list what there is.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "settings.plugins" if name == "use_plugins" else "commands.library"
    try:
        return getattr(import_module(f"experiments.{module}"), name)
    except ModuleNotFoundError as error:
        if error.name != "experiments.commands":
            raise
        used = "import experiments before you load the model"
        raise ImportError(f"experiments.{name}: {__path__[0]} is the code of an exported model; {used}") from error
