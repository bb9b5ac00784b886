"""A table in every format."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest
from rich.console import Console

from experiments.tables.rendering.latex import latex
from experiments.tables.rendering.markdown import markdown
from experiments.tables.rendering.page import page
from experiments.tables.rendering.render import claim_rows, render, write_all
from experiments.tables.rendering.sentences import Detail
from experiments.tables.rendering.text import as_text
from tests.tables.known import LOSSES, made, uneven

pytestmark = pytest.mark.usefixtures("heads_table")


@pytest.mark.parametrize("format", ["table", "markdown", "latex"])
def test_every_form_counts_missing_cells_at_the_top_and_marks_what_is_not_over_all_seeds(format):
    text = render(uneven(), format)
    top = text.partition("unigram")[0]
    assert "8 of 18 cells are missing; (!) marks numbers that cover only some of the seeds." in top
    (row,) = [each for each in text.splitlines() if "16 heads" in each]
    assert row.count("(!)") == 2
    (row,) = [each for each in text.splitlines() if "8 heads" in each]
    assert "(!)" not in row
    footnote = "(!) h16: the mean covers seeds 0-1 of 0-3; the difference covers seeds 0-1, shared with h8: 4.1500"
    assert footnote in text
    assert "(!)" not in render(made(), format) and "missing" not in render(made(), format)


def test_the_figure_counts_missing_cells_and_marks_their_rows(tmp_path):
    write_all(uneven(), tmp_path)
    drawn = (tmp_path / "me2026_heads.svg").read_text()
    said = ("C4: not resolved", "The more heads the worse")
    for text in ("8 of 18 cells are missing", *said, "(!) h16: the mean covers seeds 0-1 of 0-3", ">(!)<"):
        assert text in drawn
    write_all(made(), tmp_path)
    assert "(!)" not in (tmp_path / "me2026_heads.svg").read_text()


def test_markdown_has_marks_verdicts_and_conditions():
    text = render(made(overrides=("data=text", "data.train=/home/me/book.txt")), "markdown")
    assert "90.89 +- 0.15 (s)" in text and "a third party's transcription" in text
    assert "**C4, reversed.**" in text and "95% interval" in text
    assert text.splitlines()[2:5] == ["Claimed: the more heads the worse.", "", "1 claim by Somebody 2026 is reversed."]
    assert "data.train=book.txt" in text and "/home/me" not in text
    for fact in (
        "a machine, 2 threads",
        "2026-11-21",
        "1,228,800",
        "multi_head 01234567",
        "SHA-256 abcdef01",
        "seeds: 0-5",
        "anytime-valid",
        "margin: 0.01: made for the test",
    ):
        assert fact in text


def test_the_comparisons_of_a_scheme_are_below_it_in_every_format():
    shown = page(made())
    details = [Detail(0, "rotary: holds"), Detail(1, "a < b: holds"), Detail(2, "step: ..."), Detail(0, "a question")]
    shown = replace(shown, claims=[replace(claim, details=details) for claim in shown.claims])
    assert "* rotary: holds\n    * a < b: holds\n        * step: ...\n* a question\n" in markdown(shown)
    assert "\n  rotary: holds\n    a < b: holds\n      step: ...\n  a question\n" in as_text(shown)
    begin, end, item = r"\begin{itemize}", r"\end{itemize}", r"\item "
    nested = [f"{item}rotary: holds", begin, f"{item}a $<$ b: holds", begin, f"{item}step: ...", end, end]
    assert "\n".join([*nested, f"{item}a question", end, end]) in latex(shown)


def test_the_verdicts_are_read_above_the_numbers():
    text = render(made(), "markdown")
    above = text.partition("| row |")[0]
    assert "| C4 | The more heads the worse | **reversed** |" in above


def test_csv_is_exact():
    rows = list(csv.DictReader(io.StringIO(render(made(), "csv"))))
    assert [row["published_squad_f1"] for row in rows] == ["90.89", "90.61", "90.45"]
    assert float(rows[0]["validation_loss"]) == pytest.approx(4.01)
    assert rows[0]["published_squad_f1_mark"] == "s"
    claims = claim_rows(made())
    assert claims[0]["verdict"] == "reversed" and claims[0]["differences"].startswith("0:")


@pytest.mark.parametrize("width", [60, 100, 250])
def test_a_narrow_terminal_crops_no_number(width):
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None, highlight=False)
    text = render(made(), "table", console)
    for number in ("90.89 +- 0.15 (s)", "4.0100", "2,570,752", "500 MB", "x1.25", "+0.3133"):
        assert number in text, number
    assert "..." not in text.replace("0 .. N", "") and "\u2026" not in text


def test_every_format_is_written_at_once(tmp_path):
    written = write_all(made(), tmp_path / "results")
    names = [path.name for path in written]
    ends = (".txt", ".md", ".csv", ".tex", "_seeds.csv", "_claims.csv", ".svg", ".pdf", ".json")
    assert names == [*(f"me2026_heads{end}" for end in ends), "README.md"]
    assert sorted(path.name for path in (tmp_path / "results").iterdir()) == sorted(names)
    assert all(path.read_bytes() for path in written)
    assert "![More heads of less width](me2026_heads.svg)" in (tmp_path / "results" / "me2026_heads.md").read_text()
    by_seed = [*csv.DictReader((tmp_path / "results" / "me2026_heads_seeds.csv").open())]
    assert [float(row["validation_loss"]) for row in by_seed if row["row"] == "h16"] == [*LOSSES["h16"]]
    assert {row["machine"] for row in by_seed} == {"a machine, 2 threads"}
