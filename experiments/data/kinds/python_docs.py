"""English of the running interpreter's own documentation, made locally."""

from __future__ import annotations

import functools
import platform
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from experiments.data import documents
from experiments.data.cache import Cache
from experiments.data.corpus import Corpus, DataKind
from experiments.data.errors import DataError
from experiments.data.readers import python_docs
from experiments.files.digest import digest
from experiments.settings.group import Text

HELD_OUT = {"validation": 2, "test": 1}  # 20ths of the text


class PythonDocs(DataKind):
    """The English documentation of the running Python.

    The cache notes its digest, so that a later start need not make the text.
    """

    kind: Literal["python_docs"]
    python: Text  # version of the interpreter, as the corpus differs between versions

    def open(self, cache: Cache) -> Corpus:
        """Find the text. Raises DataError if it is that of another Python, or if this one has no documentation."""
        if self.python != platform.python_version():
            raise DataError(
                f"data.python={self.python}: this interpreter is {platform.python_version()}, whose documentation is "
                f"another text; use Python {self.python}, or leave data.python as it is"
            )
        key = made_from(cache)

        @functools.cache
        def texts() -> list[str]:
            prose = list(python_docs.documents())
            if not prose:
                raise DataError("data=python_docs: this Python ships no library sources; use data=text data.train=FILE")
            return prose

        sha256 = cache.recall(key) or cache.remember(key, digest(texts()))

        def read() -> Iterator[tuple[str, str]]:
            if (now := digest(texts())) != sha256:
                cache.remember(key, now)
                raise DataError("the documentation of this Python has changed since it was last read; run it again")
            return ((documents.split_of(text, HELD_OUT), text) for text in texts())

        identity = {"kind": self.kind, "python": self.python, "sha256": sha256, "held_out": HELD_OUT}
        return Corpus(identity, read, lambda: sum(len(text.encode()) for text in texts()))


def made_from(cache: Cache) -> list[object]:
    """Everything that the text depends on: the interpreter, its library, and the code that makes the text."""
    library = Path(sysconfig.get_path("stdlib"))
    maker = cache.file_digest(Path(python_docs.__file__))
    return ["python_docs", sys.version, str(library), library.stat().st_mtime_ns, maker]
