"""Local sentence pairs: Parquet, or else UTF-8 lines of a source, a tab, and a target."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Literal

from experiments.data.errors import DataError
from experiments.data.local_files import LocalFiles
from experiments.data.readers import files, pairs
from experiments.failures.unread import Idle
from experiments.settings.data import Documents, Target
from experiments.settings.group import Text


class PairFiles(LocalFiles):
    """Local files with a sentence pair in each row."""

    holds_pairs: ClassVar[bool] = True
    kind: Literal["pairs"]
    source: Text  # column of the source in Parquet files; in other files, a line is a source, a tab and a target
    target: Target  # column of the target in Parquet files

    def idle(self) -> Iterator[Idle]:
        """The columns, if all files are lines of text."""
        # a file that cannot be read is named when it is opened
        with suppress(DataError, OSError):
            paths = (path for split, place in self.places().items() for path in files.find(f"data.{split}", place))
            if not any(map(pairs.is_parquet, paths)):
                for key in ("source", "target"):
                    yield Idle(key, f"train={self.train}", "train=FILE.parquet")

    @property
    def grouping(self) -> Documents:
        """A pair is a document."""
        return "row"

    def columns(self, path: Path) -> list[str]:
        """The two columns of a Parquet file; none for lines of text."""
        return [self.source, self.target] if pairs.is_parquet(path) else []

    def rows(self, path: Path) -> Iterator[str]:
        """The pairs of a file, each `source TAB target`."""
        return pairs.rows(path, self.source, self.target)
