"""One run, whole: what people vary, and the groups that refer to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from attention.kernels import kernel_modules
from experiments.failures.unread import Idle
from experiments.failures.wording import as_yaml
from experiments.settings.data import DataSettings
from experiments.settings.devices import largest_part
from experiments.settings.group import LARGEST_SIZE, Depth, Folder, Group, Number, Rate, Seed, Size
from experiments.settings.kinds import kinds, one_of
from experiments.settings.logger import Logger
from experiments.settings.model import Model, Norm
from experiments.settings.objective import ObjectiveSettings
from experiments.settings.optimizer import Optimizer
from experiments.settings.position import POSITION_KINDS
from experiments.settings.schedule import Schedule
from experiments.settings.tokenizer import TokenizerSettings
from experiments.settings.trainer import Precision, Trainer
from experiments.settings.variant import keys_read_by, mixes_heads, module_of

OBJECTIVE_KINDS = kinds("experiments.objectives.kinds", ObjectiveSettings, "ObjectiveKind")

if TYPE_CHECKING:
    Objective = ObjectiveSettings
    Data = DataSettings
    BackendName = str
else:
    BackendName = Literal[("auto", *kernel_modules())]
    Objective = Annotated[one_of(OBJECTIVE_KINDS), Field(discriminator="kind")]
    Data = Annotated[one_of(kinds("experiments.data.kinds", DataSettings, "DataKind")), Field(discriminator="kind")]

# the kinds of positions with which a setting is read
READ_WITH_POSITIONS = {
    key: [name for name, kind in POSITION_KINDS.items() if key in kind.reads]
    for key in dict.fromkeys(key for kind in POSITION_KINDS.values() for key in kind.reads)
}
# keys of a group that one of another name decides
DECIDED = {"memory_size": "hidden_size", "softmax_heads": "heads"}


class Settings(Group):
    """One run, whole. `variant` is checked against the constructor it names."""

    # what people vary; groups refer to these by interpolation
    heads: Size  # attention heads of a layer
    key_size: Size  # d_k, width of queries and keys per head
    value_size: Size  # d_v, width of values per head
    hidden_size: Size  # width of the residual stream
    layers: Depth  # depth of the model
    norm: Norm  # where norms stand, see norms.md
    length: Annotated[int, Field(ge=8, le=LARGEST_SIZE)]  # tokens in a sequence
    batch_size: Size  # sequences in a step
    learning_rate: Rate  # peak learning rate, see optimizers.md
    max_steps: Number | None  # steps of the run; null: another limit ends it
    precision: Precision  # auto: bf16 if the hardware has fast instructions for it
    backend: BackendName  # attention kernel; auto: the fastest that is exact for the case
    seed: Seed  # seed of starting values, batches, masks and dropout
    runs: Folder  # folder of the run folders
    cache: Folder  # folder of tokenizers and packed corpora
    # groups
    variant: dict[str, Any]
    model: Model
    objective: Objective
    data: Data
    tokenizer: TokenizerSettings
    optimizer: Optimizer
    schedule: Schedule
    trainer: Trainer
    logger: Logger

    @property
    def row_length(self) -> int:
        """Tokens of a row of the packed data."""
        return self.objective.row_length(self.length)

    @property
    def learns_from(self) -> Group:
        """The settings of what the run learns from: a text, or the examples of a task."""
        return self.data

    @property
    def measured(self) -> list[str]:
        """The numbers of a result that not every finished run has: those of a text, and of the objective."""
        # sentinels, which are predicted too, are no part of the text
        of_bytes = [] if self.objective.sentinel_count() else ["bits_per_byte"]
        return ["perplexity", *of_bytes, "unknown_share", *self.objective.measured()]

    @property
    def epoch_limit(self) -> float | None:
        """The largest number of epochs; None for no limit, as for a text."""
        return None

    @property
    def step_limits(self) -> list[str]:
        """The keys of the limits that are known in steps before the run; tokens are not where batches vary."""
        has_tokens = self.objective.tokens_read(self.length) is not None
        return ["max_steps", "trainer.max_tokens"] if has_tokens else ["max_steps"]

    def idle(self) -> Iterator[Idle]:
        """Those of each group, and those that the kind of positions or the variant does not read."""
        for name, group in self:
            if isinstance(group, Group):
                yield from (each.within(name) for each in group.idle())
        position, variant = self.model.position, self.variant["name"]
        for key, readers in READ_WITH_POSITIONS.items():
            if position not in readers:
                yield Idle(key, f"model.position={position}", f"model.position={' or '.join(readers)}")
        for key in ("key_size", "value_size"):
            if key not in self.variant and key not in keys_read_by(variant):
                yield Idle(key, f"variant={variant}", "variant=multi_head")
        if not mixes_heads(module_of(self.variant)):
            yield Idle("optimizer.head_mixing_rate_factor", f"variant={variant}", "variant=talking_heads")

    def why_not_over(self, devices: int) -> str | None:
        """The reason, in a sentence, why the run cannot be divided among this many devices; None if it can."""
        trainer, model = self.trainer, self.model
        largest = largest_part(trainer.batch_size, devices)
        drops = model.dropout or model.attention_dropout or self.variant.get("dropout")
        if devices == 1:
            return None
        if trainer.device.startswith("cuda:"):
            return f"trainer.device={trainer.device}: is one GPU; over {devices} devices it must be auto or cuda"
        if model.norms_by_batch:
            return (
                f"model.norm_kind={model.norm_kind}: its running statistics follow the parts of a batch one after the "
                f"other, so trainer.devices must be 1, not {devices}"
            )
        if trainer.sharded and trainer.compile is True:
            return "trainer.compile=true: compiled layers can't be divided among devices; leave it out"
        if largest == 0:
            return f"batch_size={trainer.batch_size}: each of {devices} devices needs a sequence of every batch"
        if drops and (size := trainer.micro_batch or trainer.batch_size) > largest:
            return (
                f"trainer.micro_batch={size}: dropout is drawn for each micro-batch, and for {devices} devices to have "
                f"one each it must be at most {largest}; set it on one device too for the same run"
            )
        return None

    @model_validator(mode="after")
    def _long_enough(self) -> Settings:
        self.objective.check(self.length)
        return self

    @model_validator(mode="after")
    def _pairs(self) -> Settings:
        pairs = self.data.holds_pairs
        if pairs != self.objective.reads_pairs:
            of_pairs = "data of sentence pairs: data=pairs data.train=FILE, data=multi30k"
            readers = (kind for kind, of in OBJECTIVE_KINDS.items() if of.reads_pairs)
            needs = " or ".join(f"objective={kind}" for kind in readers) if pairs else of_pairs
            asks = f"data.kind = {self.data.kind!r}" if pairs else f"objective.kind = {self.objective.kind!r}"
            raise ValueError(f"{asks}: needs {needs}")
        return self

    @model_validator(mode="after")
    def _no_leak(self) -> Settings:
        if self.objective.reads_targets and self.model.norms_by_batch:
            raise ValueError(
                f"model.norm_kind = {self.model.norm_kind}: objective={self.objective.kind} gives the model the tokens "
                "that it predicts, and the statistics of a batch would leak them; use layer or rms"
            )
        return self

    @model_validator(mode="after")
    def _recurrent(self) -> Settings:
        if self.model.segment_length is not None and self.objective.architecture != "causal_decoder":
            raise ValueError(
                f"model.segment_length = {self.model.segment_length}: segments follow each other in a causal decoder "
                f"(objective=causal), not in objective={self.objective.kind}; set null"
            )
        return self

    @model_validator(mode="after")
    def _shared(self) -> Settings:
        if self.trainer.devices != "auto" and (reason := self.why_not_over(self.trainer.devices)):
            raise ValueError(reason)
        return self

    @model_validator(mode="after")
    def _one_place(self) -> Settings:
        """A group's key that follows a top-level key must equal it: names and tables say what was trained."""
        # a sweep of thousands of cells passes through here
        above = vars(self)
        for group in ("variant", "model", "optimizer", "trainer"):
            values = above[group]
            for key, value in (values if isinstance(values, dict) else vars(values)).items():
                decides = DECIDED.get(key, key)
                if decides in above and value != above[decides]:
                    decided = f"{decides} = {as_yaml(above[decides])}; set {decides}"
                    raise ValueError(f"{group}.{key} = {as_yaml(value)}: must be {decided}")
        return self
