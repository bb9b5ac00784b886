"""Local Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from experiments.data.local_files import LocalFiles
from experiments.data.readers import files
from experiments.settings.data import Documents
from experiments.settings.group import Text


class ParquetFiles(LocalFiles):
    """Local Parquet files with a column of text."""

    kind: Literal["parquet"]
    column: Text  # column that holds the text
    documents: Documents  # what makes a document: a row, the rows up to a blank one, or up to WikiText's next heading

    @property
    def grouping(self) -> Documents:
        """How rows become documents: the setting `documents`."""
        return self.documents

    def columns(self, path: Path) -> list[str]:
        """The one column of text."""
        return [self.column]

    def rows(self, path: Path) -> Iterator[str]:
        """The values of the column; a null is left out."""
        return files.parquet_rows(path, self.column)
