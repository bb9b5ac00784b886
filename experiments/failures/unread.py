"""Options that a command is given and does not read, each of which is a mistake.

A mode is one of the things that a command does. It is named by the option that asks for it, or by a noun.
"""

from __future__ import annotations

from collections.abc import Mapping

from experiments.failures.failure import Mistake
from experiments.failures.wording import joined

Given = Mapping[str, object]  # the options on a command line with their values; True for a flag
Modes = Mapping[str, str]  # the options that each mode reads, besides the one that asks for it


def check_read(modes: Modes, given: Given, mode: str | None = None) -> None:
    """Raises Mistake for an option that is given and that the mode does not read.

    mode: None for the first one whose option is given; if none is, the last one.
    """
    if mode is None:
        mode = next((each for each in modes if each in given), [*modes][-1])
    for option, value in given.items():
        if option == mode or option in modes[mode].split():
            continue
        text = f"{value:g}" if isinstance(value, float) else str(value)
        typed = option if value is True else f"{option} {text}"
        readers = [each for each in modes if option in modes[each].split()]
        others = f"; {joined(readers)} {'does' if len(readers) == 1 else 'do'}" if readers else ""
        raise Mistake(f"{typed}: {mode} does not use it{others}")
