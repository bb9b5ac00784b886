"""The interface of a kind of data: it opens a corpus, which identifies its text and reads it.

Each kind is a file, `experiments/data/kinds/KIND.py`, with a subclass of `DataKind`. Its fields are the keys of
`conf/data/NAME.yaml`, of which one kind may have several, and its `open` finds the text.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from experiments.data import documents
from experiments.data.cache import Cache
from experiments.data.readers.pairs import TAB
from experiments.files.digest import file_digest
from experiments.settings.data import DataSettings
from experiments.settings.group import Text
from experiments.settings.plugins import module_file

SPLITS = ("train", "validation", "test")

SplitPlace = TypeVar("SplitPlace")


@dataclass(frozen=True)
class Corpus:
    """The text of a run: its documents by split, and its identity."""

    identity: dict[str, Any]  # JSON-able; changes when the text does
    documents: Callable[[], Iterator[tuple[str, str]]]  # (split, document), in one pass; raises DataError
    size: Callable[[], int | None]  # about how many bytes of text there are, if known: for progress
    # raises DataError if the text is no longer the one that was identified; called when it has been read
    check: Callable[[], None] = lambda: None
    remark: str = ""  # what a run should say of its text

    @property
    def more_documents(self) -> str:
        """What to do about a text that has too few documents."""
        if self.remark:
            # such as that of a table that is read as plain text: it has no blank lines
            return self.remark
        undivided = self.identity.get("documents", "row") == "row"
        return "use more documents" if undivided else "use more and shorter documents (data.documents=row)"


class DataKind(DataSettings):
    """The keys of a kind of data, and the way to its text."""

    @abstractmethod
    def open(self, cache: Cache) -> Corpus:
        """Find the text, and identify it without reading it if possible.

        Raises DataError, within seconds, if there is none.
        """


def open_corpus(data: DataSettings, cache: Cache) -> Corpus:
    """The corpus of checked settings. Raises DataError, within seconds, if there is none."""
    assert isinstance(data, DataKind)
    corpus = data.open(cache)
    if (file := module_file(type(data).__module__)) is None:
        return corpus
    # how it reads text may change at any time
    return replace(corpus, identity={**corpus.identity, "code": file_digest(file)})


class SplitData(DataKind):
    """Data whose keys give the place of each split. Splits without a place are held out of the training split."""

    train: Text  # local files, as a path or a glob; on the hub a split, such as train or train[:95%]
    validation: Text | None  # like train; null: a 20th of the documents of train, by a digest of each text or source
    test: Text | None  # like train; null: another 20th of train if validation is null too, else no test split

    def places(self) -> dict[str, str]:
        """The places of the splits that have one."""
        places = {"train": self.train, "validation": self.validation, "test": self.test}
        return {split: place for split, place in places.items() if place is not None}

    def held_out(self) -> dict[str, int]:
        """The number of 20ths of the training text for each other split; empty if validation has a place."""
        if self.validation is not None:
            return {}
        return {"validation": 1} if self.test is not None else {"validation": 1, "test": 1}

    def assigned(
        self, places: Mapping[str, SplitPlace], texts: Callable[[str, SplitPlace], Iterator[str]]
    ) -> Iterator[tuple[str, str]]:
        """(split, text) for the texts at each place, where some of the training split's go to splits without a
        place.
        """
        for split, place in places.items():
            for text in texts(split, place):
                yield (documents.split_of(self._deciding(text), self.held_out()) if split == "train" else split), text

    def _deciding(self, text: str) -> str:
        """What of a text decides its split: of a pair the source, so that all its translations are in one split."""
        return text.split(TAB)[0] if self.holds_pairs else text
