"""Building the attention layer of a variant; its name is that of a file in `attention/`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from attention.layers.attention_layer import AttentionLayer
from experiments.failures.failure import Mistake
from experiments.failures.wording import joined
from experiments.settings.variant import arguments_of, module_of


def build_attention(variant: dict[str, Any]) -> AttentionLayer:
    """Build the attention layer of a resolved `conf/variant` group.

    Raises Mistake if arguments don't go together, and for a class without a method that it needs.
    """
    module = importlib.import_module(f"attention.{module_of(variant)}")
    if inspect.isabstract(module.Attention):
        lacking = joined(sorted(module.Attention.__abstractmethods__))
        raise Mistake(f"{module.__file__}: the class Attention lacks {lacking}")
    with wrong_arguments(variant):
        layer: AttentionLayer = module.Attention(**arguments_of(variant))
    return layer


@contextmanager
def wrong_arguments(variant: dict[str, Any]) -> Iterator[None]:
    """Turn a ValueError of `attention/` about an argument of the variant, such as `key_size: is 0`, into a Mistake.

    It is also used around a first forward pass, because only the tensors show what a kernel can't do (`backend: sdpa
    can't do this`). A ValueError that doesn't begin with the name of an argument is a bug and passes.
    """
    try:
        yield
    except ValueError as error:
        if str(error).partition(":")[0] not in arguments_of(variant):
            raise
        raise Mistake(f"variant={variant['name']}: {error}") from error
