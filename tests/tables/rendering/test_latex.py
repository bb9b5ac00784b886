"""A table in LaTeX."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from experiments.display.latex import tex
from experiments.tables.rendering.columns import MOST_COLUMNS
from experiments.tables.rendering.render import render
from tests.fixtures.latex import overfull_boxes
from tests.tables.known import made

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "results"

pytestmark = pytest.mark.usefixtures("heads_table")


def test_latex_is_booktabs_and_escaped():
    text = render(made(), "latex")
    assert r"90.89 $\pm$ 0.15 (s)" in text and r"validation\_loss" in text and "$d_k$" in text
    body = re.sub(r"%.*", "", text.replace(r"\%", "")).replace("$d_k$", "")
    assert not re.search(r"(?<!\\)[_#]", body)
    tabulars = re.findall(r"begin{tabular}{([lr]+)}(.*?)end{tabular}", body, re.DOTALL)
    assert len(tabulars) == text.count(r"\toprule") == text.count(r"\bottomrule") == 2
    for columns, inside in tabulars:
        lines = re.findall(r"(.*) \\\\\n", inside)
        assert lines and {len(re.split(r"(?<!\\)&", line)) for line in lines} == {len(columns)} <= {
            *range(MOST_COLUMNS + 1)
        }


def test_latex_compiles_and_fits_the_page(tmp_path):
    # whatever stands before it
    text = f"Some words.\n{render(made(), 'latex')}"
    packages = re.search(r"% needs \\usepackage\{(.*)\}", text)[1].split(",")
    assert overfull_boxes(text, packages, tmp_path) == []


def test_the_results_compile_and_fit_the_page(tmp_path):
    texts = [path.read_text() for path in sorted(RESULTS.glob("*.tex"))]
    assert texts and overfull_boxes("\\clearpage\n".join(texts), ["booktabs", "graphicx"], tmp_path) == []


def test_latex_says_as_much_of_a_claim_as_the_other_formats():
    text = render(made(), "latex")
    assert r"\item C4, reversed: The more heads the worse." in text
    assert text.count(r"\begin{itemize}") == text.count(r"\end{itemize}") > 2
    claims = render(made(), "markdown").partition("## Claims")[2].partition("## Conditions")[0]
    lines = re.findall(r"^ *\* (.*)$", claims, re.MULTILINE)
    assert lines and all(rf"\item {tex(line)}" in text for line in lines)
    assert r"\item margin: 0.01: " in text and r"\item evidence: anytime-valid" in text
    assert "a third party's transcription" in text and "Holm's correction" in text
