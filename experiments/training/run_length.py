"""How long a run is to be."""

from __future__ import annotations

import math

from experiments.settings.finetuning import FinetuningSettings
from experiments.settings.mistake import Mistake
from experiments.settings.run import Settings


def planned_steps(settings: Settings, sequences: int | None = None) -> int | None:
    """Steps of the whole run: the smallest of `max_steps`, and of `max_tokens` and `epochs` in steps.

    None when only the clock ends it, or an epoch before it is known how many sequences that is.

    Raises Mistake when no limit is set, or when the schedule decays towards an end that only the clock knows.
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
                "varying number of tokens, so no number of steps follows; set max_steps"
            )
        limits.append(math.ceil(trainer.max_tokens / (trainer.batch_size * tokens)))
    epochs = settings.epochs if isinstance(settings, FinetuningSettings) else None
    if epochs is not None and sequences is not None:
        limits.append(math.ceil(epochs * sequences / trainer.batch_size))
    if limits:
        return min(limits)
    if epochs is not None:
        return None
    if trainer.max_minutes is None:
        raise Mistake(
            "nothing ends this run: max_steps, trainer.max_tokens and trainer.max_minutes are all null; set one of them"
        )
    if kind in ("linear", "cosine"):
        raise Mistake(
            f"schedule.kind={kind} decays over a number of steps that trainer.max_minutes alone does not give: "
            "set max_steps or trainer.max_tokens too, or schedule=constant or schedule=inverse_sqrt"
        )
    return None
