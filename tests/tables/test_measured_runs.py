"""Tables of measurements on trained models: rows share runs, and a number is kept until its run changes."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from rich.console import Console

from experiments.cells.cell import folder_of
from experiments.display.progress import Display
from experiments.failures.failure import Mistake
from experiments.heads.measures.distance import head_distances, within_and_between
from experiments.heads.trained_run import open_trained_run
from experiments.record.code.digests import measure_digests
from experiments.tables.measured import head_distance, projection_structure
from experiments.tables.sources.measured_runs import MeasuredRuns

QUIET = Console(file=io.StringIO())


@pytest.fixture
def source(tiny, tmp_path, attn, monkeypatch):
    """Two rows of one talking-heads model of two heads and two layers."""
    monkeypatch.chdir(tmp_path)
    run = [*tiny, "variant=talking_heads", "heads=2"]
    rows = {pairs: [*run, f"measure.pairs={pairs}"] for pairs in ("within", "between")}
    return MeasuredRuns("head_distance", rows, tmp_path / "runs")


def test_rows_of_one_run_train_it_once_and_are_measured_anew_when_it_changes(source, tmp_path):
    within, between = cells = source.cells([0])
    assert [source.outcome(cell).state for cell in cells] == ["missing", "missing"]
    source.make([within], "group", QUIET, 1)
    assert [source.outcome(cell).state for cell in cells] == ["done", "pretrained"]
    source.make(cells, "group", QUIET, 1)
    (settings,) = map(source._runs.settings, source._runs.cells([0]))
    run = open_trained_run(folder_of(settings), settings, "newest", 64, Display())
    distances, names = head_distances(run)
    expected = within_and_between(distances, np.array([layer for layer, _ in names]))
    assert [source.outcome(cell).result["distance"] for cell in (within, between)] == list(expected)
    assert source.outcome(within).result["validation_loss"] > 0

    # what P_l and P_w are is a matter of the same model
    matrices = [layer.attention.logits_projection.static.detach().numpy() for layer in run.model.layers]
    shares = [1 - np.trace(matrix**2) / np.sum(matrix**2) for matrix in matrices]
    found = projection_structure.measure(run, projection="logits")
    assert found["off_diagonal"] == pytest.approx(np.mean(shares), rel=1e-5)
    with pytest.raises(Mistake, match="must be one of logits, weights"):
        projection_structure.measure(run, projection="values")
    with pytest.raises(Mistake, match="must be one of within, between"):
        head_distance.measure(run, pairs="near")

    # a number of another training is none
    (kept,) = (tmp_path / "runs" / "computed").glob(f"{within.name}.json")
    record = json.loads(kept.read_text())
    kept.write_text(json.dumps(record | {"distance": 0.0}))
    assert source.outcome(within).state == "refused"


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("measure.pair=within", "within: there is no setting 'pair' .did you mean pairs"),
        ("seed=3", "within: pairs is missing"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_trained(override, said, tmp_path):
    with pytest.raises(Mistake, match=said):
        MeasuredRuns("head_distance", {"within": [override]}, tmp_path)


def test_what_a_measurement_computes_with_is_part_of_its_code():
    covered = measure_digests("experiments.tables.measured.head_distance")
    for file in ("tables/measured/head_distance", "heads/measures/distance", "heads/hooks", "tasks/trained"):
        assert f"experiments/{file}.py" in covered
    assert "attention/layers/attend.py" in covered and "experiments/record/folder.py" not in covered


def test_a_plan_covers_the_code_of_the_runs_that_are_measured(source):
    for row in ("within", "between"):
        (settings,) = source.trained(row)
        assert settings.variant["name"] == "talking_heads"
