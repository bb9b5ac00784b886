"""Errors of data, with messages that tell the reader what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from experiments.failures.failure import Mistake
from experiments.failures.wording import did_you_mean
from experiments.settings.data import TABLES_OF_TEXT

OTHER_DATA = "data=python_docs needs no network; data=text data.train=FILE reads a text of your own"
READS_COLUMN = "data=hub data.path=FOLDER data.column=NAME reads"  # a column of the files of a folder
OTHER_EXAMPLES = "task.train=FILE and task.validation=FILE read examples of your own"
OTHER_PAIRS = "data=pairs data.train=FILE reads pairs of your own"


class DataError(Mistake):
    """A corpus, tokenizer or cache that cannot be used as requested; the message is one line."""


def changed_while_read(what: str) -> DataError:
    """The error for a file that changed, as one does that another process still writes."""
    return DataError(f"{what} changed while it was read; give the command again when it is whole")


def reader_of(file: PurePath) -> str:
    """The settings with which a file is read whose name ends like this, in a hint."""
    if TABLES_OF_TEXT.intersection(file.suffixes):
        return f"{READS_COLUMN} it, in a folder of its own"
    kind = "parquet" if file.suffix == ".parquet" else "text"
    return f"data={kind} data.train={file} reads it"


def suggestion(name: str, known: Iterable[str]) -> str:
    """`; there is a, b, c (did you mean b?)`, for a message about a name that is not among the known ones."""
    names = sorted(known)
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    return f"; there is {shown}" + did_you_mean(name, names) if names else ""


def why_not_both(*keys: str) -> str:
    """The reason why the splits of two settings must not share a text."""
    if {"data.train", "task.train"} & {*keys}:
        return "a text for evaluation must not be trained on"
    return "a text for evaluation must be in one split only"
