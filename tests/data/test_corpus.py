from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.data.cache import Cache
from experiments.data.corpus import open_corpus
from experiments.data.errors import DataError
from experiments.data.kinds.python_docs import PythonDocs
from experiments.data.kinds.text import TextFiles
from experiments.data.readers import python_docs

HERE = PythonDocs(kind="python_docs", python=platform.python_version())


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache", print)


def test_python_docs_are_made_once_a_cache(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"A paragraph of the documentation, number {number}." for number in range(200)]
    monkeypatch.setattr(python_docs, "documents", lambda: iter(texts))
    corpus = open_corpus(HERE, cache)
    assert [text for _, text in corpus.documents()] == texts
    assert corpus.size() == sum(map(len, texts))
    splits = [split for split, _ in corpus.documents()]
    assert splits.count("validation") > splits.count("test") > 0
    monkeypatch.setattr(python_docs, "documents", lambda: pytest.fail("made again"))
    assert open_corpus(HERE, cache).identity == corpus.identity


def test_python_docs_that_changed_are_noticed_and_the_next_start_is_right(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_docs, "documents", lambda: iter(["old"]))
    old = open_corpus(HERE, cache)
    monkeypatch.setattr(python_docs, "documents", lambda: iter(["new"]))
    with pytest.raises(DataError, match="has changed"):
        open_corpus(HERE, cache).documents()
    new = open_corpus(HERE, cache)
    assert [text for _, text in new.documents()] == ["new"]
    assert new.identity != old.identity


def test_python_docs_of_another_python_or_none_are_refused(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"data.python=2.7.18: this interpreter is 3"):
        open_corpus(PythonDocs(kind="python_docs", python="2.7.18"), cache)
    monkeypatch.setattr(python_docs, "documents", lambda: iter([]))
    with pytest.raises(DataError, match="ships no library sources; use data=text"):
        open_corpus(HERE, cache)


def test_a_file_in_two_splits_is_refused(cache: Cache, text_data: Callable[..., TextFiles], text_file: Path) -> None:
    with pytest.raises(DataError, match=r"data.train and data.validation both contain .*train.txt"):
        open_corpus(text_data(train=f"{text_file.parent}/*.txt", validation=str(text_file)), cache)


def test_two_splits_for_evaluation_with_one_file_are_refused_for_their_own_reason(
    cache: Cache, text_data: Callable[..., TextFiles], text_file: Path
) -> None:
    other, copy = (text_file.with_name(name) for name in ("other.txt", "copy.txt"))
    other.write_text("another text")
    copy.write_text("another text")
    for test, said in ((other, "both contain .*other.txt"), (copy, ".*copy.txt have the same content")):
        with pytest.raises(DataError, match=rf"data.validation and data.test.*{said}; a text .* in one split only$"):
            open_corpus(text_data(validation=str(other), test=str(test)), cache)


def test_a_copy_of_a_text_in_two_splits_is_refused(
    cache: Cache, text_data: Callable[..., TextFiles], text_file: Path
) -> None:
    (copy := text_file.with_name("copy.txt")).write_bytes(text_file.read_bytes())
    said = r"data.train and data.validation: .*train.txt and .*copy.txt have the same content; .* be trained on$"
    with pytest.raises(DataError, match=said):
        open_corpus(text_data(validation=str(copy)), cache)


def test_wrong_bytes_are_found_at_once_wherever_they_are(
    cache: Cache, text_data: Callable[..., TextFiles], text_file: Path
) -> None:
    at = text_file.stat().st_size
    with text_file.open("ab") as file:
        file.write(b"\xff")
    with pytest.raises(DataError, match=f"byte 0xff at offset {at} "):
        open_corpus(text_data(), cache)


def test_a_table_that_is_read_as_plain_text_is_named(
    cache: Cache, text_data: Callable[..., TextFiles], text_file: Path
) -> None:
    assert open_corpus(text_data(), cache).remark == ""
    (table := text_file.with_name("reviews.csv")).write_text('body\n"a, b"\n')
    remark = open_corpus(text_data(validation=str(table)), cache).remark
    assert remark.startswith(f"{table} is read as plain text, with its commas, quotes and braces; data=hub data.path=")
