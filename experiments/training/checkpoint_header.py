"""The header of a checkpoint: the progress of the run, and everything else that it continues from besides tensors."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from experiments.failures.failure import Mistake
from experiments.record.checkpoint_file import Checkpoint
from experiments.record.metrics import HeldLines
from experiments.training.usage import Usage


@dataclass
class Progress:
    """The progress of a run: everything besides weights and moments that its next numbers depend on.

    A checkpoint holds it as JSON.
    """

    compiled: bool = False  # whether layers are compiled by torch.compile
    step: int = 0  # the last step that was taken or skipped; the first is 1
    tokens: int = 0  # number of tokens trained on
    loss_sum: float = 0.0  # nats, since the last logged step
    smoothed_sum: float = 0.0  # the same with label smoothing
    positions: int = 0  # predicted tokens, since the last logged step
    order_sum: float = 0.0  # nats of the sequences' labels, since the last logged step
    orders: int = 0  # labels, since the last logged step
    gradient_norm: float = 0.0  # norm in the last step taken, before clipping
    training_loss: float | None = None  # the last logged training loss
    evaluation: dict[str, Any] | None = None  # the last Evaluation, without predictions
    evaluated_at: int = 0  # the step of the last evaluation
    best_loss: float | None = None  # lowest validation loss
    evaluations: list[tuple[int, float]] = field(default_factory=list)  # step and validation loss of each so far
    skipped: list[int] = field(default_factory=list)  # steps that the guard skips
    skipped_evaluations: list[int] = field(default_factory=list)  # steps whose evaluation the guard ignored
    ended: bool = False  # whether a limit is reached


@dataclass(frozen=True)
class Header:
    """The content of a checkpoint besides its tensors: enough to continue as if the run had not been interrupted."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    progress: Progress
    metrics: HeldLines
    micro_batch: int  # sequences at once
    evaluation_batch: int  # the most sequences at once in an evaluation
    precision: str
    configuration: str  # digest of the settings
    tokenizer: str  # digest
    dataset: str  # digest of its identity
    code: dict[str, str]  # digest of each file
    backend: str  # the attention kernels that run
    usage: Usage
    rates: list[float]  # tokens per second of the steady steps
    device: str  # the name of the device of the newest start
    devices: int = 1  # number of devices of the newest start
    sharded: bool = False  # whether weights, gradients and moments were divided among them
    sequences: dict[str, str] | None = None  # those of its dataset

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Header:
        """The header of a checkpoint. Raises Mistake if a run did not write it."""
        try:
            return _ADAPTER.validate_python(checkpoint.header)
        except ValidationError as error:
            wrong = ".".join(map(str, error.errors()[0]["loc"])) or "all of it"
            raise Mistake(
                f"{checkpoint.path}: its header was not written by a run ({wrong}); remove this file"
            ) from error

    def to_dict(self) -> dict[str, Any]:
        """The header as a dict that JSON can hold."""
        return asdict(self)


_ADAPTER = TypeAdapter(Header)
