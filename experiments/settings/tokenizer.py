"""How text becomes tokens."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from experiments.settings.group import Group, Text


class TrainedTokenizer(Group):
    """Trained on the corpus's training split."""

    kind: Literal["byte_bpe", "wordpiece"]
    vocabulary_size: Annotated[int, Field(ge=300)]  # ids, special tokens included; a small text may support fewer


class FileTokenizer(Group):
    """A `tokenizer.json` of the tokenizers library."""

    kind: Literal["file"]
    path: Text


Tokenizer = Annotated[TrainedTokenizer | FileTokenizer, Field(discriminator="kind")]
