"""Windows cover the context, show each token at its widest once, and map tokens back to characters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.tasks.finetuning.kinds.span import Question, question_windows
from experiments.tasks.finetuning.labelled import text_window
from experiments.tasks.finetuning.windows import answer_tokens, context_starts, fitting_sizes, widest

SIZES = st.tuples(st.integers(0, 60), st.integers(1, 20), st.integers(1, 25))


@given(SIZES)
def test_windows_cover_every_token_and_the_last_ends_with_the_context(sizes):
    size, room, stride = sizes
    starts = context_starts(size, room, stride)
    seen = {token for start in starts for token in range(start, min(start + room, size))}
    assert seen == set(range(size))
    assert starts == sorted(set(starts)) and starts[-1] + room >= size
    assert len(starts) == 1 or starts[-2] + room < size


@given(SIZES)
def test_each_token_is_widest_in_exactly_one_window_that_has_it(sizes):
    size, room, stride = sizes
    starts = context_starts(size, room, stride)
    if size:
        found = widest(starts, size, room)
        assert (found.sum(0) == 1).all()
        for window, start in enumerate(starts):
            assert not found[window, :start].any() and not found[window, start + room :].any()


def test_widest_by_hand():
    # windows 0-3 and 2-5 of six tokens: 2 has 1 token on its poorer side in the first, 0 in the second; 3 the reverse
    assert widest([0, 2], 6, 4).tolist() == [[True] * 3 + [False] * 3, [False] * 3 + [True] * 3]


def test_tokens_of_an_answer_share_a_character_with_it():
    # three tokens without blanks between them, and one after a blank
    offsets = np.array([[0, 3], [3, 4], [4, 7], [8, 9]])
    answers = {(0, 3): (0, 0), (3, 4): (1, 1), (2, 5): (0, 2), (4, 9): (2, 3), (7, 8): None, (9, 12): None}
    assert {answer: answer_tokens(offsets, *answer) for answer in answers} == answers


@pytest.mark.parametrize(
    ("sizes", "room", "expected"),
    [
        ([3, 4], 7, [3, 4]),
        ([9], 5, [5]),
        ([9, 2], 6, [4, 2]),
        ([2, 9], 6, [2, 4]),
        ([9, 9], 6, [3, 3]),
        ([9, 9], 7, [4, 3]),
        ([0, 9], 4, [0, 4]),
        ([5, 3], 7, [4, 3]),
    ],
)
def test_the_longer_text_gives_way(sizes, room, expected):
    assert fitting_sizes(sizes, room) == expected


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 40))
def test_as_when_one_token_after_the_other_is_dropped(first, second, room):
    left = [first, second]
    while sum(left) > room:
        left[0 if left[0] > left[1] else 1] -= 1
    assert fitting_sizes([first, second], room) == left


def example(context: str, answer: str) -> Question:
    return Question("1", "what", context, [answer], context.index(answer))


@pytest.mark.parametrize("answer", ["Z\u00fcrich", "na\u00efve \u5317\u4eac", "end.", "(The", "\U0001f600"])
def test_every_character_of_any_text_is_in_a_window_and_the_answer_is_found_again(tokenizer, span, answer):
    context = "(The)  Z\u00fcrich caf\u00e9 of na\u00efve \u5317\u4eac, a \U0001f600 face\n and so on to the end."
    asked = example(context, answer)
    ids, offsets = tokenizer.encode_with_offsets([context])[0]
    made = question_windows(asked, tokenizer.encode(["what"])[0], ids, offsets, tokenizer, span(), 24)
    assert len(made) > 1
    seen: set[int] = set()
    found = 0
    for window in made:
        for begin, end in window.offsets[window.offsets[:, 0] >= 0]:
            seen.update(range(begin, end))
        assert window.tokens[0] == tokenizer.cls_id and window.tokens[-1] == tokenizer.sep_id
        assert len(window.tokens) <= 24 and window.boundary == list(window.tokens).index(tokenizer.sep_id) + 1
        if window.targets != [0, 0]:
            first, last = window.targets
            found += 1
            text = context[window.offsets[first, 0] : window.offsets[last, 1]].strip()
            assert answer in text and len(text) <= len(answer) + 2  # a token may end with the next punctuation mark
    assert seen == set(range(len(context)))
    assert found >= 1


def test_an_answer_that_a_window_cuts_is_not_in_it(tokenizer, span):
    context = " ".join(["na"] * 30)
    ids, offsets = tokenizer.encode_with_offsets([context])[0]
    whole = example(context, context)
    assert answer_tokens(offsets, 0, len(context)) == (0, len(ids) - 1)
    made = question_windows(whole, tokenizer.encode(["what"])[0], ids, offsets, tokenizer, span(), 16)
    assert len(made) > 1 and all(window.targets == [0, 0] for window in made)


def test_a_question_that_is_too_long_is_cut(tokenizer, span):
    question, context = tokenizer.encode([" ".join(["na"] * 40), "na na na"])
    offsets = np.zeros((len(context), 2), dtype=np.int64)
    made = question_windows(example("na", "na"), question, context, offsets, tokenizer, span(max_question=4), 16)
    assert all(window.boundary == 6 for window in made)


def test_two_texts_of_one_window(tokenizer):
    parts = tokenizer.encode(["na na", "no"])
    window = text_window(parts, tokenizer, 16, 1)
    sep, cls = tokenizer.sep_id, tokenizer.cls_id
    assert window.tokens.tolist() == [cls, *parts[0], sep, *parts[1], sep]
    assert window.boundary == 2 + len(parts[0]) and window.targets == [1]
