"""Sentence pairs of the Hugging Face hub."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from experiments.data.errors import OTHER_PAIRS, DataError, suggestion
from experiments.data.kinds.hub import HubSet
from experiments.data.readers.pairs import joined
from experiments.settings.data import Documents, Target
from experiments.settings.group import Text


class HubPairs(HubSet):
    """A data set of the Hugging Face hub with sentence pairs."""

    holds_pairs: ClassVar[bool] = True
    instead: ClassVar[str] = OTHER_PAIRS
    kind: Literal["hub_pairs"]
    column: Text | None  # column with a text for each language; null: one column per language
    source: Text  # source language, as the column or the data set names it
    target: Target  # target language, as the column or the data set names it

    @property
    def grouping(self) -> Documents:
        """A pair is a document."""
        return "row"

    def columns(self) -> dict[str, str]:
        """The column with both languages, or one column each."""
        return {"data.column": self.column} if self.column else {"data.source": self.source, "data.target": self.target}

    def text_of(self, row: dict[str, Any]) -> str | None:
        """The pair of a row; None where a side is empty. Raises DataError for a language that isn't there."""
        value = row[self.column] if self.column else row
        languages = list(value) if isinstance(value, dict) else []
        for key, language in (("source", self.source), ("target", self.target)):
            if language not in languages:
                hint = suggestion(language, languages) or f": {type(value).__name__}, not a text for each language"
                raise DataError(f"data.{key}={language}: data.column={self.column} of {self.path} has no such{hint}")
        source, target = value[self.source], value[self.target]
        for key, text in (("source", source), ("target", target)):
            if text is not None and not isinstance(text, str):
                raise DataError(f"data.{key}: data set {self.path} has {type(text).__name__} there, not text")
        return joined(source, target) if source and target else None
