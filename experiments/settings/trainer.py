"""How a run is carried out: batches, limits, precision, device, and what is logged and kept when."""

from __future__ import annotations

from typing import Literal

from experiments.settings.devices import Device, Devices
from experiments.settings.group import Count, Fraction, Group, Positive, Size

Precision = Literal["auto", "fp32", "bf16"]


class Trainer(Group):
    """How a run is trained: batches, when it ends, precision, device, and when it evaluates and saves."""

    batch_size: Size  # sequences a step
    micro_batch: Size | None  # sequences at once; null: the whole batch
    max_steps: Size | None  # the first limit reached ends the run
    max_tokens: Size | None  # likewise
    max_minutes: Positive | None  # likewise, of training time
    precision: Precision  # auto: bf16 where the hardware is fast at it
    device: Device  # auto: a GPU where there is one
    devices: Devices  # that share each batch, a process each; no part of what the run is. auto: all there are
    threads: Size  # of torch on the CPU; sums follow their number, so it is part of the run
    compile: Literal["auto"] | bool  # auto: where a trial says that it pays within the run's length
    label_smoothing: Fraction  # of a target's probability, spread over the vocabulary; in training only
    log_every: Size  # steps
    evaluate_every: Size  # steps
    evaluation_sequences: Size | None  # null: the whole split
    checkpoint_every: Size  # steps
    guard: Literal["stop", "skip", "reload"]  # on a non-finite loss or gradient
    guard_limit: Count  # so many skips or reloads, then stop
