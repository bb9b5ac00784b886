"""What torch.compile has to know about functions. What `torch.compiler` and `torch.library` offer for it would import
the compiler.

That import takes a second of processor time, and most processes compile nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch

# torch's own `torch.compiler.disable`, which imports the compiler not at once but at the first call
from torch._compile import _disable_dynamo

Function = TypeVar("Function", bound=Callable[[], object])
Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


def not_compiled(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """Let a compiled model call the function as it is. Neither it nor what it calls is traced."""
    kept_out = _disable_dynamo(function)

    @wraps(function)
    def call(*arguments: Parameters.args, **options: Parameters.kwargs) -> Returned:
        # torch.compile, which takes this as true, has imported the compiler before
        chosen = kept_out if torch.compiler.is_compiling() else function
        return chosen(*arguments, **options)

    return call


def constant(function: Function) -> Function:
    """Let torch.compile call the function once while it traces, and use the result as a constant.

    The mark is that of `torch.compiler.assume_constant_result`.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def operator(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function of tensors on a CPU, which changes none of them, an operator, which torch.compile does not trace.

    name: that of the operator, such as `attention::compiled`, for torch.library.register_fake and register_autograd.
    Without the latter, the operator passes on no gradient.
    torch.library.custom_op would do the same, but its operators import the compiler at their first call.
    """
    namespace, _, short = name.partition("::")

    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        schema = torch.library.infer_schema(function, mutates_args=())
        torch.library.define(name, schema, tags=torch.Tag.pt2_compliant_tag)
        torch.library.impl(name, "cpu")(function)
        made: Callable[..., Any] = getattr(getattr(torch.ops, namespace), short).default
        return made

    return make
