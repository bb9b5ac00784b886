"""How a run is carried out: batches, limits, precision, device, and what is logged and kept when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from experiments.failures.unread import Idle
from experiments.settings.devices import Device, Devices
from experiments.settings.group import Count, Fraction, Group, Number, Positive, Size, Threads

Precision = Literal["auto", "fp32", "bf16"]


class Trainer(Group):
    """How a run is trained: batches, when it ends, precision, device, and when it evaluates and saves."""

    batch_size: Size  # sequences in a step
    micro_batch: Size | None  # sequences per forward pass; null: the whole batch
    max_steps: Number | None  # limit on steps; the first limit that is reached ends the run
    max_tokens: Number | None  # limit on tokens
    max_minutes: Positive | None  # limit on minutes of training
    precision: Precision  # auto: bf16 if the hardware has fast instructions for it
    device: Device  # cpu, cuda, or one of several GPUs (cuda:1); auto: a GPU if there is one
    devices: Devices  # devices that share each batch; auto: all; the number does not change the run
    sharded: bool  # the devices divide weights, gradients and moments (FSDP); this does not change the run
    threads: Threads  # torch's threads on the CPU; another number is another run
    compile: Literal["auto"] | bool  # torch.compile; auto: if a trial shows that it saves time
    label_smoothing: Fraction  # share of the target's probability spread over the vocabulary, in training only
    log_every: Number  # steps from one log line to the next
    evaluate_every: Number  # steps from one evaluation to the next
    evaluation_sequences: Number | None  # sequences of an evaluation; null: the whole split
    checkpoint_every: Number  # steps from one checkpoint to the next
    # after a loss or gradient that is not finite: end, skip the step, or first go back to the newest checkpoint
    guard: Literal["stop", "skip", "reload"]
    guard_limit: Count  # number of skips or reloads before the run stops

    def idle(self) -> Iterator[Idle]:
        """The limit of a guard that continues nothing."""
        if self.guard == "stop":
            yield Idle("guard_limit", "guard=stop", "guard=skip or reload")
