"""What a model is given: `[CLS] question [SEP] context [SEP]` in windows that slide, `[CLS] a [SEP] b [SEP]` in one."""

# N tokens of a window, C tokens of a context, W windows of an example

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from experiments.data.tokenizer import Tokenizer
from experiments.settings.finetuning import Span
from experiments.tasks.finetuning.examples import LabelledExample, Question

NONE = -1  # an offset of a token that is no part of the context


class Window(NamedTuple):
    """A stretch of tokens that a model reads at once, and what it has to predict."""

    tokens: np.ndarray  # int64, without padding
    boundary: int  # where the second text begins; without one, how many tokens there are
    targets: list[int]  # positions of the answer's first and last token, or the label
    offsets: np.ndarray | None = None  # int64 [tokens, 2], characters of the context; NONE elsewhere
    widest: np.ndarray | None = None  # bool [tokens]: no other window shows this token of the context more around it


def context_starts(size: int, room: int, stride: int) -> list[int]:
    """Where windows of `room` tokens begin in a context of `size`: they cover it, and the last ends with it."""
    starts = [0]
    while starts[-1] + room < size:
        starts.append(starts[-1] + min(room, stride))
    return starts


def widest(starts: list[int], size: int, room: int) -> np.ndarray:
    """Bool [W, C]: for each token, the window with the most context on the token's shorter side (Devlin's code).

    Of equals the longer window, then the first.
    """
    begin = np.array(starts)[:, None]
    end = np.minimum(begin + room, size)
    position = np.arange(size)
    poorer = np.minimum(position - begin, end - 1 - position)
    score = np.where(poorer >= 0, poorer + 0.01 * (end - begin), -np.inf)
    return np.arange(len(starts))[:, None] == score.argmax(0)


def answer_tokens(offsets_C2: np.ndarray, first: int, last: int) -> tuple[int, int] | None:
    """The first and the last token that share a character with characters [first, last); None where none does."""
    inside = np.flatnonzero((offsets_C2[:, 1] > first) & (offsets_C2[:, 0] < last))
    return (int(inside[0]), int(inside[-1])) if inside.size else None


def question_windows(
    example: Question, question: np.ndarray, context: np.ndarray, offsets_C2: np.ndarray, tokenizer: Tokenizer,
    task: Span, length: int,
) -> list[Window]:  # fmt: skip
    """The windows of an example. One that does not hold the whole answer has its targets at [CLS] (Devlin's code)."""
    question = question[: task.max_question]
    room = length - len(question) - 3
    starts = context_starts(len(context), room, task.document_stride)
    widest_WC = widest(starts, len(context), room) if len(context) else np.zeros((1, 0), dtype=bool)
    answer = answer_tokens(offsets_C2, example.start, example.start + len(example.answers[0]))
    head = np.concatenate([[tokenizer.cls_id], question, [tokenizer.sep_id]])
    around = (len(head), 1)
    made = []
    for number, start in enumerate(starts):
        part = slice(start, min(start + room, len(context)))
        targets = [0, 0]
        if answer and part.start <= answer[0] and answer[1] < part.stop:
            targets = [len(head) + place - start for place in answer]
        made.append(
            Window(
                tokens=np.concatenate([head, context[part], [tokenizer.sep_id]]),
                boundary=len(head),
                targets=targets,
                offsets=np.pad(offsets_C2[part], (around, (0, 0)), constant_values=NONE),
                widest=np.pad(widest_WC[number, part], around),
            )
        )
    return made


def text_window(
    example: LabelledExample, parts: list[np.ndarray], tokenizer: Tokenizer, length: int, target: int
) -> Window:
    """One text or two; what is too long is cut, of two the longer one first."""
    sizes = kept([len(part) for part in parts], length - 1 - len(parts))
    pieces = [np.append(part[:size], tokenizer.sep_id) for part, size in zip(parts, sizes, strict=True)]
    return Window(np.concatenate([[tokenizer.cls_id], *pieces]), 1 + len(pieces[0]), [target])


def kept(sizes: list[int], room: int) -> list[int]:
    """How much of one or two texts is kept so that they fit: the longer one gives way until both are equal."""
    if sum(sizes) <= room:
        return sizes
    if len(sizes) == 1:
        return [room]
    first, second = sizes
    # of equals the second gives way, as in Devlin's code
    low = room // 2
    if second <= low:
        return [room - second, second]
    if first <= room - low:
        return [first, room - first]
    return [room - low, low]
