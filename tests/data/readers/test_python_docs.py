"""The built-in corpus: what is kept of the library's English, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.data.readers import python_docs

LONG = "this sentence has more than eight words and reads as prose"


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A small standard library of topics, two modules and much that is not to be read."""
    files = {
        "pydoc_data/topics.py": f"topics = {{'if': 'The first topic: {LONG}.', 'for': 'The second topic: {LONG}.'}}",
        "b.py": f'"""Module: {LONG}."""\n\n# Comment: {LONG}\n# that goes on.\nclass A:\n    """Class: {LONG}."""\n',
        "a/deep.py": f'def f():\n    """First: {LONG}.\n\n    >>> {LONG}\n\n    The first topic: {LONG}.\n    """\n',
        "test/test_a.py": f'"""Never: {LONG}."""\n',
        "a/tests/test_b.py": f'"""Never: {LONG}."""\n',
        "site-packages/other.py": f'"""Never: {LONG}."""\n',
        "broken.py": f'"""Never: {LONG}."""\nprint "old"\n',
        "runs.py": f'"""Parsed: {LONG}."""\nraise SystemExit("run")\n',
        "silent.py": "x = 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_topics_then_modules_in_order_and_nothing_twice(library: Path) -> None:
    assert list(python_docs.documents(library)) == [
        f"The first topic: {LONG}.",
        f"The second topic: {LONG}.",
        f"First: {LONG}.",
        f"Module: {LONG}.\n\nComment: {LONG} that goes on.\n\nClass: {LONG}.",
        f"Parsed: {LONG}.",
    ]


def test_a_library_without_topics_or_without_sources(library: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (library / "pydoc_data" / "topics.py").unlink()
    assert f"First: {LONG}.\n\nThe first topic: {LONG}." in list(python_docs.documents(library))
    assert list(python_docs.documents(tmp_path_factory.mktemp("empty"))) == []


@pytest.mark.campaign
def test_this_interpreter_carries_enough_to_train_on() -> None:
    found = list(python_docs.documents())
    parts = [paragraph for document in found for paragraph in document.split("\n\n")]
    assert len(parts) == len(set(parts))
    assert sum(map(len, found)) > 1_000_000
    assert not any(">>>" in part or "\n" in part for part in parts)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("The quick brown fox jumps over the lazy dog.", ["The quick brown fox jumps over the lazy dog."]),
        ("The quick brown fox\n   jumps over the lazy dog.", ["The quick brown fox jumps over the lazy dog."]),
        ("Seven words are not enough for it.", []),
        ("WARN ABOUT THESE CAPITALS IN ALL OF THE WORDS", []),
        ("a = 1; b = 2; c = 3; d = 4; e = 5; f = 6", []),
        ("this line shows how one types >>> and reads an answer", []),
        (f"{LONG}\n \n{LONG} too", [LONG, f"{LONG} too"]),
    ],
)
def test_what_is_prose(text: str, kept: list[str]) -> None:
    assert list(python_docs.paragraphs(text)) == kept


@given(st.text())
def test_any_text_gives_lines_of_prose_that_stay_prose(text: str) -> None:
    for line in python_docs.paragraphs(text + "\n\n" + LONG):
        assert len(line.split()) >= python_docs.SHORTEST
        assert list(python_docs.paragraphs(line)) == [line]
