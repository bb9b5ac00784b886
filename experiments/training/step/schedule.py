"""The learning rate as a pure function of the step: a linear warm-up, then a decay over the planned steps."""

from __future__ import annotations

import math

from experiments.settings.schedule import Endless, Schedule


def learning_rate(step: int, planned: int | None, peak: float, schedule: Schedule) -> float:
    """The learning rate of `step`; the first step is 1.

    During warm-up it is peak * step / warmup_steps. After that, linear and cosine fall from the peak towards
    final * peak, which the step after the last planned one would have, so that no step has a rate of zero.
    inverse_sqrt is peak * sqrt(warmup_steps / step) (Vaswani et al. 2017, equation 3), and constant is the peak.
    """
    warmup = schedule.warmup_steps
    if step <= warmup:
        return peak * step / warmup
    if isinstance(schedule, Endless):
        return peak if schedule.kind == "constant" else peak * math.sqrt(max(warmup, 1) / step)
    assert planned is not None and warmup < step <= planned
    done = (step - warmup) / (planned + 1 - warmup)
    left = 1 - done if schedule.kind == "linear" else (1 + math.cos(math.pi * done)) / 2
    return peak * (schedule.final + (1 - schedule.final) * left)
