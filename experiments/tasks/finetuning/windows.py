"""Windows: the stretches of tokens that a model reads at once, and how texts are cut into them."""

# N tokens of a window, C tokens of a context, W windows of a context

from __future__ import annotations

from typing import NamedTuple

import numpy as np

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

    Of equal windows the longest counts, then the first.
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


def fitting_sizes(sizes: list[int], room: int) -> list[int]:
    """The sizes of one or two texts cut to fit into `room`: the longer one gives way until both are equal."""
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
