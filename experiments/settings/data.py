"""What every kind of data says of itself: all that the rest of the program asks.

The kinds stand in `experiments/data/kinds/`, one file each; `experiments/data/corpus.py` says how one is written.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from experiments.settings.group import Group

# a document is one row (a line of a text), the rows up to a blank one, or those up to WikiText's next title
Documents = Literal["row", "blank_line", "article"]


class DataSettings(Group):
    """Where text, or pairs of sentences, come from."""

    holds_pairs: ClassVar[bool] = False  # of a source and a target sentence
    needs_network: ClassVar[bool] = False  # to say what exactly the text is

    kind: str
