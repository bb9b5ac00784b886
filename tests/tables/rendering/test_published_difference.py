"""The differences that papers print are compared as the measured ones are."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from experiments.tables.definition.inequality import parse
from experiments.tables.definition.published import PublishedNumber
from experiments.tables.rendering.published_difference import published_difference
from tests.tables.known import made

pytestmark = pytest.mark.usefixtures("heads_table")


def test_what_is_printed_is_compared_as_ours_is():
    found = made()
    (pair,) = parse("h8 > h16")
    assert str(published_difference(pair, found)) == "+0.28 squad_f1 (higher is better)"  # 90.89 - 90.61
    assert not published_difference(pair, found).comparable
    (trend,) = parse("h8 > h16 > h32 by h")
    # a line through three places one apart: the ends' difference
    assert published_difference(trend, found).value == pytest.approx(90.89 - 90.45)
    (counted,) = parse("h8 - h16 = h")
    assert published_difference(counted, found) is None


def test_a_printed_perplexity_is_compared_as_a_loss():
    found = made()
    printed = found.request.table.published.model_copy(update={"metric": "ppl"})
    table = found.request.table.model_copy(update={"published": printed})
    numbers = {
        "h8": {"ppl": PublishedNumber(4.92, None, "")},
        "h16": {"ppl": PublishedNumber(5.29, None, "")},
        "h32": {"ppl": PublishedNumber(None, None, "-")},
    }
    found = replace(found, request=replace(found.request, table=table), printed=numbers)
    (pair,) = parse("h8 > h16")
    difference = published_difference(pair, found)
    assert difference.value == pytest.approx(math.log(4.92 / 5.29)) and difference.comparable
    (unread,) = parse("h8 > h32")
    assert published_difference(unread, found) is None
    (by_half,) = parse("h8 + 0.5 > h16")
    assert published_difference(by_half, found).value == pytest.approx(math.log(4.92 / 5.29) + 0.5)
    assert published_difference(by_half, made()) is None, "half a nat is no SQuAD F1"
