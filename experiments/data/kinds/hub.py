"""Text of the Hugging Face hub."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from itertools import islice
from typing import Any, ClassVar, Literal

from experiments.data.cache import Cache
from experiments.data.corpus import SPLITS, Corpus, SplitData
from experiments.data.documents import SHARES, group
from experiments.data.errors import OTHER_DATA, DataError, changed_while_read
from experiments.data.readers import hub
from experiments.data.readers.files import check_column
from experiments.settings.data import Documents
from experiments.settings.group import Number, Text


class HubSet(SplitData):
    """A data set of the hub; `train`, `validation` and `test` are split expressions, such as train[:95%]."""

    needs_network: ClassVar[bool] = True
    instead: ClassVar[str] = OTHER_DATA  # what to take where the set can't be had

    path: Text  # owner/name on the hub, or a folder with the downloaded data set
    name: Text | None  # configuration of the data set
    revision: Text  # branch, tag or commit; the run records the commit
    column: Text | None
    streaming: bool  # read over the network while packing, without downloading the set; whole splits only
    max_documents: Number | None  # largest number of train documents; validation and test have a 20th of it

    @property
    @abstractmethod
    def grouping(self) -> Documents:
        """Which rows make a document."""

    @abstractmethod
    def columns(self) -> dict[str, str]:
        """The columns that are read, by the key that asks for each."""

    @abstractmethod
    def text_of(self, row: dict[str, Any]) -> object:
        """The text of a row of these columns; None where it has none. Raises DataError."""

    @property
    def place(self) -> hub.HubPlace:
        """The set's place on the hub."""
        return hub.HubPlace(self.path, self.name, self.revision, self.streaming, self.instead)

    def open(self, cache: Cache) -> Corpus:
        """Find the set. Raises DataError if it does not exist or cannot be reached, and if splits have common rows."""
        hub.check_splits({f"data.{split}": place for split, place in self.places().items()})
        exact = hub.source(self.place, cache)

        def texts(split: str, expression: str) -> Iterator[str]:
            most = self.max_documents
            if most is not None and split != "train":
                most = -(-most // SHARES)
            rows = hub.rows(self.place, expression, exact, cache, self._checked)
            return islice(group(self._texts(rows, expression), self.grouping), most)

        identity = {
            **self.model_dump(exclude={"path", "revision", "streaming", *SPLITS}),
            **({"path": self.path} if "commit" in exact else {}),
            **exact,
            "splits": self.places(),
            "held_out": self.held_out(),
        }

        def check() -> None:
            if "commit" not in exact and hub.source(self.place, cache) != exact:
                raise changed_while_read(f"data.path={self.path}: a file")

        return Corpus(identity, lambda: self.assigned(self.places(), texts), lambda: None, check)

    def _checked(self, where: str, names: list[str]) -> list[str]:
        for key, column in self.columns().items():
            check_column(where, column, names, key)
        return list(self.columns().values())

    def _texts(self, rows: Iterator[dict[str, Any]], split: str) -> Iterator[str]:
        for number, row in enumerate(rows):
            text = self.text_of(row)
            if isinstance(text, str):
                yield text
            elif text is not None:
                kind = type(text).__name__
                where = f"{split} of data set {self.path}, row {number},"
                raise DataError(f"data.column={self.column}: {where} has {kind} there, not text")


class Hub(HubSet):
    """A data set of the Hugging Face hub with a column of text."""

    kind: Literal["hub"]
    column: Text  # column that holds the text
    documents: Documents  # what makes a document: a row, the rows up to a blank one, or up to WikiText's next heading

    @property
    def grouping(self) -> Documents:
        """How rows become documents: the setting `documents`."""
        return self.documents

    def columns(self) -> dict[str, str]:
        """The one column of text."""
        return {"data.column": self.column}

    def text_of(self, row: dict[str, Any]) -> object:
        """The text in the column."""
        return row[self.column]
