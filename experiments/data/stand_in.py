"""A text that every machine has, which replaces a corpus if only the time or the memory of a step matters."""

from __future__ import annotations

import itertools
import platform
from pathlib import Path

from experiments.data.kinds.pairs import PairFiles
from experiments.data.kinds.python_docs import PythonDocs
from experiments.data.readers.pairs import TAB
from experiments.data.readers.python_docs import documents
from experiments.settings.data import DataSettings

PAIRS = 4096  # sentence pairs that are written


def stand_in(pairs: bool, folder: Path, length: int) -> DataSettings:
    """The data to train on: this Python's documentation, or sentence pairs made of it and written to `folder`.

    A side of a pair has half as many words as `length`, the tokens that it may have: the longest side of a batch is
    then about as long as is allowed.
    """
    if not pairs:
        return PythonDocs(kind="python_docs", python=platform.python_version())
    size = max(1, length // 2)
    words = list(itertools.islice((word for text in documents() for word in text.split()), 2 * PAIRS * size))
    sides = [" ".join(words[start : start + size]) for start in range(0, len(words), size)]
    lines = (f"{source}{TAB}{target}\n" for source, target in zip(sides[::2], sides[1::2], strict=False))
    path = folder / "pairs.tsv"
    path.write_text("".join(lines), encoding="utf-8")
    return PairFiles(kind="pairs", source="source", target="target", train=str(path), validation=None, test=None)
