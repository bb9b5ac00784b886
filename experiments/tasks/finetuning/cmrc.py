"""Exact match and F1 of CMRC 2018 as its official script counts them (Cui et al. 2019, 1810.07366).

Chinese has no blanks between words: a text is its Chinese characters one by one and what stands between them word by
word, and F1 is that of the longest run that prediction and answer share. The script parts Latin words by NLTK, which
also splits some of them, as "don't"; here blanks part them.
"""

from __future__ import annotations

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
    return "".join(f" {char} " if "\u4e00" <= char <= "\u9fa5" else char for char in bare(text)).split()


def longest_run(first: Sequence[str], second: Sequence[str]) -> int:
    """The length of the longest run of pieces that both have."""
    longest, before = 0, [0] * (len(second) + 1)
    for piece in first:
        ending = [0, *(before[i] + 1 if piece == other else 0 for i, other in enumerate(second))]
        longest, before = max(longest, *ending), ending
    return longest
