"""torch.compile: what of a model goes through it, and which runs it pays for."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from experiments.measure.rates import seconds
from experiments.model.assembly import Assembly
from experiments.model.batch_norm import discard
from experiments.model.decoder import Decoder
from experiments.model.encoder import Encoder, Layer
from experiments.objectives.objective import Batch
from experiments.training.micro_batches import Forward, backward

LONG = 600.0  # seconds that a run must take to be worth a trial, of 10 to 40 on two cores
FEWEST = 100  # steps that it must have, so that two more, which only tell how long it will be, don't matter
SAME = 0.1  # of a gradient's norm, which two gradients may differ by: those in bf16 do by hundredths
TRIED = 5  # batches
EAGER, COMPILED = "force_eager", "default"  # torch's stances: as if nothing were compiled, or as it is


class Choice(NamedTuple):
    compiled: bool
    why: str  # empty where the run is too short for a trial


def compile_layers(model: Assembly, batches: Sequence[Batch]) -> None:
    """Compile all layers but the last of each stack, which goes on with the predicted positions, now more, now fewer.

    Unless the batches differ in length, every shape has code of its own. What a step computes then doesn't depend on
    the shapes before it, and a run that was cut goes on byte by byte. Dropout is that of the model as it was.
    """
    for layer in _of_whole_sequences(model):
        vars(layer)["forward"] = torch.compile(
            layer.forward, dynamic=_lengths_vary(batches), options={"fallback_random": True}
        )


def choose(
    model: Assembly, forward: Forward, batches: Sequence[Batch], micro_batch: int, *, steps: int | None, limit: float
) -> Choice:
    """Whether a run of so many steps, or of `limit` seconds, ends sooner with its layers compiled; then they are.

    The gradients of its first `batches` are computed both ways, and forgotten. What fails is not used, and nothing is
    where lengths vary.
    """
    too_short = limit < LONG or (steps is not None and steps < FEWEST)
    if too_short or _lengths_vary(batches) or not any(_of_whole_sequences(model)):
        return Choice(False, "")

    def gradient(batch: Batch) -> list[Tensor]:
        model.zero_grad(set_to_none=True)
        discard(model)
        backward(forward, batch, 1, micro_batch)
        return [each.grad for each in model.parameters() if each.grad is not None]

    choice = Choice(False, "")
    try:
        gradient(batches[0])
        once = seconds(lambda: gradient(batches[0]), forward.device)
        length = min(limit, math.inf if steps is None else steps * once)
        if length >= LONG:
            compile_layers(model, batches)
            choice = _tried(gradient, batches, forward.device, length)
    except Exception as error:
        # it was to save time, and must not end the run
        said = str(error).strip().splitlines() or [type(error).__name__]
        choice = Choice(False, f"torch.compile is not used, as it failed: {said[0]}")
    finally:
        model.zero_grad(set_to_none=True)
        discard(model)
    if not choice.compiled:
        for layer in _of_whole_sequences(model):
            vars(layer).pop("forward", None)
        torch.compiler.reset()
    return choice


def _tried(
    gradient: Callable[[Batch], list[Tensor]], batches: Sequence[Batch], device: torch.device, length: float
) -> Choice:
    def by(stance: str, batch: Batch) -> list[Tensor]:
        with torch.compiler.set_stance(stance):
            return gradient(batch)

    def timed(stance: str, batch: Batch) -> float:
        return seconds(lambda: by(stance, batch), device)

    making = sum(timed(COMPILED, batch) for batch in batches)
    found, expected = by(COMPILED, batches[0]), by(EAGER, batches[0])
    error = get_total_norm([one - other for one, other in zip(found, expected, strict=True)]) / get_total_norm(expected)
    if not error <= SAME:
        return Choice(False, f"torch.compile is not used: by it a gradient is {error:.0%} off")
    return weigh([(timed(EAGER, batch), timed(COMPILED, batch)) for batch in batches], making, length)


def weigh(pairs: Sequence[tuple[float, float]], making: float, length: float) -> Choice:
    """Compiled pays where a run of `length` saves more than the compiler took; all in seconds.

    pairs: of gradients, without and with it, in turns.
    """
    saved = length * (1 - statistics.median(compiled / eager for eager, compiled in pairs))
    eager, compiled = (1000 * statistics.median(times) for times in zip(*pairs, strict=True))
    return Choice(
        saved > making,
        f"torch.compile is {'' if saved > making else 'not '}used: a gradient takes {compiled:.3g} ms by it and "
        f"{eager:.3g} without, and the compiler took {making:.0f} s",
    )


def _lengths_vary(batches: Sequence[Batch]) -> bool:
    return len({tuple(tensor.shape for tensor in batch.inputs.values()) for batch in batches}) > 1


def _of_whole_sequences(model: Assembly) -> Iterator[Layer]:
    for stack in model.modules():
        if isinstance(stack, Encoder | Decoder):
            yield from cast("list[Layer]", list(stack.layers)[:-1])
