"""The cells of a table's rows: runs that differ, and functions that are computed."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from experiments.failures.failure import Mistake
from experiments.settings import plugins
from experiments.tables.sources.computed import Computed
from experiments.tables.sources.runs import Runs
from tests.fixtures.plugins import write_files


def test_a_mistake_in_one_row_names_it():
    with pytest.raises(Mistake, match=r"^b: ") as caught:
        Runs({"a": ["heads=2"], "b": ["heads=0"]}, Path("runs"))
    assert "a: " not in str(caught.value).splitlines()[0]


def test_rows_made_equal_by_an_override_are_refused():
    rows = {"a": ["heads=2"], "b": ["heads=2"]}
    with pytest.raises(Mistake, match="the rows a and b are the same run"):
        Runs(rows, Path("runs"))


def test_computed_cells_are_kept_each_in_a_file(tmp_path):
    from rich.console import Console

    console = Console(file=io.StringIO())
    full = ["form=free", "tokens=3", "heads=1", "key_size=3", "starts=1"]
    rows = {"a": full, "b": [*full[:3], "key_size=1", "starts=1"]}
    source = Computed("column_stochastic", rows, tmp_path / "runs")
    cells = source.cells(range(2))
    assert [(cell.row, cell.seed) for cell in cells] == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    source.make(cells[:1], "group", console)
    assert [source.outcome(cell).state for cell in cells] == ["done", "missing", "missing", "missing"]
    assert source.kept_seeds() == {0}
    (kept,) = (tmp_path / "runs").glob("*/*")
    before = kept.stat().st_mtime_ns
    source.make(cells, "group", console)
    assert kept.stat().st_mtime_ns == before
    assert {source.outcome(cell).state for cell in cells} == {"done"} and source.kept_seeds() == {0, 1}
    kept.write_text("{")
    assert source.outcome(cells[0]).state == "refused"


COIN = "def {0}(*, seed, bias):\n    return {1}\n"
COINS = """
title: Coins
shows: that they differ
paper: Somebody 2026
source: coin
baseline: fair
margin: {value: 0.1, reason: made for the test}
rows: {fair: {label: fair, overrides: bias=0.5}, odd: {label: odd, overrides: bias=0.9}}
claims:
  S1: {says: They differ, origin: paper, parts: [odd > fair]}
budgets:
  nano: {task: shares, seeds: 1, overrides: "", score: heads_shre}
"""


@pytest.mark.parametrize(
    ("name", "returned", "said"),
    [
        ("mesure", "{}", "coin.py: has no function measure"),
        ("measure", "0.5", "coin.py: measure returns 0.5: must be a dict of numbers"),
    ],
)
def test_a_function_that_is_missing_or_gives_no_numbers_is_named(name, returned, said, tmp_path, unplugged):
    from rich.console import Console

    files = {"experiments/tables/numerical/coin.py": COIN.format(name, returned)}
    plugins.add([f"plugins={write_files(tmp_path / 'mine', files)}"])
    with pytest.raises(Mistake, match=said):
        source = Computed("coin", {"fair": ["bias=0.5"]}, tmp_path / "runs")
        source.make(source.cells([0]), "group", Console(file=io.StringIO()))


def test_a_score_that_a_function_does_not_give_is_refused(attn, tmp_path, unplugged):
    coin = COIN.format("measure", "{'heads_share': bias}")
    files = {"experiments/tables/numerical/coin.py": coin, "conf/table/me2026/coin.yaml": COINS}
    done = attn("table", "me2026/coin", f"plugins={write_files(tmp_path / 'mine', files)}")
    said = "budgets.nano.score: coin gives no number 'heads_shre' (did you mean heads_share?)"
    assert done.returncode == 2 and said in done.stderr
