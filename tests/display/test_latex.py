"""Texts and rows as LaTeX."""

from __future__ import annotations

import re

import pytest

from experiments.display.latex import NEEDS, as_latex, tex
from experiments.results.columns import table_of
from tests.fixtures.latex import overfull_boxes
from tests.fixtures.record import small_result


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("P_l and P_w", "$P_l$ and $P_w$"),
        ("q k / sqrt(d_k), d_k = 8", r"q k / $\sqrt{d_k}$, $d_k$ = 8"),
        ("drawn d_k^-0.5 as large", "drawn $d_k^{-0.5}$ as large"),
        ("-0.03 [-0.05, +0.01]", "$-$0.03 [$-$0.05, +0.01]"),
        ("no W_q, d >= n - 1, 1 - 1/h", r"no $W_q$, d $\geq$ n $-$ 1, 1 $-$ 1/h"),
        ("[0.9, 1] and [2]", "{[}0.9, 1] and [2]"),
        ("4.6e-16 is noise", r"4.6$\times 10^{-16}$ is noise"),
        ("fitted over log2 h", r"fitted over $\log_2$ h"),
        ("attn table NAME --tune", "attn table NAME -{}-tune"),
        ("seeds 0-3, h_vx, -, a^b", r"seeds 0-3, h\_vx, -, a\^{}b"),
    ],
)
def test_mathematics_is_mathematics(text, written):
    assert tex(text) == written


def test_what_all_rows_share_is_said_once_above_the_table():
    rows = [{"layers": 4, "heads": heads, "loss": loss, "norm": None} for heads, loss in ((6, 4.5), (12, 4.25))]
    said, table = as_latex(rows).split("\n\n", 1)
    assert said == f"{NEEDS}\n\\begingroup\\raggedright\nAll rows: layers 4."
    assert re.findall(r"(.*) \\\\\n", table) == ["heads & loss", "6 & 4.5000", "12 & 4.2500"]
    # one row shares nothing with others
    assert "All rows" not in as_latex(rows[:1]) and "layers & heads & loss & norm" in as_latex(rows[:1])


def test_rows_of_runs_compile_and_fit_the_page(tmp_path):
    names = [f"talking_heads-l2-d48-h6-k8-v8-pre-s{seed}-84d63673" for seed in (0, 1)]
    rows = table_of([small_result(name, 5.0 + seed, seed=seed) for seed, name in enumerate(names)])
    assert overfull_boxes(as_latex(rows), ["booktabs", "graphicx"], tmp_path) == []
