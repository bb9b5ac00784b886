"""scripts/draw_dashboard.py: the page of the runs that it makes up shows verdicts of three kinds."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from experiments.commands.compare import compare_runs
from experiments.dashboard.page import page_data
from experiments.display import rows
from scripts.draw_dashboard import HIGHER, RUNS, SEEDS, make_runs
from tests.fixtures.command import ROOT


def test_made_up_runs_have_their_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_runs(Path(RUNS))
    data = page_data([], Path(RUNS))
    assert len(data["configurations"]) == len(HIGHER)
    assert sum(len(each["ended"]) for each in data["configurations"]) == len(HIGHER) * SEEDS - 1
    (comparison,) = data["comparisons"]
    words = {found["word"] for found in comparison["differences"][comparison["baselines"][0]].values()}
    assert words == {"better", "worse", "not resolved"} and data["notes"] == [f"Made by: attn dashboard, from {RUNS}/."]


def test_the_manual_has_their_comparison(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_runs(Path(RUNS))
    terminal = Console(file=io.StringIO(), width=120, force_terminal=True, color_system=None)
    monkeypatch.setattr(rows, "Console", lambda: terminal)
    compare_runs([], Path(RUNS), "loss", "table", over_seeds=True)
    printed = "\n".join(line.rstrip() for line in terminal.file.getvalue().splitlines())
    assert f"```text\n{printed}\n```" in (ROOT / "docs" / "dashboard.md").read_text()
