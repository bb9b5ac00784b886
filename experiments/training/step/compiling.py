"""torch.compile: the parts of a model that are compiled, and the runs for which it saves time."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from experiments.measure.timing import seconds
from experiments.model.layers.batch_norm import batch_norms, discard
from experiments.model.layers.decoder import Decoder
from experiments.model.layers.encoder import Encoder, EncoderLayer
from experiments.model.transformer import Transformer
from experiments.objectives.objective import Batch
from experiments.training.step.micro_batches import Forward, backward, is_out_of_memory

# A trial takes 10 to 40 seconds of compiling on two cores, and 19 gradients. With these limits that is at most a
# fiftieth of the run
LONG = 1800.0  # the run must take at least so many seconds
FEWEST = 1000  # it must have the time for at least so many gradients
TRIED = 5  # number of batches in a trial
GRADIENT_TOLERANCE = 0.1  # gradients may differ by this share of their norm; in bf16 they differ by a few hundredths


class Decision(NamedTuple):
    """Whether layers are compiled, with the reason."""

    compiled: bool
    why: str  # empty if nothing was tried


def compile_layers(model: Transformer, *, lengths_vary: bool = False) -> None:
    """Compile every layer except the last of a stack, which continues with a varying number of predicted positions.

    Unless sequences differ in length, every shape has its own code. The results of a step then do not depend on earlier
    shapes, and an interrupted run continues with the same bytes. Dropout is that of the model as it was.
    """
    for layer in _of_whole_sequences(model):
        vars(layer)["forward"] = torch.compile(layer.forward, dynamic=lengths_vary, options={"fallback_random": True})


def eager(model: nn.Module) -> AbstractContextManager[object]:
    """A block in which the model runs uncompiled, so that its hooks run and its shapes make no new code."""
    # if nothing is compiled, the call would take a second
    return torch.compiler.set_stance("force_eager") if is_compiled(model) else nullcontext()


def is_compiled(model: nn.Module) -> bool:
    """Whether layers of the model are compiled."""
    return any("forward" in vars(layer) for layer in _of_whole_sequences(model))


def choose(
    model: Transformer, forward: Forward, batches: Sequence[Batch], micro_batch: int, *, steps: int | None, limit: float
) -> Decision:
    """Decide whether a run of this many steps, or of `limit` seconds, ends sooner with compiled layers; if so, compile
    them.

    The gradients of its first `batches` are computed both ways and discarded. If compilation fails, it is not used.
    """
    if limit < LONG or (steps is not None and steps < FEWEST):
        return Decision(False, "")
    norms = [*batch_norms(model)]

    def gradient(batch: Batch) -> list[Tensor]:
        model.zero_grad(set_to_none=True)
        discard(norms)
        backward(forward, batch, 0, micro_batch)
        return [each.grad for each in model.parameters() if each.grad is not None]

    try:
        gradient(batches[0])
        once = seconds(lambda: gradient(batches[0]), forward.device)
        length = min(limit, math.inf if steps is None else steps * once)
        if length < max(LONG, FEWEST * once):
            return Decision(False, "")
        compile_layers(model)
        choice = _tried(model, gradient, batches, forward.device, length)
    except Exception as error:
        # compilation only saves time, so its failure must not end the run
        lines = str(error).strip().splitlines() or [type(error).__name__]
        why = "" if is_out_of_memory(error) else f"torch.compile is not used, because it failed: {lines[0]}"
        choice = Decision(False, why)
    finally:
        model.zero_grad(set_to_none=True)
        discard(norms)
    if not choice.compiled:
        for layer in _of_whole_sequences(model):
            vars(layer).pop("forward", None)
        torch.compiler.reset()
    return choice


def _tried(
    model: Transformer,
    gradient: Callable[[Batch], list[Tensor]],
    batches: Sequence[Batch],
    device: torch.device,
    length: float,
) -> Decision:
    def without(batch: Batch) -> list[Tensor]:
        with eager(model):
            return gradient(batch)

    def timed(compute: Callable[[Batch], list[Tensor]], batch: Batch) -> float:
        return seconds(lambda: compute(batch), device)

    first = sum(timed(gradient, batch) for batch in batches)
    compiled, expected = gradient(batches[0]), without(batches[0])
    error = get_total_norm([one - other for one, other in zip(compiled, expected, strict=True)]) / get_total_norm(
        expected
    )
    if not error <= GRADIENT_TOLERANCE:
        return Decision(False, f"torch.compile is not used, because it changes a gradient by {error:.0%}")
    pairs = [(timed(without, batch), timed(gradient, batch)) for batch in batches]
    return weigh(pairs, first - sum(compiled for _, compiled in pairs), length)


def weigh(pairs: Sequence[tuple[float, float]], making: float, length: float) -> Decision:
    """Decide whether compilation saves more time in a run of `length` than the compiler took, `making`.

    pairs: the times of gradients without and with compilation. All times are in seconds.
    """
    saved = length * (1 - statistics.median(compiled / plain for plain, compiled in pairs))
    plain, compiled = (1000 * statistics.median(times) for times in zip(*pairs, strict=True))
    return Decision(
        saved > making,
        f"torch.compile is {'' if saved > making else 'not '}used: a gradient takes {compiled:,.1f} ms with it and "
        f"{plain:,.1f} ms without, and the compiler took {making:.0f} s",
    )


def _of_whole_sequences(model: nn.Module) -> Iterator[EncoderLayer]:
    for stack in model.modules():
        if isinstance(stack, Encoder | Decoder):
            yield from cast("list[EncoderLayer]", list(stack.layers)[:-1])
