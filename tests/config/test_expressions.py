"""Expressions of `conf/` in words."""

from __future__ import annotations

import re

import pytest

from experiments.config.expressions import in_words
from experiments.settings.conf_files import CONF

EXPRESSIONS = {
    match
    for path in CONF.rglob("*.yaml")
    if "table" not in path.parts
    for match in re.findall(r": (\$\{.*?\})(?: |$)", path.read_text(encoding="utf-8"), re.MULTILINE)
}


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("${heads}", "as heads"),
        ("${.rotary_base}", "as rotary_base"),
        ("${floor_divide:${hidden_size},${heads}}", "hidden_size // heads"),
        ("${times:4,${hidden_size}}", "4 * hidden_size"),
        ("${times:2,${minus:${heads},1}}", "2 * (heads - 1)"),
        ("${smaller:2,${heads}}", "the smaller of 2 and heads"),
        ("${cache_folder:}", "ATTN_CACHE, else ~/.cache/attn"),
        ("${oc.env:HOME}", "${oc.env:HOME}"),
        ("${times:4}", "${times:4}"),
    ],
)
def test_an_expression_is_said_in_words(expression, words):
    assert in_words(expression) == words


def test_every_expression_of_the_defaults_has_words():
    assert len(EXPRESSIONS) > 10
    assert not [expression for expression in EXPRESSIONS if "$" in in_words(expression)]


@pytest.mark.parametrize("command", ["train", "finetune"])
def test_the_help_shows_no_expression(attn, command):
    text = attn(command, "--help").stdout
    assert "  learning_rate: as learning_rate\n" in text
    assert "${" not in text
