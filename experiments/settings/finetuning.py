"""The settings of a fine-tuned run: those of its pretrained run, and the task. The values live in `conf/task/`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from experiments.failures.unread import Idle
from experiments.failures.wording import as_yaml
from experiments.settings.group import Count, Group, Number, Positive, Size, Text, WhichCheckpoint
from experiments.settings.run import Settings

# a metric of `experiments.tasks.finetuning.scores`
ClassMetric = Literal["accuracy", "f1", "matthews"]
NumberMetric = Literal["pearson", "spearman"]
# what a metric, or a definition of a span's scores, imports and `pip install attn` alone does not bring
LIBRARIES = {"f1": "sklearn", "matthews": "sklearn", "pearson": "scipy", "spearman": "scipy", "cmrc": "nltk"}


class ExampleSource(Group):
    """Where the examples of a task are: a data set of the hub, or local files with the same columns."""

    name: Annotated[str, Field(pattern="^[A-Za-z0-9_-]+$")]  # name of the task, part of the run's name
    path: Text  # owner/name on the hub, or a folder with the downloaded data set
    subset: Text | None  # configuration of the data set
    revision: Text  # branch, tag or commit; the run records the commit
    train: Text  # a split expression, or a local .parquet, .json or .jsonl file; .csv and .tsv if not `span`
    validation: Text | dict[str, Text]  # like `train`; or several by name, each scored by itself
    train_examples: Number | None  # largest number of training examples; null: all
    validation_examples: Number | None  # largest number of validation examples; null: all

    endings: ClassVar[tuple[str, ...]] = (".parquet", ".json", ".jsonl")  # of local files with examples
    has_labels: ClassVar[bool] = False  # its targets are labels, each with a probability that can be smoothed

    def idle(self) -> Iterator[Idle]:
        """The place on the hub, if all splits are local files."""
        if all(map(self.is_file, (self.train, *self.held_out.values()))):
            for key in ("path", "subset", "revision"):
                yield Idle(key, f"train={self.train}", "train=SPLIT")

    def is_file(self, place: str) -> bool:
        """Whether the value of a split names a local file, or several by a pattern."""
        return place.endswith(self.endings)

    def check(self, length: int) -> None:
        """Raise ValueError, as validators do, for windows of a length that the task can't use."""

    @property
    def targets(self) -> int:
        """The targets of a window, as numbers: one label or number."""
        return 1

    @property
    def columns(self) -> dict[str, str]:
        """The columns that are read, each with the setting that names it."""
        raise NotImplementedError

    @property
    def outputs(self) -> int | None:
        """Outputs of the head for a whole window; None: of each token, where an answer begins and where it ends."""
        raise NotImplementedError

    @property
    def held_out(self) -> dict[str, str]:
        """The validation splits by name; a single one has none."""
        return self.validation if isinstance(self.validation, dict) else {"": self.validation}


class Span(ExampleSource):
    """Find the answer to a question in a text (Rajpurkar et al. 2016, 1606.05250), in sliding windows."""

    kind: Literal["span"]
    validation: Text  # one split
    id: Text  # column of the id
    question: Text  # column of the question
    context: Text  # column of the text with the answer
    answers: Text  # column with {text: [...], answer_start: [...]}
    document_stride: Size  # tokens from the start of one window to that of the next
    max_question: Size  # tokens of a question that are kept; the rest is cut
    max_answer: Size  # longest answer, in tokens
    n_best: Size  # number of starts, and of ends, that are tried in each window
    window_score: Literal["logits", "log_probabilities"]  # score by which spans of different windows are compared
    scores_of: Literal["squad", "cmrc"]  # whose definition of exact match and F1 applies

    def check(self, length: int) -> None:
        """[CLS] question [SEP] context [SEP] must have room for at least one token of the context."""
        if self.max_question + 4 > length:
            raise ValueError(
                f"task.max_question = {self.max_question}: a window of length={length} has room for "
                f"at most {length - 4} tokens of a question"
            )

    @property
    def score_names(self) -> list[str]:
        """Names of the scores in a result, those of SQuAD."""
        return ["exact_match", "f1"]

    @property
    def targets(self) -> int:
        """The first and the last token of an answer."""
        return 2

    @property
    def columns(self) -> dict[str, str]:
        """The columns of a question."""
        return {getattr(self, key): f"task.{key}" for key in ("id", "question", "context", "answers")}

    @property
    def outputs(self) -> None:
        """None: each token has its own outputs."""
        return None


class Labelled(ExampleSource):
    """Texts, or pairs of texts, of which each has an answer of its own in a column."""

    endings: ClassVar[tuple[str, ...]] = (*ExampleSource.endings, ".csv", ".tsv")
    texts: Annotated[list[Text], Field(min_length=1, max_length=2)]  # columns of the texts
    label: Text  # column of the label
    metrics: Sequence[str]  # the scores, of which the first counts

    @property
    def score_names(self) -> list[str]:
        """Names of the scores in a result; where there are several validation splits, each ends with its split's."""
        return [f"{metric}_{split}" if split else metric for metric in self.metrics for split in self.held_out]

    @property
    def columns(self) -> dict[str, str]:
        """The columns of the texts and of the answer."""
        return dict.fromkeys(self.texts, "task.texts") | {self.label: "task.label"}

    @model_validator(mode="after")
    def _unseen_answer(self) -> Labelled:
        if self.label in self.texts:
            raise ValueError(f"texts {as_yaml(self.texts)}: {self.label} is task.label, which a model must not read")
        return self


class Classification(Labelled):
    """Predict one of several labels for a text, or for a pair of texts."""

    has_labels: ClassVar[bool] = True
    kind: Literal["classification"]
    labels: Annotated[list[Text], Field(min_length=2)]  # names of the labels, in the order of their numbers
    metrics: Annotated[list[ClassMetric], Field(min_length=1)]  # the scores, of which the first counts

    @property
    def outputs(self) -> int:
        """One logit for each label."""
        return len(self.labels)

    @model_validator(mode="after")
    def _different(self) -> Classification:
        if twice := [label for label in self.labels if self.labels.count(label) > 1]:
            raise ValueError(f"labels {as_yaml(self.labels)}: {twice[0]} is given twice; each label needs its own name")
        return self

    @model_validator(mode="after")
    def _binary(self) -> Classification:
        if "f1" in self.metrics and len(self.labels) != 2:
            raise ValueError(f"metrics {self.metrics}: f1 needs two labels, not {len(self.labels)}")
        return self


class Regression(Labelled):
    """Predict a number for a text, or for a pair of texts."""

    kind: Literal["regression"]
    metrics: Annotated[list[NumberMetric], Field(min_length=1)]  # the scores, of which the first counts

    @property
    def outputs(self) -> int:
        """The number."""
        return 1


Benchmark = Annotated[Span | Classification | Regression, Field(discriminator="kind")]


class Origin(Group):
    """The identity of the weights that a fine-tuned run starts from, independent of their folder."""

    run: Text  # name of the pretrained run's folder
    step: Count
    digest: Text  # hex SHA-256 of the checkpoint's file
    tokenizer: Text  # hex SHA-256


class FinetuningSettings(Settings):
    """A run that starts from another run's weights, with the `objective`, `data` and `tokenizer` of that run."""

    pretrained: Text  # folder of the pretrained run
    checkpoint: WhichCheckpoint  # checkpoint of the pretrained run
    origin: Origin
    epochs: Positive | None  # limit on epochs; the first limit that is reached ends the run
    task: Benchmark

    @property
    def row_length(self) -> int:
        """Tokens of a window, the longest that the model reads at once."""
        return self.length

    @property
    def learns_from(self) -> Group:
        """The settings of the task."""
        return self.task

    @property
    def measured(self) -> list[str]:
        """The scores of the task, which has no perplexity."""
        return [f"scores.{name}" for name in self.task.score_names]

    @property
    def epoch_limit(self) -> float | None:
        """The key `epochs`."""
        return self.epochs

    @property
    def step_limits(self) -> list[str]:
        """Windows differ in length, so no number of tokens is among them."""
        return ["max_steps", "epochs"]

    @model_validator(mode="after")
    def _room(self) -> FinetuningSettings:
        self.task.check(self.length)
        return self

    @model_validator(mode="after")
    def _smoothed(self) -> FinetuningSettings:
        """Positions of padding, which have no probability, can't get a share of it; numbers have none at all."""
        if self.trainer.label_smoothing and not self.task.has_labels:
            raise ValueError(
                f"trainer.label_smoothing = {self.trainer.label_smoothing}: task={self.task.name} has no labels to "
                "smooth; set 0"
            )
        return self

    @model_validator(mode="after")
    def _whole_examples(self) -> FinetuningSettings:
        if self.trainer.evaluation_sequences is not None:
            raise ValueError(
                f"trainer.evaluation_sequences = {self.trainer.evaluation_sequences}: whole examples are scored; "
                "set task.validation_examples"
            )
        if self.trainer.max_tokens is not None:
            raise ValueError(
                f"trainer.max_tokens = {self.trainer.max_tokens}: windows differ in length; set epochs or max_steps"
            )
        return self
