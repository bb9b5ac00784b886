"""Layers that attend only to near tokens, between layers that attend to all (Warner et al. 2024, 2412.13663)."""

# B batch, N length

from __future__ import annotations

from typing import Any

from torch import Tensor

from attention.layers.window import near
from experiments.failures.failure import Mistake
from experiments.model.layers.position import rotation
from experiments.settings.model import Model


class Local:
    """Which layers are local, and the keywords of their attention: a narrower mask and a rotation with another base."""

    def __init__(self, model: Model) -> None:
        self.window, self.every = model.local_window, model.global_every
        self.rotary = rotation(model.model_copy(update={"rotary_base": model.local_rotary_base}))

    def context(self, number: int, x_BND: Tensor, context: dict[str, Any]) -> dict[str, Any]:
        """The keywords of the attention of layer `number`. context: those of a layer that attends to all."""
        if self.window is None or number % self.every == 0:
            return context
        return {**context, "rotary": self.rotary, "mask": near(self.window, x_BND, context.get("mask"))}


def refuse_local(model: Model, architecture: str) -> None:
    """Raise Mistake for a model whose architecture has no local layers."""
    if model.local_window is not None:
        raise Mistake(f"model.local_window={model.local_window}: {architecture} has no local layers; set null")
