"""Starting values that depend only on a module's path and shapes, so that parts that two models share start alike."""

from __future__ import annotations

import torch
from torch import nn

from experiments.files.digest import text_digest

OF_TORCH = (nn.Linear.reset_parameters, nn.Embedding.reset_parameters)


def initialize(module: nn.Module, seed: int, std: float | None) -> None:
    """Give `module` and all modules below it their starting values, on the CPU. The global RNG stays as it was.

    Linear maps and embeddings without their own `reset_parameters()` get weights from normal(0, std) and biases of 0.
    If std is None, the deviation is 1 / sqrt(inputs) for a map, which keeps the scale of its input, and 1 for an
    embedding, as in T5 (Raffel et al. 2020, 1910.10683). Any other module with parameters draws them in its
    `reset_parameters()`. Each module draws from a generator seeded by (seed, its path), so its values do not depend on
    the other modules. A parent is reset before its children.

    Raises ValueError if a module owns parameters but has no `reset_parameters`.
    """
    with torch.random.fork_rng(devices=[]):
        for path, child in module.named_modules():
            # only the CPU's generator: torch.manual_seed would also seed the accelerators', which takes longer
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
    """A seed of 64 bits, the same on every machine and in every process."""
    return int(text_digest(f"{seed}/{path}")[:16], 16)
