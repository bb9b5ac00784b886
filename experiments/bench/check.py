"""A check of a kernel before it is timed: output and gradients compared with the equations in float64, at the timed
sizes as far as memory allows.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from attention.layers.attend import BACKENDS
from experiments.bench.contenders import Contender, layer_and_input
from experiments.model.kernel_availability import set_kernel_cache
from experiments.model.layers.build_attention import wrong_arguments
from experiments.settings.run import Settings
from experiments.training.step.precision import autocast

# largest error of a tensor relative to its norm: in float64, and in the precision that is timed
FLOAT64_TOLERANCE, TOLERANCES = 1e-9, {"fp32": 1e-3, "bf16": 6e-2}
# a gradient that is zero but for rounding, as that of the keys' bias, is measured by the others' size
NEGLIGIBLE = {"fp32": 1e-3, "bf16": 2e-2}
# the reference keeps every map: so many numbers of one map, all heads and examples together
LARGEST_MAP = 2**24


class Checked(NamedTuple):
    """The outcome of the check of a contender."""

    kernel: str  # that runs in the precision that is timed
    error: str  # what is wrong with it; empty: nothing


def check(contender: Contender) -> Checked:
    """Check the attention layer of a contender, forward and backward, at its sizes, with as many examples as fit.

    If not even one fits, it is cut to the length that does.
    """
    settings, device, precision = contender.settings, contender.device, contender.precision
    set_kernel_cache(settings)
    with torch.random.fork_rng(devices=[]):
        expected, _ = _results(settings, "reference", torch.float64)
        with autocast(precision, device):
            actual, kernel = _results(settings, settings.backend, torch.float32)
        errors = _difference(expected, actual, precision, TOLERANCES[precision], NEGLIGIBLE[precision])
        # this kernel computes in bfloat16 only
        if kernel != "cuda":
            # the name of a variant's own arithmetic is not that of a backend
            exact, _ = _results(settings, kernel if kernel in BACKENDS else settings.backend, torch.float64)
            errors = _difference(expected, exact, "float64", FLOAT64_TOLERANCE, 1e-6) + errors
    return Checked(kernel, "; ".join(errors))


def _results(settings: Settings, backend: str, dtype: torch.dtype) -> tuple[dict[str, Tensor], str]:
    """The output and every gradient by name, in float64, and the kernel that ran.

    Dropout is left out because it is random.
    """
    variant = settings.variant | {"backend": backend, "dropout": 0.0}
    length = min(settings.length, math.isqrt(LARGEST_MAP // settings.heads))
    examples = min(settings.batch_size, LARGEST_MAP // (settings.heads * length**2))
    sizes = {"length": length, "batch_size": examples}
    layer, x = layer_and_input(settings.model_copy(update={"variant": variant, **sizes}), dtype)
    with wrong_arguments(variant):
        output = layer(x)
    # not of mean 0: the gradients of the biases would be sums that cancel
    weight = torch.linspace(-0.5, 1, output.numel(), dtype=torch.float64, device=x.device).view_as(output)
    with torch.autocast(x.device.type, enabled=False):
        output.backward(weight.to(output.dtype))
    gradients = {name: parameter.grad for name, parameter in layer.named_parameters()} | {"x": x.grad}
    results = {"output": output.detach()} | {
        f"gradient of {name}": grad for name, grad in gradients.items() if grad is not None
    }
    return {name: tensor.double() for name, tensor in results.items()}, layer.kernel or ""


def _difference(
    expected: dict[str, Tensor], actual: dict[str, Tensor], precision: str, tolerance: float, negligible: float
) -> list[str]:
    """The differences that exceed the tolerance, in words."""
    if missing := expected.keys() ^ actual.keys():
        return [f"{name}: missing in {precision}" for name in sorted(missing)]
    largest = max(float(tensor.norm()) for tensor in expected.values())
    errors = []
    for name, tensor in expected.items():
        error = float((actual[name] - tensor).norm()) / (float(tensor.norm()) + negligible * largest)
        if not error <= tolerance:
            errors.append(
                f"{name} has a relative error of {error:.1e} in {precision}, at most {tolerance:.0e} is allowed"
            )
    return errors
