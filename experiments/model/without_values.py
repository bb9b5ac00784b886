"""Modules without values, whose shapes and costs can be counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode


@contextmanager
def without_values() -> Iterator[None]:
    """A block in which modules are constructed on torch's meta device, without memory and starting values."""
    with torch.device("meta"), _Uninitialized():
        yield


class _Uninitialized(TorchFunctionMode):
    """Leaves out `torch.nn.init`.

    On the meta device, a normal distribution has no effect, but it imports torch's compiler. That takes more than a
    second of processor time.
    """

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Iterable[type],
        arguments: tuple[Any, ...] = (),
        keywords: Mapping[str, Any] | None = None,
    ) -> Any:
        keywords = keywords or {}
        if getattr(function, "__module__", None) == nn.init.__name__:
            return keywords["tensor"]
        return function(*arguments, **keywords)
