"""Local UTF-8 text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from experiments.data.errors import READS_COLUMN
from experiments.data.local_files import LocalFiles
from experiments.data.readers import files
from experiments.settings.data import TABLES_OF_TEXT, Documents


class TextFiles(LocalFiles):
    """Local UTF-8 text; its rows are the lines."""

    kind: Literal["text"]
    documents: Documents  # what makes a document: a row, the rows up to a blank one, or up to WikiText's next heading

    @property
    def grouping(self) -> Documents:
        """How rows become documents: the setting `documents`."""
        return self.documents

    def rows(self, path: Path) -> Iterator[str]:
        """The lines of a file."""
        return files.text_rows(path)

    def remark(self, paths: Iterable[Path]) -> str:
        """That a file is a table, of which a column is probably meant."""
        if (table := next((path for path in paths if TABLES_OF_TEXT.intersection(path.suffixes)), None)) is None:
            return ""
        said = f"{table} is read as plain text, with its commas, quotes and braces"
        return f"{said}; {READS_COLUMN} a column of the files of a folder"
