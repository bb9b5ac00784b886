from __future__ import annotations

import json

import numpy as np
import pytest

from experiments.data.errors import DataError
from experiments.tasks.finetuning.answers import QuestionWindows, answer_texts, best_span

CONTEXT = "one two three four"
SPANS = [(0, 3), (3, 7), (7, 13), (13, 18)]  # with the blank before each word, as byte-level tokens have it
LOW = -1e30


@pytest.fixture
def questions(tmp_path):
    """Two windows of six tokens, [CLS] and two or three words, that share `three`; it is widest in the second."""
    offsets = np.full((2, 6, 2), -1, dtype=np.int32)
    offsets[0, 2:5], offsets[1, 2:4] = SPANS[:3], SPANS[2:]
    widest = np.zeros((2, 6), dtype=bool)
    widest[0, 2:4] = widest[1, 2:4] = True
    path = tmp_path / "questions.jsonl"
    path.write_text(json.dumps({"id": "a", "context": CONTEXT, "answers": ["x"]}) + "\n")
    return QuestionWindows(np.zeros(2, dtype=np.int32), offsets, widest, path)


def answer(questions, task, starts, ends):
    return answer_texts(np.array(starts), np.array(ends), questions, questions.read(), task)["a"]


def test_the_best_window_wins_and_the_text_is_the_original_one(questions, span):
    starts = [[9, 0, 1, 2, 5, LOW], [9, 0, 3, 0, LOW, LOW]]
    ends = [[9, 0, 0, 2, 0, LOW], [9, 0, 0, 2, LOW, LOW]]
    # one word 2 + 2 in the first window, 3 + 2 over two words in the second; the start 5 is not widest in the first
    assert answer(questions, span(), starts, ends) == "three four"
    starts[1][2] = 1
    assert answer(questions, span(), starts, ends) == "two"
    assert answer(questions, span(), [[0.0] * 6] * 2, [[0.0] * 6] * 2) == "one", "of equals the first"


def test_windows_are_compared_by_logits_or_by_probabilities(questions, span):
    # the second window has the higher logits, but its [CLS] says that the answer is not in it
    starts = [[0, 0, 0, 4, 0, LOW], [20, 0, 0, 8, LOW, LOW]]
    ends = [[0, 0, 0, 4, 0, LOW], [20, 0, 0, 8, LOW, LOW]]
    assert answer(questions, span(), starts, ends) == "four"
    assert answer(questions, span(window_score="log_probabilities"), starts, ends) == "two"


def test_no_span_no_answer(questions, span):
    nowhere = QuestionWindows(questions.owner, np.full((2, 6, 2), -1), questions.widest, questions.path)
    assert answer(nowhere, span(), [[1.0] * 6] * 2, [[1.0] * 6] * 2) == ""


def test_limits_of_a_span(span):
    everywhere = np.ones(6, dtype=bool)
    start, end = np.array([5.0, 4, 0, 0, 0, 0]), np.array([0.0, 0, 0, 0, 3, 5])
    assert best_span(start, end, everywhere, everywhere, span())[1:] == (0, 5)
    assert best_span(start, end, everywhere, everywhere, span(max_answer=5))[1:] == (1, 5)
    assert best_span(start, end, everywhere, everywhere, span(max_answer=4))[1:] == (1, 4)
    # an end before its start is none: with one start and one end tried nothing is left
    assert best_span(end, start, everywhere, everywhere, span(n_best=1)) is None


def test_a_cache_that_is_removed_in_the_meantime_is_named(questions, tmp_path):
    questions.path.unlink()
    with pytest.raises(DataError, match=r"questions\.jsonl was removed from the cache[^$]*give the same command again"):
        questions.read()
    with pytest.raises(DataError, match="owner was removed"):
        QuestionWindows.open(tmp_path / "gone", 6)
