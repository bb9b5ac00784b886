"""CMRC's EM and F1 by hand."""

from __future__ import annotations

import pytest

from experiments.tasks.finetuning.cmrc import cmrc_scores, exact_match, f1, pieces

BEIJING, CITY = "\u5317\u4eac", "\u5317\u4eac\u5e02"


def test_a_text_is_its_characters_and_the_words_between_them():
    text = "\u5728Windows XP\u4e2d\uff0c2008\u5e74\u3002"
    assert pieces(text) == [
        "\u5728",
        "windows",
        "xp",
        "\u4e2d",
        "2008",
        "\u5e74",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("10%", ["10", "%"]),
        ("(Lionel Richie)", ["(", "lionel", "richie", ")"]),
        ('"Alexandra", don\'t', ["``", "alexandra", "''", ",", "do", "n't"]),
        ("1,000 A. Walsh.", ["1,000", "a.", "walsh", "."]),
    ],
)
def test_words_are_split_as_the_script_splits_them(text, words):
    assert pieces(f"\u5728{text}\u5e74") == ["\u5728", *words, "\u5e74"]


@pytest.mark.parametrize(
    ("prediction", "answer", "em", "expected"),
    [
        (BEIJING, BEIJING, 1.0, 1.0),
        (f"\u201c{BEIJING}\u201d\u3002", BEIJING, 1.0, 1.0),  # punctuation does not count
        (f"{BEIJING}\u2026", BEIJING, 0.0, 0.8),  # but an ellipsis does: precision 2/3
        (BEIJING, CITY, 0.0, 0.8),  # precision 1, recall 2/3
        ("\u4eac\u5317", BEIJING, 0.0, 0.5),  # a run of one of two
        ("\u4e0a\u6d77", BEIJING, 0.0, 0.0),
        ("", BEIJING, 0.0, 0.0),
        ("IBM", "ibm", 1.0, 1.0),
        ("10", "10%", 0.0, 2 / 3),  # precision 1, recall 1/2
    ],
)
def test_a_pair(prediction, answer, em, expected):
    assert exact_match(prediction, answer) == em and f1(prediction, answer) == pytest.approx(expected)


def test_of_several_answers_the_best_counts_and_a_missing_prediction_is_wrong():
    found = cmrc_scores({"a": [CITY, BEIJING], "b": [BEIJING]}, {"a": BEIJING})
    assert found == {"exact_match": 50.0, "f1": 50.0}
