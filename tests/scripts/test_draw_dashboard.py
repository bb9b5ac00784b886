"""scripts/draw_dashboard.py: the page of the runs that it makes up shows verdicts of three kinds."""

from __future__ import annotations

from pathlib import Path

from experiments.dashboard.page import page_data
from scripts.draw_dashboard import HIGHER, RUNS, SEEDS, make_runs


def test_made_up_runs_have_their_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_runs(Path(RUNS))
    data = page_data([], Path(RUNS))
    assert len(data["configurations"]) == len(HIGHER)
    assert sum(len(each["ended"]) for each in data["configurations"]) == len(HIGHER) * SEEDS - 1
    (comparison,) = data["comparisons"]
    words = {found["word"] for found in comparison["differences"][comparison["baselines"][0]].values()}
    assert words == {"better", "worse", "not resolved"} and data["notes"] == [f"Made by: attn dashboard, from {RUNS}/."]
