"""Options and settings that a command is given and does not read, each of which is a mistake.

A mode is one of the things that a command does. It is named by the option that asks for it, or by a noun.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from experiments.failures.failure import Mistake
from experiments.failures.wording import joined

Given = Mapping[str, object]  # the options on a command line with their values; True for a flag
Modes = Mapping[str, str]  # the options that each mode reads, besides the one that asks for it


def check_read(modes: Modes, given: Given, mode: str | None = None) -> str:
    """Returns the mode that is asked for. Raises Mistake for an option that is given and that it does not read.

    mode: None for the first one whose option is given; if none is, the last one.
    """
    if mode is None:
        mode = next((each for each in modes if each in given), [*modes][-1])
    for option, value in given.items():
        if option == mode or option in modes[mode].split():
            continue
        values = value if isinstance(value, list) else [value]
        texts = (f"{each:g}" if isinstance(each, float) else str(each) for each in values)
        typed = option if value is True else " ".join(f"{option} {text}" for text in texts)
        readers = [each for each in modes if option in modes[each].split()]
        others = f"; {joined(readers)} {'does' if len(readers) == 1 else 'do'}" if readers else ""
        raise Mistake(f"{typed}: {mode} does not use it{others}")
    return mode


class Idle(NamedTuple):
    """A setting that nothing reads, because of the value of another."""

    key: str
    reason: str  # the other with its value, `model.position=rotary`
    reader: str  # the other with a value that reads the setting, `model.position=sinusoidal`

    def within(self, group: str) -> Idle:
        """The same with the name of the group before each key."""
        return Idle(*(f"{group}.{each}" for each in self))


def check_none_idle(words: Iterable[str], idle: Iterable[Iterable[Idle]], are_all: bool = True) -> None:
    """Raises Mistake for words about settings that no cell reads.

    idle: the settings that a cell does not read, for each cell. are_all: whether there are no other cells. Those of a
    search are not every combination of its values, so each reason why a setting is idle has to be that of all cells.
    """
    typed = {word.partition("=")[0]: word for word in words}
    # there may be thousands of cells
    cells = [[each for each in cell if each.key in typed] for cell in idle]
    lines = [
        f"{word}: nothing reads it with {joined(reasons)}; it is read with {' or '.join(readers)}"
        for key, word in typed.items()
        for reasons, readers in _obstacles([[each for each in cell if each.key == key] for cell in cells], are_all)
    ]
    if lines:
        raise Mistake("\n".join(lines))


def _obstacles(cells: list[list[Idle]], are_all: bool) -> Iterator[tuple[list[str], list[str]]]:
    """Yield each obstacle to a setting that all cells share: the reasons, and what would read the setting.

    cells: why each cell does not read it, which may be for several reasons; empty for a cell that does.
    """
    reasons: dict[str, list[str]] = {}  # by reader
    for each in chain.from_iterable(cells):
        reasons.setdefault(each.reader, []).append(each.reason)
    shared = [reader for reader in reasons if all(reader in (each.reader for each in cell) for cell in cells)]
    for reader in shared:
        yield _once_each(reasons[reader]), [reader]
    if not shared and are_all and cells and all(cells):
        # each cell has an obstacle, but not the same one
        yield _once_each(chain.from_iterable(reasons.values())), [*reasons]


def _once_each(texts: Iterable[str]) -> list[str]:
    return [*dict.fromkeys(texts)]


class Unread(NamedTuple):
    """A setting that is not read."""

    text: str  # as it was typed
    key: str
    group: str  # the first part of the key


def unread_settings(
    overrides: Iterable[str], read: Container[str], except_for: Container[str] = ()
) -> Iterator[Unread]:
    """Those overrides whose keys are not among `read`, where a group stands for all of its keys.

    except_for: keys of such groups that are not read either.
    """
    for text in overrides:
        key = text.partition("=")[0]
        group = re.split(r"[./@]", key)[0]
        if key in except_for or (key not in read and group not in read):
            yield Unread(text, key, group)
