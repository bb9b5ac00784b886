"""The cells of a table's rows: runs that differ, and functions that are computed."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from experiments.failures.failure import Mistake
from experiments.tables.sources.computed import Computed
from experiments.tables.sources.runs import Runs


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
