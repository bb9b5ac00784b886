from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from experiments.failures.wording import as_typed, as_yaml, did_you_mean


@pytest.mark.parametrize(
    ("word", "known", "hint"),
    [
        ("haeds", "heads", " (did you mean heads?)"),
        ("t.txt", "t.txt ", " (did you mean 't.txt '?)"),
        ("cafe\u0301.txt", "caf\u00e9.txt", r" (did you mean 'caf\xe9.txt'?)"),
        ("heads", "tokenizer", ""),
        ("BF16", "bf16", " (did you mean bf16?)"),
        ("lncs", "LNCS", " (did you mean LNCS?)"),
    ],
)
def test_the_known_word_is_shown_as_it_is_written_with_escapes_if_it_looks_the_same(word, known, hint):
    assert did_you_mean(word, [known]) == hint


@pytest.mark.parametrize("text", ["null", "true", "3", "0.5", "'a text'", "[1, [false]]", "{a: null, b: [1e-06]}"])
def test_a_value_is_shown_as_a_file_or_the_command_line_has_it(text):
    assert as_yaml(OmegaConf.to_container(OmegaConf.create(f"x: {text}"))["x"]) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "null"), (True, "true"), (5.0, "5"), (0.5, "0.5"), ("5.0", "5.0"), ([0.9, 1.0], "[0.9,1]")],
)
def test_a_value_is_as_one_types_it(value, text):
    assert as_typed(value) == text
