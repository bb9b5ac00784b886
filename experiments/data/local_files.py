"""The base of kinds of local files: the files of each split, and how rows become documents."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path

from experiments.data.cache import Cache
from experiments.data.corpus import SPLITS, Corpus, SplitData
from experiments.data.documents import group
from experiments.data.errors import changed_while_read
from experiments.data.readers import files
from experiments.settings.data import Documents


class LocalFiles(SplitData):
    """Local files, with a path or a glob for each split."""

    @abstractmethod
    def rows(self, path: Path) -> Iterator[str]:
        """The rows of a file. Raises DataError."""

    @property
    @abstractmethod
    def grouping(self) -> Documents:
        """How rows become documents."""

    def columns(self, path: Path) -> list[str]:
        """The columns to read from a Parquet file; none for a text."""
        return []

    def remark(self, paths: Iterable[Path]) -> str:
        """What a run should say of the files; empty if there is nothing."""
        return ""

    def open(self, cache: Cache) -> Corpus:
        """Find the files. Raises DataError for one that does not exist, and for one that is in two splits."""
        paths = {split: files.find(f"data.{split}", pattern) for split, pattern in self.places().items()}

        def texts(split: str, paths: list[Path]) -> Iterator[str]:
            return (text for path in paths for text in group(self.rows(path), self.grouping))

        def sha256(path: Path) -> str:
            return cache.file_digest(path, files.blocks if self.columns(path) else files.text_bytes)

        digests = files.digests_of_splits({f"data.{split}": each for split, each in paths.items()}, sha256)
        identity = {
            **self.model_dump(exclude=set(SPLITS)),
            "sha256": {split: [digests[path] for path in each] for split, each in paths.items()},
            "held_out": self.held_out(),
        }

        def check() -> None:
            for path, known in digests.items():
                if sha256(path) != known:
                    raise changed_while_read(str(path))

        return Corpus(
            identity, lambda: self.assigned(paths, texts), lambda: self._size(digests), check, self.remark(digests)
        )

    def _size(self, paths: Iterable[Path]) -> int:
        sizes = (
            sum(files.parquet_size(path, column) for column in columns)
            if (columns := self.columns(path))
            else path.stat().st_size
            for path in paths
        )
        return sum(sizes)
