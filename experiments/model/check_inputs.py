"""A check of what a model is called with, for models that are used in a notebook or a program."""

# B batch, N length, M decoder length, P positions

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from experiments.failures.failure import Mistake
from experiments.model.layers.embedding import Embedding
from experiments.model.transformer import Transformer

SHAPES = {
    "tokens": "BN",
    "decoder_tokens": "BM",
    "mask": "BN",
    "token_types": "BN",
    "order": "BN",
    "positions": "P",
}


def check_inputs_of(model: Transformer) -> None:
    """Let the model check its inputs before each forward, which then raises Mistake for those that do not fit.

    The training loop does without: its batches fit, and on a GPU a comparison of ids would wait for the device.
    """
    model.register_forward_pre_hook(_check, with_kwargs=True)


def _check(model: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    if torch.compiler.is_compiling():
        return
    try:
        given = inspect.signature(model.forward).bind_partial(*arguments, **keywords).arguments
    except TypeError:
        # the call itself names an argument that is unknown or too many
        return
    device = next(model.parameters()).device
    inputs = {name: value for name, value in given.items() if name in SHAPES and value is not None}
    sizes: dict[str, int] = {}
    for name, value in inputs.items():
        if not isinstance(value, Tensor):
            raise Mistake(f"{name}: is a {type(value).__name__}, must be a tensor")
        dtypes = (torch.bool,) if name == "mask" else (torch.int64, torch.int32)
        if value.dtype not in dtypes:
            raise Mistake(f"{name}: has dtype {value.dtype}, must be {' or '.join(map(str, dtypes))}")
        if value.device != device:
            raise Mistake(f"{name}: is on {value.device}, must be on {device} as the model is")
        _check_shape(name, value, sizes)
    embedding = next(module for module in model.modules() if isinstance(module, Embedding))
    vocabulary = embedding.token.num_embeddings
    limits = {"tokens": vocabulary, "decoder_tokens": vocabulary}
    if embedding.token_type is not None:
        limits["token_types"] = embedding.token_type.num_embeddings
    if "N" in sizes:
        limits["positions"] = sizes["B"] * sizes.get("M", sizes["N"])
    for name in limits.keys() & inputs.keys():
        _check_range(name, inputs[name], limits[name], model.training)


def _check_shape(name: str, value: Tensor, sizes: dict[str, int]) -> None:
    """Compare the shape with the sizes that are known from earlier inputs, and learn the others from it."""
    letters = SHAPES[name]
    wanted = [sizes.get(letter, letter) for letter in letters]
    if value.ndim != len(letters) or any(
        size != known for size, known in zip(value.shape, wanted, strict=True) if isinstance(known, int)
    ):
        meaning = "" if wanted == [*letters] else f" ({', '.join(letters)})"
        raise Mistake(f"{name}: has shape {list(value.shape)}, must be [{', '.join(map(str, wanted))}]{meaning}")
    sizes.update(zip(letters, value.shape, strict=True))


def _check_range(name: str, value: Tensor, limit: int, training: bool) -> None:
    # a comparison waits for a GPU, which a training step must not
    if not value.numel() or (training and value.device.type != "cpu"):
        return
    smallest, largest = (int(end) for end in value.aminmax())
    if smallest < 0 or largest >= limit:
        wrong = smallest if smallest < 0 else largest
        raise Mistake(f"{name}: contains {wrong}, must be at least 0 and under {limit}")
