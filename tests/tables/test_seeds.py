"""Which seeds have begun, and which count."""

from __future__ import annotations

import pytest

from experiments.settings.group import SEEDS
from experiments.tables.archive import archive, restored
from experiments.tables.rendering.sentences import missing
from experiments.tables.sources.runs import Runs
from experiments.tables.sources.source import TableCell
from tests.tables.made import QUIET, Made, begun, reported, request

pytestmark = pytest.mark.usefixtures("heads_table")


def test_a_run_folder_without_a_result_is_that_of_a_cell_that_has_begun(tmp_path):
    source = Runs({"h8": ["heads=8"]}, tmp_path)
    (cell,) = source.cells([3])
    assert source.outcome(cell).state == "missing" and begun(source) == []
    (tmp_path / cell.name).mkdir()
    assert source.outcome(cell).state == "begun" and begun(source) == [3]


def test_all_seeds_before_the_requested_ones_are_found_however_many_are_missing_between():
    source = Made({"h8": 4.0, "h16": 4.1}, spread=0.02)
    largest = SEEDS - 1
    for seed in (40, 43, 60, 99, largest):
        source.done["h8", seed] = 4.0
    assert begun(source) == [] and begun(source, 60) == [40, 43, 60] and begun(source, 99) == [40, 43, 60, 99]
    assert begun(source, largest) == [40, 43, 60, 99, largest], "without a look at all seeds between"


def test_the_seeds_that_have_begun_are_found_wherever_they_end(tmp_path):
    source = Made({"h8": 4.0, "h16": 4.0, "h32": 4.0}, spread=0.1)
    assert begun(source) == []
    source.done = {("h16", seed): 4.0 for seed in (0, 3, 17)} | {("h8", 500): 4.0}
    assert begun(source) == [0, 3, 17], "a seed far from all others is none of the table's"


def test_cells_of_seeds_that_nobody_asked_for_count_where_they_are(tmp_path):
    asked = request(tmp_path, range(2))
    source = Made({"h8": 4.0, "h16": 4.1, "h32": 4.2}, spread=0.02)
    source.make(source.cells(range(2)), "", QUIET)
    source.make([TableCell("h8", 7, ""), TableCell("h16", 7, "")], "", QUIET)
    made = reported(asked, source)
    assert [line.seeds for line in made.lines] == [3, 3, 2]
    assert made.is_complete and {line.state for line in made.lines} == {"done"}
    # nobody asked for the third row's cell of seed 7
    assert (made.cells, made.missing) == (8, 0)
    assert missing(made) == "(!) marks numbers that cover only some of the seeds."
    archive(made, tmp_path / "numbers.json")
    assert restored(tmp_path / "numbers.json").missing == 0
