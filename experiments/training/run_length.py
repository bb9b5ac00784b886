"""The planned length of a run."""

from __future__ import annotations

import math
from fractions import Fraction

from experiments.failures.failure import Mistake
from experiments.settings.run import Settings


def planned_steps(settings: Settings, sequences: int | None = None) -> int | None:
    """Steps of the whole run: the smallest of `max_steps`, and of `max_tokens` and `epochs` in steps.

    None if only the clock ends it, or for an epoch whose number of sequences is unknown.

    Raises Mistake if no limit is set, and if the schedule decays towards an end that only the clock knows.
    """
    trainer, kind = settings.trainer, settings.schedule.kind
    limits = []
    if trainer.max_steps is not None:
        limits.append(trainer.max_steps)
    if trainer.max_tokens is not None:
        tokens = settings.objective.tokens_read(settings.length)
        if tokens is None:
            raise Mistake(
                f"trainer.max_tokens={trainer.max_tokens}: the batches of objective={settings.objective.kind} have a "
                "varying number of tokens, so the number of steps is unknown; limit the run by max_steps instead"
            )
        limits.append(math.ceil(trainer.max_tokens / (trainer.batch_size * tokens)))
    epochs = settings.epoch_limit
    if epochs is not None and sequences is not None:
        # 1.1 epochs of 50 sequences are 55 sequences, which the product of floats exceeds
        limits.append(math.ceil(Fraction(str(epochs)) * sequences / trainer.batch_size))
    if limits:
        return min(limits)
    if epochs is not None:
        return None
    if trainer.max_minutes is None:
        raise Mistake(
            f"the run has no end: {', '.join(settings.step_limits)} and trainer.max_minutes are null; set one of them"
        )
    if kind in ("linear", "cosine"):
        raise Mistake(
            f"schedule.kind={kind} decays over the number of steps, which trainer.max_minutes alone does not give; "
            f"set {' or '.join(settings.step_limits)} too, or schedule=constant or schedule=inverse_sqrt"
        )
    return None
