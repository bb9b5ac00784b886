"""The content of `result.json`: the findings of a run, how they were measured, and how the run ended."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import to_json

from experiments.files.durable import number

# pruned: ended by a search because other trials are better; imported: weights from another program
Status = Literal["done", "failed", "nan", "oom", "interrupted", "pruned", "imported"]
Number = Annotated[float, BeforeValidator(number)]
# what is said of a run with the status nan, and what to do about it
DIVERGED = "diverged (status nan)"
AFTER_DIVERGENCE = "try a third of its learning_rate, or a longer warm-up (schedule.warmup_steps)"
BEFORE_FIRST_UPDATE = (
    "no weight had been updated, so its model, not its learning rate, gives what is not finite; precision=fp32 tells "
    "whether rounding does"
)
# a result as readers of many of them take it: every field by its name, and what they add, such as the run's name
Fields = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Result:
    """The outcome of a run. A number that was not measured, as in a run that did not finish, is None."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    status: Status
    reason: str | None  # why the run is not done

    # quality: nats per predicted token, on the validation split unless said otherwise
    validation_loss: Number | None  # = ln perplexity
    best_validation_loss: Number | None  # lowest of all evaluations
    training_loss: Number | None  # at the end
    # gain of validation loss from the last evaluation in the first nine tenths of the steps taken to the end; None:
    # there is none; with trainer.evaluate_every=180 and a multiple of 200 steps it is the gain of the last tenth
    late_gain: Number | None = None
    unigram_loss: Number | None  # loss of predicting every token from its frequency in the training split
    perplexity: Number | None
    bits_per_byte: Number | None
    unknown_share: Number | None = None  # of [UNK] among the tokens of the validation split
    text_scores: dict[str, Number] | None = None  # of texts that the model generated, as its objective names them
    text_scores_meaning: str | None = None  # how they were computed, such as sacrebleu's signature
    scored_texts: int | None = None  # of the validation split
    # nats per sequence, for predicting the order of segments; None: not part of the objective
    order_loss: Number | None = None
    order_accuracy: Number | None = None  # share of the sequences
    scores: dict[str, Number] | None = None  # of a task, which has no perplexity

    # speed and memory
    tokens_per_second: Number | None  # non-padding tokens, steady state, of all devices together
    tokens_per_second_spread: Number | None  # same unit; throughput_meaning explains it
    throughput_meaning: str | None  # how it was measured
    peak_memory_bytes: int | None  # of the device with the highest peak
    peak_memory_meaning: str | None  # what it counts
    peak_memory_of_all_bytes: int | None = None  # the sum over the devices of the last start

    # cost
    parameters: dict[str, int] | None  # by part, and `total`
    flops_per_token: Number | None  # of training: forward and backward
    mfu: Number | None  # None where the peak of the device is not known

    # extent
    steps: int
    skipped_steps: int  # by the guard, on a non-finite loss or gradient
    tokens: int
    epochs: Number
    wall_seconds: Number  # over all the starts of the run, from the first step on
    processor_seconds: Number | None = None  # of all threads, likewise; the cost, however busy the machine was

    # conditions
    backend: str | None  # attention kernels that ran, joined by +
    precision: str | None
    compiled: bool | None = None  # whether torch.compile compiled the layers; None: not recorded
    device: str | None
    devices: int = 1  # number of devices that shared its batches when it ended, each of this kind
    sharded: bool = False  # whether weights, gradients and moments were divided among the devices
    micro_batch: int | None  # sequences at once
    cells_at_once: int = 1  # the most cells of its sweep that were trained side by side while its speed was measured
    # the largest share of the time of a start, likewise, in which other processes used its cores; None: unknown
    waited_for_cores: Number | None = None
    seed: int
    config: dict[str, Any] | None  # the resolved settings, as in config.yaml
    corpus: dict[str, Any] | None  # identity: kind, revision, digest, ...
    sequences: dict[str, str] | None = None  # digest of the tokens that it read, by their folder in the cache
    tokenizer_digest: str | None
    code_digest: str | None  # digest of the code that it computed with; environment.json has each file's

    def __post_init__(self) -> None:
        if self.status == "done":
            assert self.reason is None and self.validation_loss is not None
            assert (self.perplexity is None) == (self.scores is not None)
        else:
            assert self.reason, f"status {self.status} needs a reason"

    @classmethod
    def unfinished(cls, status: Status, reason: str, **fields: Any) -> Result:
        """A result with None for every number that is not in `fields` (steps, tokens, ... always are)."""
        unknown = {field.name: None for field in dataclasses.fields(cls) if "None" in str(field.type)}
        return cls(**{**unknown, **fields, "status": status, "reason": reason})

    def to_dict(self) -> Fields:
        """The fields as a dict, nested ones too."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Result:
        """Read the dict that `to_dict` gave. Raises ValueError, in one line, for unknown, missing and mistyped keys."""
        try:
            # as JSON: of Python's values, strictly, nothing but an instance would be taken
            return _ADAPTER.validate_json(to_json(content, inf_nan_mode="constants"))
        except ValidationError as error:
            faults = [_fault(item["loc"], item["type"], item["msg"]) for item in error.errors()]
            raise ValueError("; ".join(faults)) from None
        except AssertionError as error:
            raise ValueError(f"its numbers do not fit its status: {error}") from None


def advice_after_divergence(steps: int, skipped_steps: int) -> str:
    """The first thing to try after a run with the status nan that ended at this step, after it skipped so many."""
    return AFTER_DIVERGENCE if steps > skipped_steps else BEFORE_FIRST_UPDATE


def _fault(location: tuple[int | str, ...], kind: str, message: str) -> str:
    key = ".".join(map(str, location))
    faults = {"unexpected_keyword_argument": f"unknown key {key}", "missing": f"missing key {key}"}
    return faults.get(kind, f"{key}: {message}" if key else message)


_ADAPTER = TypeAdapter(Result)
# of a run that has no result, or none that can be trusted
UNKNOWN: Fields = dict.fromkeys(field.name for field in dataclasses.fields(Result))
