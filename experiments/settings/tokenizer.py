"""The settings of tokenizers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from experiments.settings.group import LARGEST_SIZE, Group, Size, Text


class TrainedTokenizer(Group):
    """A tokenizer that is trained on the corpus's training split."""

    kind: Literal["byte_bpe", "wordpiece"]
    # ids, special tokens included; a small text may support fewer
    vocabulary_size: Annotated[int, Field(ge=300, le=LARGEST_SIZE)]
    # number of characters that WordPiece knows; null: up to 1,000 letters, and Chinese characters for half of the ids
    alphabet: Size | None = None

    @model_validator(mode="after")
    def _alphabet(self) -> TrainedTokenizer:
        if self.alphabet is not None and self.kind == "byte_bpe":
            raise ValueError(f"alphabet {self.alphabet}: is only of wordpiece, as byte_bpe knows every byte")
        if self.alphabet is not None and 2 * self.alphabet > self.vocabulary_size:
            raise ValueError(
                f"alphabet {self.alphabet}: must be at most half of vocabulary_size {self.vocabulary_size}"
            )
        return self


class FileTokenizer(Group):
    """A `tokenizer.json` of the tokenizers library."""

    kind: Literal["file"]
    path: Text  # a tokenizer.json


TokenizerSettings = Annotated[TrainedTokenizer | FileTokenizer, Field(discriminator="kind")]
