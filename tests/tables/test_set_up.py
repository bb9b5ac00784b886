"""What a budget replaces of the paper's set-up."""

from __future__ import annotations

from experiments.tables.definition.request import Request, load
from experiments.tables.set_up import set_up
from experiments.tables.sources.choose import source_of


def said(name: str, budget: str = "nano", *overrides: str) -> str:
    request = Request(name, load(name), budget, range(1), overrides)
    row = next(iter(request.configurations))
    return set_up(request, source_of(request, {row: request.configurations[row].definition}))


def test_sizes_and_steps_stand_beside_the_papers():
    found = said("shazeer2020/heads").split(", ")
    assert "layers 4 (12)" in found and "width 192 (768)" in found and "length 64 (512)" in found
    assert "mask rate 0.4 (0.15)" in found and "optimizer muon (adamw)" in found
    assert not [each for each in found if each.startswith("objective ")], "the paper's too"
    assert "layers 2 (12)" in said("shazeer2020/heads", "nano", "layers=2").split(", "), "the user's own"


def test_another_objective_is_said():
    assert said("britz2017/additive").startswith("objective masked (translation), mask rate 0.4 (-), ")


def test_a_table_that_measures_its_models_says_how_they_were_trained():
    assert "layers 12" not in said("clark2019/head_distance") and "width 192 (768)" in said("clark2019/head_distance")
    assert "width 192 (768)" in said("shazeer2020/projection_structure")


def test_the_papers_own_budget_replaces_nothing():
    assert said("shazeer2020/heads", "paper") == said("vaswani2017/scaling") == ""
