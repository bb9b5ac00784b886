"""Marks for torch.compile. The same marks of `torch.compiler` would import the compiler.

That import takes a second of processor time, and most processes compile nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

# torch's own `torch.compiler.disable`, which imports the compiler at the first call
from torch._compile import _disable_dynamo as not_compiled

__all__ = ["constant", "not_compiled"]

Function = TypeVar("Function", bound=Callable[[], object])


def constant(function: Function) -> Function:
    """Let torch.compile call the function once while it traces, and use the result as a constant.

    The mark is that of `torch.compiler.assume_constant_result`.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
