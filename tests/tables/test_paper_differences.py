"""Where a budget's settings differ from those of the budget `paper`."""

from __future__ import annotations

from experiments.statistics.evidence import Anytime
from experiments.tables.conditions import Conditions, facts, facts_of_cells
from experiments.tables.definition.request import Request, load
from experiments.tables.paper_differences import differences_from_paper
from experiments.tables.sources.choose import source_of
from experiments.tables.sources.source import Source


def asked(name: str, budget: str = "nano", *overrides: str) -> tuple[Request, Source]:
    """A request for one seed, and the source of its first row."""
    request = Request(name, load(name), budget, range(1), overrides)
    row = next(iter(request.configurations))
    return request, source_of(request, {row: request.configurations[row].definition})


def said(name: str, budget: str = "nano", *overrides: str) -> str:
    return differences_from_paper(*asked(name, budget, *overrides))


def conditions(name: str, budget: str) -> dict[str, str]:
    request, source = asked(name, budget)
    of_cells = facts_of_cells(request, {}, Conditions(paper_differences=differences_from_paper(request, source)))
    return dict(facts(request, Anytime(), None, [*of_cells]))


def test_sizes_and_steps_stand_beside_those_of_the_budget_paper():
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


def test_the_budget_paper_replaces_nothing():
    assert said("shazeer2020/heads", "paper") == said("vaswani2017/scaling") == ""


def test_the_conditions_say_what_the_budget_in_brackets_trains_and_where_it_differs_from_the_paper():
    found = conditions("britz2017/additive", "nano")
    assert found["set-up (at --budget paper)"] == said("britz2017/additive")
    assert "with the base model of Vaswani et al., BLEU. Britz et al. compare recurrent" in found["--budget paper"]
    assert not {"set-up (at --budget paper)", "--budget paper"} & conditions("britz2017/additive", "paper").keys()
