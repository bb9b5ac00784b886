from __future__ import annotations

import pytest

from experiments.failures.wording import did_you_mean


@pytest.mark.parametrize(
    ("word", "known", "hint"),
    [
        ("haeds", "heads", " (did you mean heads?)"),
        ("t.txt", "t.txt ", " (did you mean 't.txt '?)"),
        ("cafe\u0301.txt", "caf\u00e9.txt", r" (did you mean 'caf\xe9.txt'?)"),
        ("heads", "tokenizer", ""),
    ],
)
def test_a_word_that_looks_the_same_is_shown_with_its_escapes(word, known, hint):
    assert did_you_mean(word, [known]) == hint
