"""Optimizers of torch that work without torch's compiler.

torch imports its compiler when an optimizer is built, only to keep the compiler out of some methods. That is a third of
the processor time in which a training starts. No optimizer is compiled here: torch.compile gets single layers.
"""

from __future__ import annotations

import inspect
from typing import TypeVar

import torch
from torch.optim import Optimizer

Kind = TypeVar("Kind", bound=Optimizer)
MARKED = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")


def without_compiler(kind: type[Kind]) -> type[Kind]:
    """A subclass of the same name that computes the same, in whose methods nothing concerns the compiler."""
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in MARKED}
    methods["step"] = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (kind,), methods)
