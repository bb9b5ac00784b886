"""The base of kinds of local files: the files of each split, and how rows become documents."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path

from experiments.data import files
from experiments.data.corpus import SPLITS, Corpus, SplitData
from experiments.data.documents import group
from experiments.data.errors import DataError
from experiments.data.store import Cache
from experiments.settings.data import Documents


class LocalFiles(SplitData):
    """Local files, with a path or a glob for each split."""

    @abstractmethod
    def rows(self, path: Path) -> Iterator[str]:
        """The rows of a file. Raises DataError."""

    @property
    @abstractmethod
    def grouping(self) -> Documents:
        """Which rows make a document."""

    def columns(self, path: Path) -> list[str]:
        """The columns that are read of a Parquet file; none of a text."""
        return []

    def open(self, cache: Cache) -> Corpus:
        """Raises DataError for a file that isn't there, or that is in two splits."""
        paths = {split: files.find(f"data.{split}", pattern) for split, pattern in self.places().items()}
        _check_disjoint(paths)

        def texts(split: str, paths: list[Path]) -> Iterator[str]:
            return (text for path in paths for text in group(self.rows(path), self.grouping))

        def sha256(path: Path) -> str:
            return cache.file_digest(path, files.blocks if self.columns(path) else files.text_bytes)

        every = [path for each in paths.values() for path in each]
        digests = {path: sha256(path) for path in every}
        _check_different(paths, digests)
        identity = {
            **self.model_dump(exclude=set(SPLITS)),
            "sha256": {split: [digests[path] for path in each] for split, each in paths.items()},
            "held_out": self.held_out(),
        }

        def check() -> None:
            for path, known in digests.items():
                if sha256(path) != known:
                    raise DataError(f"{path} changed while it was read; give the command again when it is whole")

        return Corpus(identity, lambda: self.assigned(paths, texts), lambda: self._size(every), check)

    def _size(self, paths: Iterable[Path]) -> int:
        sizes = (
            sum(files.parquet_size(path, column) for column in columns)
            if (columns := self.columns(path))
            else path.stat().st_size
            for path in paths
        )
        return sum(sizes)


def _check_disjoint(paths: dict[str, list[Path]]) -> None:
    """Raises DataError for a file that is in two splits."""
    owner: dict[Path, str] = {}
    for split, each in paths.items():
        for path in each:
            if (other := owner.setdefault(path.resolve(), split)) != split:
                raise DataError(
                    f"data.{other} and data.{split} both contain {path}; a text for evaluation must not be trained on"
                )


def _check_different(paths: dict[str, list[Path]], digests: dict[Path, str]) -> None:
    """Raises DataError for a file with the content of one in another split."""
    owner: dict[str, tuple[str, Path]] = {}
    for split, each in paths.items():
        for path in each:
            other, first = owner.setdefault(digests[path], (split, path))
            if other != split:
                raise DataError(
                    f"data.{other} and data.{split}: {first} and {path} have the same content; "
                    "a text for evaluation must not be trained on"
                )
