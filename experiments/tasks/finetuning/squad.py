"""Exact match and F1 of SQuAD v1.1, as its official script counts them (Rajpurkar et al. 2016, 1606.05250, 6.1)."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = frozenset(string.punctuation)


def squad_scores(answers: Mapping[str, Sequence[str]], predictions: Mapping[str, str]) -> dict[str, float]:
    """Percentages over all questions; a question without a prediction counts as wrong. `answers`: those of each id."""
    predicted = [(predictions[each], true) for each, true in answers.items() if each in predictions]
    return {
        "exact_match": 100.0 * sum(best(exact_match, *pair) for pair in predicted) / len(answers),
        "f1": 100.0 * sum(best(f1, *pair) for pair in predicted) / len(answers),
    }


def best(metric: Callable[[str, str], float], prediction: str, answers: Sequence[str]) -> float:
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
