"""Exact match and F1 of SQuAD v1.1, as its official script counts them (Rajpurkar et al. 2016, 1606.05250, 6.1)."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = frozenset(string.punctuation)

Metric = Callable[[str, str], float]  # of a prediction and one answer, from 0 to 1


def squad_scores(answers: Mapping[str, Sequence[str]], predictions: Mapping[str, str]) -> dict[str, float]:
    """SQuAD's scores; see `mean_scores`."""
    return mean_scores(answers, predictions, exact_match=exact_match, f1=f1)


def mean_scores(
    answers: Mapping[str, Sequence[str]], predictions: Mapping[str, str], **metrics: Metric
) -> dict[str, float]:
    """The mean of each metric over all questions, in percent; a question without a prediction counts as wrong.

    answers: those of each question, by its id.
    """
    predicted = [(predictions[each], true) for each, true in answers.items() if each in predictions]
    return {
        name: 100.0 * sum(best(metric, *pair) for pair in predicted) / len(answers) for name, metric in metrics.items()
    }


def best(metric: Metric, prediction: str, answers: Sequence[str]) -> float:
    """The score for the answer that fits best."""
    return max(metric(prediction, answer) for answer in answers)


def exact_match(prediction: str, answer: str) -> float:
    """1 where prediction and answer are the same once normalized, else 0."""
    return float(normalized(prediction) == normalized(answer))


def f1(prediction: str, answer: str) -> float:
    """F1 of the words, each counted as often as it occurs; 0 where no word is shared, even if both are empty."""
    predicted, true = normalized(prediction).split(), normalized(answer).split()
    shared = sum((Counter(predicted) & Counter(true)).values())
    if shared == 0:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(true)
    return 2 * precision * recall / (precision + recall)


def normalized(text: str) -> str:
    """The text in lower case, without ASCII punctuation and articles, with one blank between words; in this order."""
    bare = "".join(character for character in text.lower() if character not in PUNCTUATION)
    return " ".join(ARTICLES.sub(" ", bare).split())
