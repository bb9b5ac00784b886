"""Where the text of a run comes from: one class a kind of source."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from experiments.settings.group import Group, Size, Text

# a document is one row (a line of a text), the rows up to a blank one, or those up to WikiText's next title
Documents = Literal["row", "blank_line", "article"]


class DataSettings(Group):
    """Where text, or pairs of sentences, come from."""

    holds_pairs: ClassVar[bool] = False  # of a source and a target sentence


class PythonDocs(DataSettings):
    """English of the running interpreter's own documentation, made locally."""

    kind: Literal["python_docs"]
    python: Text  # version of the interpreter, as the corpus differs between versions


class HubSet(DataSettings):
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

    holds_pairs: ClassVar[bool] = True
    kind: Literal["hub_pairs"]
    column: Text | None  # that holds a text for each language; null: each language has a column
    source: Text  # language, as the column, or the set, names it
    target: Text


class PairFiles(DataSettings):
    """Local sentence pairs: Parquet, or else UTF-8 lines of a source, a tab, and a target."""

    holds_pairs: ClassVar[bool] = True
    kind: Literal["pairs"]
    source: Text  # columns of Parquet files
    target: Text
    train: Text  # a file, or a glob
    validation: Text | None  # null: a 20th of train, by a digest of each pair; then also for test
    test: Text | None


class TextFiles(DataSettings):
    """Local UTF-8 text."""

    kind: Literal["text"]
    documents: Documents
    train: Text  # a file, or a glob
    validation: Text | None  # null: a 20th of train, by a digest of each text; then also for test
    test: Text | None


class ParquetFiles(DataSettings):
    """Local Parquet files."""

    kind: Literal["parquet"]
    column: Text  # column that holds the text
    documents: Documents
    train: Text  # a file, or a glob
    validation: Text | None  # null: a 20th of train, by a digest of each text; then also for test
    test: Text | None


Data = Annotated[PythonDocs | Hub | HubPairs | PairFiles | TextFiles | ParquetFiles, Field(discriminator="kind")]
