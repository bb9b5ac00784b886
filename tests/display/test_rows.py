from __future__ import annotations

import io
import json
import math

import pytest
from rich.console import Console

from experiments.display.rows import as_markdown, readable, show


@pytest.mark.parametrize("width", [40, 60, 70, 80, 100, 120])
def test_an_interval_stays_in_one_line_and_a_sentence_stands_below_its_row(width):
    sentence = "with a head size independent of d / h, every added head improves a causal model"
    rows = [
        {"row": f"given{row}", "what": sentence, "heads": row, "difference": f"+0.{row}333 [+0.{row}000, +0.{row}666]"}
        for row in (1, 2, 3)
    ]
    rows[0]["what"] = sentence.upper()
    terminal = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    show(rows, "table", console=terminal)
    lines = terminal.file.getvalue().splitlines()
    assert all(len(line.rstrip()) <= width for line in lines)
    for row in rows:
        (line,) = (line for line in lines if row["difference"] in line)
        # in a block each value has a line of its own
        assert width == 40 or row["row"] in line
    said = " ".join(terminal.file.getvalue().split())
    assert width != 60 or (sentence in said and sentence.upper() in said)


def test_a_missing_text_below_its_row_is_a_dash():
    rows = [
        {"row": "a", "seeds": 1, "difference": "+0.3333 [+0.3000, +0.3666]"},
        {"row": "b", "seeds": 2, "difference": None},
    ]
    terminal = Console(file=io.StringIO(), width=30, force_terminal=True, color_system=None)
    show(rows, "table", console=terminal)
    assert [line.strip() for line in terminal.file.getvalue().splitlines()][-2:] == ["b       2", "-"]


def test_numbers_of_a_column_have_as_many_digits_after_the_point():
    assert [readable("perplexity", value) for value in (107.96, 100.5, 999.96)] == ["108.0", "100.5", "1,000.0"]
    assert [readable("loss", value) for value in (4.5, 1e-5, 1234.5)] == ["4.5000", "1e-05", "1,234"]


def test_json_is_standard_also_without_finite_numbers(capsys):
    show([{"loss": math.inf, "perplexity": math.nan}], "json")
    read = json.loads(capsys.readouterr().out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert read == [{"loss": "inf", "perplexity": "nan"}]


def test_settings_are_as_they_were_typed_and_measurements_rounded():
    for key in ("learning_rate", "optimizer.weight_decay"):
        shown = [readable(key, value) for value in (0.00125, 0.0013, 1e-05, 0.1, 4000.0)]
        assert shown == ["0.00125", "0.0013", "1e-05", "0.1", "4000"]
    assert readable("loss", 4.00129) == "4.0013"


def test_in_the_narrowest_terminal_a_name_is_whole():
    name = "talking_heads-l4-d192-h24-k8-v8-post-s0-0123456789abcdef"
    rows = [{"run": f"{name}{row}", "difference": f"+0.{row}333 [+0.{row}000, +0.{row}666]"} for row in (1, 2)]
    terminal = Console(file=io.StringIO(), width=30, force_terminal=True, color_system=None)
    show(rows, "table", console=terminal)
    lines = [line.rstrip() for line in terminal.file.getvalue().splitlines()]
    assert all(len(line) <= 30 for line in lines)
    assert all(row["run"] in "".join(lines) and row["difference"] in " ".join(lines) for row in rows)


def test_a_pipe_gets_every_row_on_a_line_and_a_terminal_the_first(monkeypatch):
    monkeypatch.setattr("experiments.display.rows.TERMINAL_ROWS", 2)
    rows = [{"run": f"run-{number}", "loss": 4.0 + number, "peak_memory_bytes": 10**8} for number in range(3)]
    pipe = Console(file=io.StringIO(), width=20)
    show(rows, "table", console=pipe)
    assert pipe.file.getvalue() == (
        "run      loss  peak_memory\n"
        "run-0  4.0000       100 MB\n"
        "run-1  5.0000       100 MB\n"
        "run-2  6.0000       100 MB\n"
    )  # fmt: skip
    terminal = Console(file=io.StringIO(), width=60, force_terminal=True, color_system=None)
    show(rows, "table", console=terminal)
    assert "run-1" in terminal.file.getvalue() and "run-2" not in terminal.file.getvalue()
    assert "the first 2 of 3 rows; a pipe or --format csv has all" in " ".join(terminal.file.getvalue().split())


def test_a_caption_stands_below_every_form_as_it_is_written():
    row = {"configuration": "talking heads", "tokens_per_second": 8000, "peak_memory_bytes": 10**8}
    for rows in ([row], [row, row | {"tokens_per_second": 9000}]):
        for width in (20, 200):
            console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
            show(rows, "table", caption="16 [cells]", console=console)
            text = console.file.getvalue()
            assert text.split()[-2:] == ["16", "[cells]"] and text.endswith("\n")


def test_a_text_of_several_lines_stays_in_its_row_of_markdown():
    assert as_markdown([{"text": "a |\nb"}]).splitlines()[2] == "| a \\| b |"
