"""Checks of a variant that the user has added: a small layer is tried, as the tests do with the project's variants."""

# B batch, N length, D hidden size

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from attention.layers.attention_layer import AttentionLayer
from experiments.failures.failure import Mistake
from experiments.model.layers.build_attention import build_attention
from experiments.settings.plugins import module_file
from experiments.settings.variant import module_of

LENGTH, SEEN = 6, 4  # positions, and those that come before a change


def check_added(variant: dict[str, Any]) -> None:
    """Raises Mistake that names what a layer of an added variant does wrong; the project's own variants are not tried.

    variant: a resolved `conf/variant` group. The layer is tried on the CPU, and the global RNG stays as it was.
    """
    if (file := module_file(f"attention.{module_of(variant)}")) is None:
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        faults = [*_faults(build_attention(variant))]
    if faults:
        raise Mistake(
            "\n".join(f"{file}: {fault}" for fault in faults),
            "docs/adding_a_variant.md says what a layer of attention must do",
        )


def _faults(built: AttentionLayer) -> Iterator[str]:
    """What the layer does wrong, each as a line; nothing about a layer whose outputs are not finite."""
    counted, stated = sum(each.numel() for each in built.parameters()), built.cost(LENGTH, LENGTH).parameters
    if counted != stated:
        yield f"cost: gives {stated:,} parameters; the layer has {counted:,}"
    built.backend = "reference"
    x = torch.randn(2, LENGTH, built.output.out_features)
    for layer in (_moved(built), built):
        if layer.eval()(x).isfinite().all():
            break
    else:
        # the run says at which step and in which module
        return
    yield from _ignored_options(layer, x)
    if lacking := _stages_without_hook(layer, x):
        yield f"stages: the hook is not called for {', '.join(lacking)}"
    for parameter in _unused_parameters(layer, x):
        yield f"{parameter}: is a parameter that has no part in the output"
    if _draws_by_itself(layer, x):
        yield "dropout: two passes with the same dropout_seed differ, so something draws from torch's generator"


def _moved(layer: AttentionLayer) -> AttentionLayer:
    """A copy with other parameters, because a gate that starts at 0 hides what is behind it."""
    moved = copy.deepcopy(layer)
    with torch.no_grad():
        for parameter in moved.parameters():
            width = parameter.shape[-1] if parameter.ndim > 1 else 25
            parameter.add_(width**-0.5 * torch.randn_like(parameter))
    return moved


def _ignored_options(layer: AttentionLayer, x: Tensor) -> Iterator[str]:
    """Options that do not have their effect. A layer may refuse one with a ValueError that begins with its name."""
    other = torch.cat([x[:, :SEEN], torch.randn_like(x[:, SEEN:])], dim=1)
    known = torch.arange(LENGTH) < SEEN
    bias = torch.randn(1, layer.sizes.softmax_heads, LENGTH, LENGTH)
    # each hides what comes after the first positions, in which the inputs agree
    hiding: dict[str, tuple[bool | Tensor, str]] = {
        "causal": (True, "a position sees later ones; pass options.causal on to the kernel, or hide them"),
        "mask": (known[None, None, None], "a position sees those that the mask hides, such as padding"),
    }
    for option, (value, fault) in hiding.items():
        outputs = _outputs(layer, [x, other], **{option: value})
        if outputs and not _alike(*(output[:, :SEEN] for output in outputs)):
            yield f"{option}: {fault}"
    if (biased := _outputs(layer, [x], bias=bias)) and _alike(biased[0], layer(x)):
        yield "bias: does not change the output, so model.position=relative and alibi would have no effect"


def _outputs(layer: AttentionLayer, inputs: list[Tensor], **options: Any) -> list[Tensor]:
    """The outputs for each input; none if the layer refuses the option."""
    try:
        return [layer(x, **options) for x in inputs]
    except ValueError as error:
        if str(error).partition(":")[0] in options:
            return []
        raise


def _alike(first: Tensor, second: Tensor) -> bool:
    return torch.allclose(first, second, rtol=1e-3, atol=1e-4)


def _stages_without_hook(layer: AttentionLayer, x: Tensor) -> list[str]:
    """The declared stages that a hook does not see."""
    seen: set[str] = set()

    def look(stage: str, tensor: Tensor) -> Tensor:
        seen.add(stage)
        return tensor

    layer.hook = look
    layer(x)
    layer.hook = None
    return [stage for stage in layer.stages if stage not in seen]


def _unused_parameters(layer: AttentionLayer, x: Tensor) -> list[str]:
    """The names of trained parameters without a gradient in a model of two layers."""
    trained = {name: each for name, each in layer.named_parameters() if each.requires_grad}
    earlier: dict[str, Tensor] = {}
    output = torch.stack([layer(x, earlier=earlier).square() for _ in range(2)])
    gradients = torch.autograd.grad(output.sum(), list(trained.values()), allow_unused=True)
    return [name for name, gradient in zip(trained, gradients, strict=True) if gradient is None]


def _draws_by_itself(layer: nn.Module, x: Tensor) -> bool:
    """Whether the global generator, and not only the seed of the dropout, decides an output in training."""
    outputs = []
    for seed in range(2):
        torch.manual_seed(seed)
        outputs.append(layer.train()(x, dropout_seed=torch.tensor(5)))
    return not _alike(*outputs)
