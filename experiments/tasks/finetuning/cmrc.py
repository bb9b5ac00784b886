"""Exact match and F1 of CMRC 2018 as its official script counts them (Cui et al. 2019, 1810.07366).

Chinese has no blanks between words. The pieces of a text are its Chinese characters and, between them, the words into
which NLTK splits the rest. F1 is that of the longest run of pieces that prediction and answer share. Before it splits
words, the script also splits sentences, for which NLTK needs data that it downloads. Here the pieces between Chinese
characters count as one sentence each, which is the same unless a period inside of one ends a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from experiments.tasks.finetuning.squad import mean_scores

# the script compares single characters with "\u2026\u2026" too, so it counts an ellipsis
PUNCTUATION = frozenset(
    "-:_*^/\\~`+="
    "\uff0c\u3002\uff1a\uff1f\uff01\u201c\u201d\uff1b\u2019\u300a\u300b\u00b7\u3001\u300c\u300d\uff08\uff09\uff0d\uff5e"
    "\u300e\u300f"
)


def cmrc_scores(answers: Mapping[str, Sequence[str]], predictions: Mapping[str, str]) -> dict[str, float]:
    """CMRC's scores; see `squad.mean_scores`."""
    return mean_scores(answers, predictions, exact_match=exact_match, f1=f1)


def exact_match(prediction: str, answer: str) -> float:
    """1 where prediction and answer are the same in lower case without punctuation, else 0."""
    return float(bare(prediction) == bare(answer))


def f1(prediction: str, answer: str) -> float:
    """F1 of the longest run of pieces that both have, in the same order without a gap; 0 where there is none."""
    predicted, true = pieces(prediction), pieces(answer)
    shared = longest_run(predicted, true)
    if shared == 0:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(true)
    return 2 * precision * recall / (precision + recall)


def bare(text: str) -> str:
    """The text in lower case, without punctuation."""
    return "".join(char for char in text.lower().strip() if char not in PUNCTUATION)


def pieces(text: str) -> list[str]:
    """Each Chinese character, and each word between them."""
    from nltk.tokenize import word_tokenize

    parts = re.split("([\u4e00-\u9fa5])", bare(text))
    return [piece for part in parts for piece in word_tokenize(part, preserve_line=True)]


def longest_run(first: Sequence[str], second: Sequence[str]) -> int:
    """The length of the longest run of pieces that both have."""
    longest, before = 0, [0] * (len(second) + 1)
    for piece in first:
        ending = [0, *(before[i] + 1 if piece == other else 0 for i, other in enumerate(second))]
        longest, before = max(longest, *ending), ending
    return longest
