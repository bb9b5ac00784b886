"""The answer to each question from the logits of its windows: the best span of all, as it stands in the text."""

# W windows, N tokens of a window, S and E starts and ends that are tried

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.data.errors import DataError
from experiments.settings.finetuning import Span
from experiments.tasks.finetuning.windows import NONE


class QuestionWindows(NamedTuple):
    """The data that turn spans of windows into texts, and score them."""

    owner: np.ndarray  # int32 [W]: the number of the question that a window is of
    offsets: np.ndarray  # int32 [W, N, 2], characters of the context; NONE elsewhere
    widest: np.ndarray  # bool [W, N]: no other window shows this token with more context around it
    path: Path  # of the questions, one a line

    def read(self) -> list[dict[str, Any]]:
        """`id`, `context` and `answers` of each question. Raises DataError if the file was removed."""
        with _in_cache(), self.path.open(encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    @classmethod
    def open(cls, folder: Path, length: int) -> QuestionWindows:
        """The windows in a folder of the cache, each of N = `length` tokens. Raises DataError if it was removed."""
        with _in_cache():
            return cls(
                owner=np.memmap(folder / "owner", dtype="<i4", mode="r"),
                offsets=np.memmap(folder / "offsets", dtype="<i4", mode="r").reshape(-1, length, 2),
                widest=np.memmap(folder / "widest", dtype=np.bool_, mode="r").reshape(-1, length),
                path=folder / "questions.jsonl",
            )


@contextmanager
def _in_cache() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(
            f"{error.filename} was removed from the cache while it was in use",
            "give the same command again, which makes the file again",
        ) from error


class AnswerSpan(NamedTuple):
    """A span of a window that may be the answer."""

    score: float
    first: int  # tokens of the window
    last: int


def answer_texts(
    starts_WN: np.ndarray, ends_WN: np.ndarray, windows: QuestionWindows, questions: list[dict[str, Any]], task: Span
) -> dict[str, str]:
    """The answer to each question by its id, a substring of its context; empty where no span is possible.

    The logits of padding are -inf. Of equally good spans the first counts.
    """
    if task.window_score == "log_probabilities":
        starts_WN, ends_WN = _normalized(starts_WN), _normalized(ends_WN)
    best: dict[int, AnswerSpan] = {}
    texts = {str(question["id"]): "" for question in questions}
    for window, owner in enumerate(windows.owner.tolist()):
        offsets = windows.offsets[window]
        span = best_span(starts_WN[window], ends_WN[window], offsets[:, 0] != NONE, windows.widest[window], task)
        if span and (owner not in best or span.score > best[owner].score):
            best[owner] = span
            context = questions[owner]["context"]
            texts[str(questions[owner]["id"])] = context[offsets[span.first, 0] : offsets[span.last, 1]].strip()
    return texts


def best_span(
    start_N: np.ndarray, end_N: np.ndarray, context_N: np.ndarray, widest_N: np.ndarray, task: Span
) -> AnswerSpan | None:
    """The span of the context with the highest sum of logits, of the `n_best` starts and ends; None without any.

    It begins at a token for which this window has the most context, and has at most `max_answer` tokens.
    """
    starts = _top(np.where(context_N & widest_N, start_N, -np.inf), task.n_best)
    ends = _top(np.where(context_N, end_N, -np.inf), task.n_best)
    if not starts.size or not ends.size:
        return None
    size_SE = ends[None, :] - starts[:, None]
    sum_SE = start_N[starts][:, None] + end_N[ends][None, :]
    sum_SE = np.where((size_SE >= 0) & (size_SE < task.max_answer), sum_SE, -np.inf)
    row, column = np.unravel_index(sum_SE.argmax(), sum_SE.shape)
    score = float(sum_SE[row, column])
    return AnswerSpan(score, int(starts[row]), int(ends[column])) if score > -np.inf else None


def _top(logits_N: np.ndarray, count: int) -> np.ndarray:
    """Positions of the largest finite logits, the largest first, of equals the first."""
    order = np.argsort(-logits_N, kind="stable")[:count]
    return order[np.isfinite(logits_N[order])]


def _normalized(logits_WN: np.ndarray) -> np.ndarray:
    """Log probabilities over a window, [CLS] (no answer here) included: comparable between windows."""
    highest = logits_WN.max(1, keepdims=True)
    return logits_WN - highest - np.log(np.exp(logits_WN - highest).sum(1, keepdims=True))
