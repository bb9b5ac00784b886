"""The interface of a kind of data's settings, which the rest of the program reads.

The kinds are in `experiments/data/kinds/`, one file each. `experiments/data/corpus.py` explains how to write one.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, ValidationInfo

from experiments.settings.group import Group, Text

# a document is one row (a line of a text), the rows up to a blank one, or those up to WikiText's next title
Documents = Literal["row", "blank_line", "article"]
TABLES_OF_TEXT = {".csv", ".tsv", ".json", ".jsonl"}  # endings of files whose text is in a column


def _other_than_source(target: str, others: ValidationInfo) -> str:
    if target == others.data.get("source"):
        raise ValueError(f"must differ from data.source={target}")
    return target


Target = Annotated[Text, AfterValidator(_other_than_source)]  # the target's name in pairs, after that of the source


class DataSettings(Group):
    """The place of a text, or of pairs of sentences."""

    holds_pairs: ClassVar[bool] = False  # of a source and a target sentence
    needs_network: ClassVar[bool] = False  # to say what exactly the text is

    kind: str
