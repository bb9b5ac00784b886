"""Lines of text for people, among progress bars and tables."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def say(console: Console, line: str) -> None:
    """Print a line as it is: in one piece, whatever the width, and with no part of it read as markup or coloured."""
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def warn(line: str) -> None:
    """Print a line on stderr, so that stdout has nothing but what the user has asked for."""
    print(line, file=sys.stderr)
