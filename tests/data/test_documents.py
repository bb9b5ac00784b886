from __future__ import annotations

import pytest

from experiments.data import documents
from experiments.data.documents import group, split_of

WIKITEXT = [
    "",
    " = First = \n",
    "",
    " Text of the first . \n",
    " = 5 ; n = \n",
    "",
    " = = Section = = \n",
    "",
    " More . \n",
    "",
    " = Second article = \n",
    " \n",
    " Text . \n",
]


def test_rows_are_documents_without_the_blank_ones() -> None:
    assert list(group(["one\n", "  ", "", " two "], "row")) == ["one", "two"]


def test_blank_rows_part_documents() -> None:
    assert list(group(["", "a", "b\r", " \t", "", "c"], "blank_line")) == ["a\nb", "c"]


def test_articles_begin_at_titles_between_blank_rows() -> None:
    assert list(group(WIKITEXT, "article")) == [
        "= First = \n Text of the first . \n = 5 ; n = \n = = Section = = \n More .",
        "= Second article = \n Text .",
    ]


@pytest.mark.parametrize("kind", ["row", "blank_line", "article"])
def test_no_rows_make_no_documents(kind: documents.Documents) -> None:
    assert list(group([], kind)) == list(group(["", " ", "\n"], kind)) == []


def test_a_document_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "LONGEST", 10)
    parts = list(group(["abcdef"] * 5, "blank_line"))
    assert parts == ["abcdef\nabcdef", "abcdef\nabcdef", "abcdef"]


def test_shares_are_what_they_say_and_copies_stay_together() -> None:
    texts = [f"document number {number}" for number in range(4000)]
    splits = [split_of(text, {"validation": 2, "test": 1}) for text in texts]
    assert 0.08 < splits.count("validation") / 4000 < 0.12
    assert 0.035 < splits.count("test") / 4000 < 0.065
    assert splits == [split_of(text, {"validation": 2, "test": 1}) for text in texts]
    assert {split_of(text, {}) for text in texts} == {"train"}
