"""The English text that every CPython has: the prose of its language reference, docstrings and comments.

Source files are parsed, not imported, so no code of the library runs. The text differs between Python versions and
between distributors, some of which leave packages out. Comparisons therefore record the version and a digest.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import sysconfig
import warnings
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

OTHERS = {"test", "tests", "idlelib", "lib2to3", "turtledemo", "site-packages", "dist-packages", "__pycache__"}
TOPICS = "pydoc_data/topics.py"
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
SHORTEST = 8  # words of a paragraph
PUNCTUATION = ".,;:!?()'\"`*"


def documents(library: Path | None = None) -> Iterator[str]:
    """Yield a document for each topic of the language reference, then one for each module, in a fixed order.

    Blank lines separate paragraphs, and no paragraph occurs twice. `library` is the folder of the standard library, by
    default the running interpreter's; a folder without sources has no documents.
    """
    folder = Path(sysconfig.get_path("stdlib")) if library is None else library
    known: set[str] = set()
    for path in sources(folder):
        for text in texts(path, is_topics=path.relative_to(folder).as_posix() == TOPICS):
            new = [paragraph for paragraph in dict.fromkeys(paragraphs(text)) if paragraph not in known]
            known.update(new)
            if new:
                yield "\n\n".join(new)


def sources(folder: Path) -> list[Path]:
    """The library's own source files in the order of their paths, the language reference first."""
    sources = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in OTHERS]
        sources += [Path(place, name) for name in files if name.endswith(".py")]
    return sorted(sources, key=lambda path: (path != folder / TOPICS, path.relative_to(folder).as_posix()))


def texts(path: Path, is_topics: bool) -> list[str]:
    """The topics of the language reference, or a module's docstrings and comments in the order of its lines."""
    try:
        source = importlib.util.decode_source(path.read_bytes())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old escape sequences in other people's strings
            tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError):  # unreadable, or not the Python of this interpreter
        return []
    if is_topics:
        return list(topics(tree))
    return ["\n\n".join(text for _, text in sorted([*docstrings(tree), *comments(source)]))]


def topics(tree: ast.Module) -> Iterator[str]:
    """The values of the dictionary that `pydoc_data.topics` consists of."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for value in node.values:
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield value.value


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The line and the text of every docstring of a module."""
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text


def comments(source: str) -> Iterator[tuple[int, str]]:
    """The first line and the text of every run of lines that hold nothing but a comment."""
    lines = ((number, line.strip()) for number, line in enumerate(source.split("\n"), 1))
    for is_comment, run in groupby(lines, key=lambda numbered: numbered[1].startswith("#")):
        if is_comment:
            block = list(run)
            yield block[0][0], "\n".join(line.lstrip("#!:").strip() for _, line in block)


def paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of `text` that read as prose, each on one line."""
    for paragraph in re.split(r"\n\s*\n", text):
        words = paragraph.split()
        if is_prose(words):
            yield " ".join(words)


def is_prose(words: list[str]) -> bool:
    """Whether a paragraph is long enough, mostly letters, mostly lower-case words, and no example session."""
    line = " ".join(words)
    letters = sum(map(str.isalpha, line)) + line.count(" ")
    lower = sum(word.strip(PUNCTUATION).islower() for word in words)
    return len(words) >= SHORTEST and ">>>" not in line and letters >= 0.85 * len(line) and lower >= 0.6 * len(words)
