"""A line for people reaches a pipe and a terminal letter by letter."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from experiments.display.lines import say


@pytest.mark.parametrize("terminal", [True, False])
def test_a_line_is_printed_as_it_is(terminal):
    console = Console(file=io.StringIO(), width=20, force_terminal=terminal, color_system="truecolor")
    line = "[1/2] a long line with 3.5 numbers, [bold]brackets[/bold] and 'texts' in /a/path"
    say(console, line)
    assert console.file.getvalue() == f"{line}\n"
