"""Pretraining: a run learns to predict a text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.data.cache import Cache, MissingError
from experiments.data.corpus import open_corpus
from experiments.data.packing import Dataset, obtain
from experiments.data.tokenizer import ReportProgress, Tokenizer, load_named
from experiments.settings.objective import architecture_of
from experiments.settings.run import Settings
from experiments.settings.tokenizer import FileTokenizer

if TYPE_CHECKING:
    from experiments.model.transformer import Transformer
    from experiments.objectives.objective import Objective, Vocabulary


class Pretraining:
    """The text of a corpus, packed, with its own tokenizer; see `experiments.tasks.task.Task`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.cache = Path(settings.cache)
        self.name: str = settings.data.kind
        self.sentinels = settings.objective.sentinel_count()

    def identity(self) -> dict[str, Any] | None:
        """The identity of the text, unless only the hub could tell."""
        # a data set of the hub is not asked for again: what it resolved to is in the result
        data = self.settings.data
        return None if data.needs_network else open_corpus(data, Cache(self.cache, None)).identity

    def tokenizer_digest(self) -> str | None:
        """The digest of a tokenizer from a file, with the sentinels of the objective; None for one that is trained."""
        tokenizer = self.settings.tokenizer
        return self._of_file(tokenizer).digest if tokenizer.kind == "file" else None

    def is_ready(self) -> bool:
        """Whether tokenizer and packed text are in the cache."""
        try:
            self._obtain(Cache(self.cache, None), lambda stage, done, total: None)
        except MissingError:
            return False
        return True

    def prepare(self, report: ReportProgress) -> Dataset:
        """The packed text, made if the cache lacks it."""
        return self._obtain(Cache(self.cache, lambda text: report(text, 0, None)), report)

    def objective(self, vocabulary: Vocabulary) -> Objective:
        """The objective of the settings."""
        from experiments.objectives.objective import build_objective

        return build_objective(self.settings.objective, vocabulary)

    def vocabulary_size(self) -> int:
        """Ids of the tokenizer, with the sentinels of the objective."""
        tokenizer = self.settings.tokenizer
        if tokenizer.kind != "file":
            return tokenizer.vocabulary_size + self.sentinels
        return self._of_file(tokenizer).vocabulary_size

    def _of_file(self, tokenizer: FileTokenizer) -> Tokenizer:
        return load_named(tokenizer).with_sentinels(self.sentinels)

    def remark(self) -> str:
        """Empty: the starting values are functions of the seed."""
        return ""

    def build_model(self, vocabulary_size: int) -> Transformer:
        """The model that the objective trains, without values."""
        from experiments.model.build import construct

        settings = self.settings
        return construct(self._architecture, settings.model, settings.variant, vocabulary_size)

    def build_initialized_model(self, vocabulary_size: int) -> Transformer:
        """The model that the objective trains, with its starting values."""
        from experiments.model.build import build

        settings = self.settings
        return build(self._architecture, settings.model, settings.variant, vocabulary_size, settings.seed)

    @property
    def _architecture(self) -> str:
        return architecture_of(type(self.settings.objective))

    def _obtain(self, cache: Cache, report: ReportProgress) -> Dataset:
        settings = self.settings
        return obtain(settings.data, settings.tokenizer, settings.row_length, cache, report, self.sentinels)
