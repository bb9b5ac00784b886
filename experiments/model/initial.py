"""Starting values that depend on a module's own path and shapes, so that models that differ elsewhere start alike."""

from __future__ import annotations

import torch
from torch import nn

from experiments.settings.digest import text_digest

OF_TORCH = (nn.Linear.reset_parameters, nn.Embedding.reset_parameters)


def initialize(module: nn.Module, seed: int, std: float | None) -> None:
    """Give every module below (and with) `module`, on the CPU, its starting values; the global RNG is left as it was.

    Linear maps and embeddings without a `reset_parameters()` of their own: weights normal(0, std), biases 0. With std
    None the deviation is 1 / sqrt(inputs) of a map, which keeps the scale of what goes through it, and 1 of an
    embedding (T5's start, Raffel et al. 2020, 1910.10683). Any other module that owns parameters: its own
    `reset_parameters()`. Each draws from a generator seeded by (seed, its path), so the values of one do not depend on
    which others there are. A parent is reset before its children.

    ValueError: a module owns parameters but has no `reset_parameters`.
    """
    with torch.random.fork_rng(devices=[]):
        for path, child in module.named_modules():
            # the CPU's alone: torch.manual_seed would draw the accelerators' anew, and takes longer than the drawing
            torch.default_generator.manual_seed(path_seed(seed, path))
            reset(child, path, std)


def reset(module: nn.Module, path: str, std: float | None) -> None:
    """Give a module its starting values, without those of its children; see `initialize`."""
    if isinstance(module, nn.Linear | nn.Embedding) and type(module).reset_parameters in OF_TORCH:
        by_size = module.in_features**-0.5 if isinstance(module, nn.Linear) else 1.0
        nn.init.normal_(module.weight, std=by_size if std is None else std)
        if (bias := getattr(module, "bias", None)) is not None:
            nn.init.zeros_(bias)
    elif callable(reset_parameters := getattr(module, "reset_parameters", None)):
        reset_parameters()
    elif next(module.parameters(recurse=False), None) is not None:
        raise ValueError(
            f"{path} ({type(module).__module__}.{type(module).__name__}) owns parameters but has no "
            "reset_parameters(): give it one, which draws their starting values"
        )


def path_seed(seed: int, path: str) -> int:
    """64 bits, the same on every machine and in every process."""
    return int(text_digest(f"{seed}/{path}")[:16], 16)
