"""Checkpoint formats of Hugging Face's transformers: one file a format, and this folder is the registry."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor

from experiments.settings.mistake import nearest
from experiments.settings.run import Settings


class Format(Protocol):
    """What a module of this folder has. Every function raises ValueError, naming what it can't express.

    Three more it may have. UNUSED: a pattern of the weights that such checkpoints hold, and that our model has no place
    for and does without; they are left out before from_hugging_face. completed(config, state): the config.json with
    what only the weights tell. note(settings): what the user of an export has to know, or None.
    """

    MODEL_TYPE: str  # model_type in config.json

    def words(self, config: Mapping[str, Any]) -> list[str]:
        """The overrides, as on the command line, that make our model the one of a config.json."""

    def config(self, settings: Settings, vocabulary_size: int) -> dict[str, Any]:
        """The config.json of our model."""

    def from_hugging_face(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Their state dict under our names."""

    def to_hugging_face(self, state: Mapping[str, Tensor], settings: Settings) -> dict[str, Tensor]:
        """Our state dict under their names."""


def formats() -> dict[str, Format]:
    """By model_type."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules: list[Any] = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return {module.MODEL_TYPE: module for module in modules if hasattr(module, "MODEL_TYPE")}


def format_of(model_type: Any) -> Format:
    """Raises ValueError for a model_type that no module is about."""
    known = formats()
    if not isinstance(model_type, str) or model_type not in known:
        hint = nearest(str(model_type), known)
        raise ValueError(f"model_type = {model_type!r}: must be one of {', '.join(known)}{hint}")
    return known[model_type]
