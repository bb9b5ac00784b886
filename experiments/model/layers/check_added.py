"""Checks of a variant that the user has added: a small layer is tried, as the tests do with the project's variants."""

# B batch, N length, D hidden size

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from attention.layers.attention_layer import AttentionLayer
from experiments.failures.failure import Mistake
from experiments.failures.wording import joined
from experiments.model.initialization import initialize
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
    yield from _without_starting_values(built)
    # the reference of a mechanism with arithmetic of its own may be a longer way to the same numbers
    built.backend = "reference" if built.own_kernel is None else "auto"
    x = torch.randn(2, LENGTH, built.output.out_features)
    for layer in (_moved(built), built):
        if layer.eval()(x.clone()).isfinite().all():
            break
    else:
        # the run says at which step and in which module
        return
    if fault := _depends_on_more(layer, x):
        # the other checks compare passes
        yield fault
        return
    yield from _wrong_dependences(layer, x)
    yield from _uncounted_products(layer, x)
    yield from _ignored_options(layer, x)
    if lacking := _stages_without_hook(layer, x):
        yield f"stages: the hook is not called for {', '.join(lacking)}"
    for parameter in _unused_parameters(layer, x):
        yield f"{parameter}: is a parameter that has no part in the output"
    yield from _wrong_heads(layer, x)
    if _draws_by_itself(layer, x):
        yield "dropout: two passes with the same dropout_seed differ, so something draws from torch's generator"


def _without_starting_values(built: AttentionLayer) -> Iterator[str]:
    """Parameters whose starting values a run would not draw."""
    owners = [module for module in built.modules() if [*module.parameters(recurse=False)]]
    if lacking := [type(each).__name__ for each in owners if not hasattr(each, "reset_parameters")]:
        yield f"{joined(lacking)}: owns parameters but has no reset_parameters(), which draws their starting values"
        return
    layer = copy.deepcopy(built)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(math.nan)
    initialize(layer, seed=0, std=None)
    for name, parameter in layer.named_parameters():
        if parameter.isnan().any():
            yield f"{name}: gets no starting value from reset_parameters()"


def _moved(layer: AttentionLayer) -> AttentionLayer:
    """A copy with other parameters, because a gate that starts at 0 hides what is behind it."""
    moved = copy.deepcopy(layer)
    with torch.no_grad():
        for parameter in moved.parameters():
            width = parameter.shape[-1] if parameter.ndim > 1 else 25
            parameter.add_(width**-0.5 * torch.randn_like(parameter))
    return moved


def _depends_on_more(layer: AttentionLayer, x: Tensor) -> str | None:
    """Why two passes in evaluation are not the same function of their input; None if they are."""
    given = x.clone()
    first = layer(given)
    if not torch.equal(given, x):
        return "x: is changed in place, but the residual connection adds it to the output"
    if not _alike(first, layer(x)):
        return "output: two passes in evaluation differ, so the layer draws at random, or keeps something of a pass"
    return None


def _wrong_dependences(layer: AttentionLayer, x: Tensor) -> Iterator[str]:
    """What the output of a position must not depend on: other examples and, unless declared, the index."""
    output = layer(x)
    if not _alike(output[:1], layer(x[:1])):
        yield "x: the output of an example depends on the other examples of the batch"
    elif not layer.positional and not _alike(output.roll(1, 1), layer(x.roll(1, 1))):
        yield "positional: is False, but the output depends on the order of the positions; set positional = True"


def _uncounted_products(layer: AttentionLayer, x: Tensor) -> Iterator[str]:
    """Whether `cost` leaves out products that torch counts. It may state more, because torch does not count all."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        layer(x[:1])
    made, stated = counter.get_total_flops() // 2, layer.cost(LENGTH, LENGTH).multiplies
    if made > stated:
        yield f"cost: gives {stated:,} multiplications for {LENGTH} positions; the layer makes at least {made:,}"


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
    nobody = torch.tensor([True, False])[:, None, None, None]
    if (masked := _outputs(layer, [x], mask=nobody)) and not masked[0].isfinite().all():
        yield "mask: a query that may attend to nothing gives what is not finite; give zero"
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


def _wrong_heads(layer: AttentionLayer, x: Tensor) -> Iterator[str]:
    """Whether `keep_heads` leaves out what belongs to a head. The output must not depend on the order of the heads."""
    if not layer.prunable:
        return
    reversed_heads = copy.deepcopy(layer)
    try:
        reversed_heads.keep_heads(range(layer.value_heads)[::-1])
    except NotImplementedError:
        yield "keep_heads: is missing; define it, or set prunable = False"
        return
    if not _alike(reversed_heads(x), layer(x)):
        yield "keep_heads: leaves out what belongs to a head, such as a parameter; extend it, or set prunable = False"


def _draws_by_itself(layer: nn.Module, x: Tensor) -> bool:
    """Whether the global generator, and not only the seed of the dropout, decides an output in training."""
    outputs = []
    for seed in range(2):
        torch.manual_seed(seed)
        outputs.append(layer.train()(x, dropout_seed=torch.tensor(5)))
    return not _alike(*outputs)
