"""Every setting of a run: its type, its range, and what it is. The values live in `conf/`; nothing here has a default.

The tree mirrors the groups of `conf/`: the keys of a group's YAML are exactly the fields of its class. `variant` is the
one exception: its keys are the arguments of the constructor it names (see `experiments.signature`).
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Size = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Text = Annotated[str, Field(min_length=1)]

Norm = Literal["post", "pre", "sandwich", "deep"]
Precision = Literal["auto", "fp32", "bf16"]
# a document is one row (a line of a text), the rows up to a blank one, or those up to WikiText's next title
Documents = Literal["row", "blank_line", "article"]


class Group(BaseModel):
    """Immutable, strictly typed, and closed: a key nobody reads is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Model(Group):
    """The layers around the attention; sizes in features, lengths in tokens."""

    hidden_size: Size
    intermediate_size: Size
    embedding_size: Size  # width of the embeddings; where it is not hidden_size, linear maps lead there and back
    layers: Size
    sharing: Literal["none", "attention", "feed_forward", "all"]  # sub-layers that are the same in all layers
    length: Size  # longest sequence; the size of a learned position table
    norm: Norm
    norm_kind: Literal["layer", "layer_no_bias", "rms", "batch", "batch_masked"]
    norm_epsilon: Positive
    embedding_norm: bool  # a norm on the sum of the embeddings
    position: Literal["learned", "sinusoidal", "rotary", "relative", "none"]
    rotary_base: Positive
    relative_buckets: Annotated[int, Field(ge=4)]  # T5's buckets of distance, both directions together
    relative_distance: Size  # distances from here on share the last bucket
    activation: Literal["gelu", "gelu_tanh", "relu"]
    gated: bool  # the feed-forward has a second inner map, which the activation's output multiplies
    linear_bias: bool  # biases of the attention's and the feed-forward's linear maps
    token_types: Count  # rows of the token-type table; 0 = no table
    head_transform: bool  # a dense layer, the activation and a norm before the output embedding, as BERT has
    tied: bool  # the output embedding is the input embedding
    head_bias: bool  # a bias on each logit
    output_scaled: bool  # what meets the output embedding is divided by sqrt(hidden_size) first
    dropout: Fraction  # of embeddings and of each sub-layer's output
    attention_dropout: Fraction  # of the attention weights
    # standard deviation of the normal start of linear maps and embeddings; null: 1 / sqrt(inputs) of a map, for queries
    # of unscaled logits 1 / sqrt(inputs key_size), 1 of embeddings
    initial_std: Positive | None

    @model_validator(mode="after")
    def _buckets(self) -> Model:
        if self.relative_buckets % 2 or self.relative_distance <= self.relative_buckets // 4:
            raise ValueError(
                f"relative_buckets {self.relative_buckets} must be even, and less than 4 times "
                f"relative_distance {self.relative_distance}"
            )
        return self

    @model_validator(mode="after")
    def _statistics(self) -> Model:
        if self.norm_kind.startswith("batch") and self.head_transform:
            raise ValueError(
                f"norm_kind {self.norm_kind} needs head_transform=false: that norm sees the predicted positions only"
            )
        if self.norm_kind.startswith("batch") and self.sharing != "none":
            raise ValueError(
                f"norm_kind {self.norm_kind} needs sharing=none: shared norms have one running mean and variance for "
                "layers whose own differ"
            )
        return self


class Task(Group):
    """What an objective asks of the data, whatever its kind; lengths in tokens."""

    reads_targets: ClassVar[bool] = True  # the model is given what it predicts, hidden by what may attend to it
    encodes: ClassVar[bool] = False  # it trains an encoder, where every position attends to the whole text

    def row_length(self, length: int) -> int:
        """Of a row of the packed data, for sequences of `length`."""
        return length

    def tokens_read(self, length: int) -> int | None:
        """That the model reads of a row, padding apart; None: as many as the text has."""
        return length

    def sentinel_count(self) -> int:
        """Special tokens that the vocabulary has for it."""
        return 0


class Masking(Task):
    """Which tokens are predicted, and what stands in their place: 80% [MASK], 10% random, 10% kept in BERT."""

    reads_targets: ClassVar[bool] = False
    encodes: ClassVar[bool] = True
    rate: Annotated[float, Field(gt=0, lt=1)]  # share of the positions to predict
    mask_share: Share  # of those: replaced by [MASK]
    random_share: Share  # of those: replaced by a random token; the rest is kept
    evaluation_seed: Seed  # of the fixed evaluation masks, the same for every run

    @model_validator(mode="after")
    def _shares(self) -> Masking:
        if self.mask_share + self.random_share > 1:
            raise ValueError(
                f"mask_share {self.mask_share} and random_share {self.random_share} are more than 1 together"
            )
        return self


class Masked(Masking):
    """Masked-token prediction (Devlin et al. 2019)."""

    kind: Literal["masked"]


class MaskedSop(Masking):
    """ALBERT's (Lan et al. 2020): masked tokens, and whether two segments of a document are in their order."""

    kind: Literal["masked_sop"]

    def tokens_read(self, length: int) -> None:
        """As many as the longest part of a document in the row."""


class Causal(Task):
    """Prediction of the next token from those before it (Radford et al. 2019)."""

    kind: Literal["causal"]


class Permutation(Task):
    """XLNet's (Yang et al. 2019): tokens predicted one after another in a random order, from all that are known."""

    encodes: ClassVar[bool] = True
    kind: Literal["permutation"]
    predict: Annotated[int, Field(ge=1)]  # K: the last 1/K of the order is predicted
    evaluation_seed: Seed  # of the fixed evaluation orders, the same for every run


class SpanCorruption(Task):
    """T5's (Raffel et al. 2020): spans are taken out of the text, each for a sentinel, and predicted one after another.

    Inputs are the text with a sentinel for each span, targets each sentinel and its span; both end with [SEP].
    """

    kind: Literal["span_corruption"]
    rate: Annotated[float, Field(gt=0, lt=1)]  # share of the tokens that are taken out
    mean_span: Annotated[float, Field(ge=1, allow_inf_nan=False)]  # tokens
    sentinels: Size  # special tokens <extra_id_0>, <extra_id_1>, ...: at least one for each span of a sequence
    evaluation_seed: Seed  # of the fixed evaluation spans, the same for every run

    def spans(self, tokens: int) -> tuple[int, int]:
        """(tokens taken out, spans) of a text of so many tokens, at least one of either."""
        taken = min(max(round(tokens * self.rate), 1), tokens - 1)
        return taken, min(max(round(taken / self.mean_span), 1), taken, tokens - taken)

    def lengths(self, tokens: int) -> tuple[int, int]:
        """(inputs, targets) of a text of so many tokens."""
        taken, spans = self.spans(tokens)
        return tokens - taken + spans + 1, taken + spans + 1

    def text_length(self, length: int) -> int:
        """Of the longest text with inputs of at most `length`: 568 for T5's 512."""
        tokens = 2
        while self.lengths(tokens + 1)[0] <= length:
            tokens += 1
        return tokens

    def row_length(self, length: int) -> int:
        """A row begins with [CLS], which is no part of the text."""
        return self.text_length(length) + 1

    def tokens_read(self, length: int) -> int:
        return sum(self.lengths(self.text_length(length)))

    def sentinel_count(self) -> int:
        return self.sentinels


class Translation(Task):
    """The target sentence from the source sentence and the target's tokens so far (Vaswani et al. 2017)."""

    kind: Literal["translation"]
    beam: Size  # hypotheses of the beam search; 1 with length_penalty 0 is greedy
    length_penalty: NonNegative  # alpha of ((5 + tokens) / 6)^alpha, by which a hypothesis' log likelihood is divided
    bleu_pairs: Count | None  # so many pairs of the validation split are translated when the run ends; null: all

    def row_length(self, length: int) -> int:
        """A sentence of each language."""
        return 2 * length

    def tokens_read(self, length: int) -> int | None:
        return None


Objective = Annotated[
    Masked | MaskedSop | Causal | Permutation | SpanCorruption | Translation, Field(discriminator="kind")
]


class PythonDocs(Group):
    """English of the running interpreter's own documentation, made locally."""

    kind: Literal["python_docs"]
    python: Text  # version of the interpreter, as the corpus differs between versions


class HubSet(Group):
    """A data set of the Hugging Face hub, read through `datasets`."""

    path: Text  # owner/name, or a folder that a data set was downloaded to
    name: Text | None  # configuration of the data set
    revision: Text  # branch, tag or commit; the commit it resolved to is recorded
    column: Text | None
    train: Text  # split expressions, such as train[:95%]
    validation: Text | None  # null: a 20th of train, by a digest of each text; then also for test
    test: Text | None
    streaming: bool  # read over the network as it is packed, without downloading the set; whole splits only
    max_documents: Size | None  # at most so many documents of train, and a 20th of it of validation and test


class Hub(HubSet):
    """Text of the hub."""

    kind: Literal["hub"]
    column: Text  # column that holds the text
    documents: Documents


class HubPairs(HubSet):
    """Sentence pairs of the hub."""

    kind: Literal["hub_pairs"]
    column: Text | None  # that holds a text for each language; null: each language has a column
    source: Text  # language, as the column, or the set, names it
    target: Text


class PairFiles(Group):
    """Local sentence pairs: Parquet, or else UTF-8 lines of a source, a tab, and a target."""

    kind: Literal["pairs"]
    source: Text  # columns of Parquet files
    target: Text
    train: Text  # a file, or a glob
    validation: Text | None  # null: a 20th of train, by a digest of each pair; then also for test
    test: Text | None


class TextFiles(Group):
    """Local UTF-8 text."""

    kind: Literal["text"]
    documents: Documents
    train: Text  # a file, or a glob
    validation: Text | None  # null: a 20th of train, by a digest of each text; then also for test
    test: Text | None


class ParquetFiles(Group):
    """Local Parquet files."""

    kind: Literal["parquet"]
    column: Text  # column that holds the text
    documents: Documents
    train: Text  # a file, or a glob
    validation: Text | None  # null: a 20th of train, by a digest of each text; then also for test
    test: Text | None


Data = Annotated[PythonDocs | Hub | HubPairs | PairFiles | TextFiles | ParquetFiles, Field(discriminator="kind")]


class TrainedTokenizer(Group):
    """Trained on the corpus's training split."""

    kind: Literal["byte_bpe", "wordpiece"]
    vocabulary_size: Annotated[int, Field(ge=300)]  # ids, special tokens included; a small text may support fewer


class FileTokenizer(Group):
    """A `tokenizer.json` of the tokenizers library."""

    kind: Literal["file"]
    path: Text


Tokenizer = Annotated[TrainedTokenizer | FileTokenizer, Field(discriminator="kind")]


class Stepping(Group):
    """What all optimizers have; matrices decay, biases and norms don't."""

    learning_rate: Positive
    projection_rate: Positive  # of the heads' projections (P_l, P_w), as a factor of the learning rate
    weight_decay: NonNegative
    clip: Positive | None  # largest gradient norm; null: no clipping


class AdamW(Stepping):
    """AdamW with decoupled decay (Loshchilov and Hutter 2019)."""

    kind: Literal["adamw"]
    beta1: Fraction
    beta2: Fraction
    epsilon: Positive


class Adafactor(Stepping):
    """Adafactor (Shazeer and Stern 2018): its learning rate is relative to the scale of each parameter."""

    kind: Literal["adafactor"]
    beta2_decay: Annotated[float, Field(lt=0)]  # exponent of the step in 1 - beta2
    least_scale: Positive  # what a parameter counts as where its own root mean square is less
    update_clip: Positive  # largest root mean square of an update before the learning rate


class Muon(Stepping):
    """Muon (Jordan et al. 2024) for the hidden matrices; AdamW, with its betas and epsilon, for the rest."""

    kind: Literal["muon"]
    momentum: Fraction
    nesterov: bool
    newton_schulz_steps: Size
    beta1: Fraction
    beta2: Fraction
    epsilon: Positive


class Lamb(Stepping):
    """LAMB (You et al. 2020), for large batches."""

    kind: Literal["lamb"]
    beta1: Fraction
    beta2: Fraction
    epsilon: Positive


Optimizer = Annotated[AdamW | Adafactor | Muon | Lamb, Field(discriminator="kind")]


class Decay(Group):
    """Warm-up, then a decay over the planned steps."""

    kind: Literal["linear", "cosine"]
    warmup_steps: Count
    final: Share  # learning rate at the end, as a share of the peak


class Endless(Group):
    """Warm-up, then a course that needs no end."""

    kind: Literal["inverse_sqrt", "constant"]
    warmup_steps: Count


Schedule = Annotated[Decay | Endless, Field(discriminator="kind")]


class Trainer(Group):
    batch_size: Size  # sequences a step
    micro_batch: Size | None  # sequences at once; null: the whole batch
    max_steps: Size | None  # the first limit reached ends the run
    max_tokens: Size | None
    max_minutes: Positive | None
    precision: Precision  # auto: bf16 where the hardware is fast at it
    device: Literal["auto", "cpu", "cuda"]
    threads: Size | None  # on a CPU; null: as many as other processes leave cores
    compile: Literal["auto"] | bool  # auto: where a trial says that it pays within the run's length
    label_smoothing: Fraction  # of a target's probability, spread over the vocabulary; in training only
    log_every: Size  # steps
    evaluate_every: Size  # steps
    evaluation_sequences: Size | None  # null: the whole split
    checkpoint_every: Size  # steps
    guard: Literal["stop", "skip", "reload"]  # on a non-finite loss or gradient
    guard_limit: Count  # so many skips or reloads, then stop


class Logger(Group):
    """W&B, a mirror of the run folder."""

    wandb: Literal["auto", "offline", "online", "off"]  # auto: online when logged in
    project: Text
    entity: Text | None
    group: Text | None  # null: the sweep's name
    tags: list[str]


# keys of a group that one of another name decides
DECIDED = {"memory_size": "hidden_size", "softmax_heads": "heads"}


class Settings(Group):
    """One run, whole. `variant` is checked against the constructor it names."""

    # what people vary; groups refer to these by interpolation
    heads: Size
    key_size: Size
    value_size: Size
    hidden_size: Size
    layers: Size
    norm: Norm
    length: Annotated[int, Field(ge=8)]
    batch_size: Size
    learning_rate: Positive
    max_steps: Size | None
    precision: Precision
    backend: Literal["auto", "reference", "sdpa", "blocked", "compiled", "triton"]
    seed: Seed
    runs: Text  # folder of the run folders
    cache: Text  # folder of tokenizers and packed corpora
    # groups
    variant: dict[str, Any]
    model: Model
    objective: Objective
    data: Data
    tokenizer: Tokenizer
    optimizer: Optimizer
    schedule: Schedule
    trainer: Trainer
    logger: Logger

    @property
    def row_length(self) -> int:
        """Tokens of a row of the packed data."""
        return self.objective.row_length(self.length)

    @model_validator(mode="after")
    def _sentinels(self) -> Settings:
        if isinstance(self.objective, SpanCorruption):
            _, spans = self.objective.spans(self.objective.text_length(self.length))
            if spans > self.objective.sentinels:
                raise ValueError(
                    f"objective.sentinels = {self.objective.sentinels}: length={self.length} has {spans} spans, "
                    "and each needs one of its own"
                )
        return self

    @model_validator(mode="after")
    def _pairs(self) -> Settings:
        pairs = isinstance(self.data, PairFiles | HubPairs)
        if pairs != isinstance(self.objective, Translation):
            of_pairs = "data of sentence pairs: data=pairs data.train=FILE, data=multi30k"
            needs = "objective=translation" if pairs else of_pairs
            asks = f"data.kind = {self.data.kind!r}" if pairs else f"objective.kind = {self.objective.kind!r}"
            raise ValueError(f"{asks}: needs {needs}")
        return self

    @model_validator(mode="after")
    def _no_leak(self) -> Settings:
        if self.objective.reads_targets and self.model.norm_kind.startswith("batch"):
            raise ValueError(
                f"model.norm_kind = {self.model.norm_kind}: objective={self.objective.kind} gives the model the tokens "
                "that it predicts, and the statistics of a batch would tell of them; use layer or rms"
            )
        return self

    @model_validator(mode="after")
    def _one_place(self) -> Settings:
        """A key of a group that a key above decides can't differ from it: names and tables say what was trained."""
        above = dict(self)
        for group in ("variant", "model", "optimizer", "trainer"):
            for key, value in dict(above[group]).items():
                decides = DECIDED.get(key, key)
                if decides in above and value != above[decides]:
                    raise ValueError(f"{group}.{key} = {value!r}: is {decides} = {above[decides]!r}; set {decides}")
        return self
