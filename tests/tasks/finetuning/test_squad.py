"""EM and F1 by hand, case by case as the official v1.1 script works."""

from __future__ import annotations

import pytest

from experiments.tasks.finetuning.squad import best, exact_match, f1, normalized, squad_scores


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Denver\tBroncos", "denver broncos"),
        ("An apple, a day.", "apple day"),
        ("Theatre and antenna", "theatre and antenna"),  # articles are whole words
        ("U.S.A.", "usa"),  # punctuation goes before articles
        ("a.", ""),
        ("A-Team", "ateam"),  # joined by then, no article is left
        ("24\u201310", "24\u201310"),  # the dash is no ASCII punctuation
        ("on\u2013the\u2013job", "on\u2013 \u2013job"),  # a blank takes the place of an article
        ("\u00c9COLE", "\u00e9cole"),
        ("$5.3 million", "53 million"),
        ("", ""),
    ],
)
def test_normalized(text, expected):
    assert normalized(text) == expected


@pytest.mark.parametrize(
    ("prediction", "answer", "em", "expected"),
    [
        ("the Denver Broncos", "Denver Broncos!", 1.0, 1.0),
        ("Broncos", "Denver Broncos", 0.0, 2 / 3),  # precision 1, recall 1/2
        ("in Paris in spring", "in Paris", 0.0, 2 / 3),  # shared in and Paris: precision 2/4, recall 1
        ("to be or not to be", "to be", 0.0, 0.5),  # of 6 words 2 are shared: precision 1/3, recall 1
        ("Carolina", "Denver", 0.0, 0.0),
        ("", "Denver", 0.0, 0.0),
        ("the", "a", 1.0, 0.0),  # nothing is left of either: equal, but no word is shared
        ("\u5317\u4eac", "\u5317\u4eac", 1.0, 1.0),
    ],
)
def test_one_answer(prediction, answer, em, expected):
    assert exact_match(prediction, answer) == em
    assert f1(prediction, answer) == pytest.approx(expected)


def test_the_best_of_several_answers_counts_for_each_metric_by_itself():
    answers = ["the Santa Clara stadium", "Levi's Stadium", "Levi's Stadium in Santa Clara"]
    assert best(exact_match, "levis stadium", answers) == 1.0
    assert best(f1, "stadium in Santa Clara", answers) == pytest.approx(8 / 9)  # precision 1, recall 4/5


def test_percentages_over_all_questions_the_unanswered_too():
    answers = {"1": ["x"], "2": ["y z"], "3": ["w"], "4": ["v"]}
    assert squad_scores(answers, {"1": "X", "2": "y", "3": ""}) == {
        "exact_match": pytest.approx(25.0),
        "f1": pytest.approx(100 * (1 + 2 / 3) / 4),
    }
