"""Seeds where they decide most, until every claim is decided."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.statistics.comparison import Compared
from experiments.statistics.evidence import MOST_SEEDS
from experiments.tables.conditions import Conditions
from experiments.tables.definition.request import Request
from experiments.tables.definition.table import UNTUNED
from experiments.tables.report_of_cells import report_of_cells
from experiments.tables.seed_plan import make_plan
from experiments.tables.seeds import FIRST_SEEDS
from experiments.tables.sources.source import Outcomes
from experiments.tables.step_times import StepTimes
from experiments.tables.until_resolved import NextCells, _Open, _open_claims, next_step, until_resolved
from tests.tables.made import QUIET, Made, evidence, reported, request

pytestmark = pytest.mark.usefixtures("heads_table")


def step_of(asked: Request, source: Made) -> NextCells | None:
    return next_step(asked, source, Outcomes(source), reported(asked, source))


def test_a_claim_that_a_plan_has_decided_gets_no_further_seeds_which_would_end_the_plan(tmp_path):
    source = Made({"h8": 4.0, "h16": 4.03, "h32": 4.06}, spread=0.01)
    make_plan(request(tmp_path), source, FIRST_SEEDS)
    source.make(source.cells(range(FIRST_SEEDS)), "", QUIET)
    asked = request(tmp_path, range(FIRST_SEEDS), named=True)
    outcomes = Outcomes(source)
    conditions = Conditions(evidence=evidence(asked, source))
    planned = report_of_cells(asked, source, asked.seeds, outcomes, conditions)
    (verdict,) = planned.verdicts
    assert (verdict.word, verdict.findings[""].outlook.word) == ("holds", "not resolved")
    assert next_step(asked, source, outcomes, planned) is None
    # with the same cells and no plan, it would go on
    assert step_of(asked, source) is not None


def test_a_table_is_made_until_every_claim_is_decided(tmp_path):
    asked = request(tmp_path)
    source = Made({"h8": 4.0, "h16": 4.1, "h32": 4.2}, spread=0.02)
    last = until_resolved(asked, source, partial(reported, asked, source), hours=1, workers=1, console=QUIET)
    assert [verdict.word for verdict in last.verdicts] == ["holds"]
    assert {seed for _, seed in source.made[:12]} == set(range(FIRST_SEEDS)), "first some of every row"
    assert len(source.made) == len(set(source.made)), "no cell is made twice"
    # going on makes nothing more
    made = len(source.made)
    until_resolved(asked, source, partial(reported, asked, source), hours=1, workers=1, console=QUIET)
    assert len(source.made) == made


def test_the_next_seed_goes_to_what_still_decides(tmp_path):
    """The first two rows differ clearly, the other two only slightly, so only the latter get more seeds."""
    asked = request(tmp_path)
    source = Made({"h8": 4.0, "h16": 6.0, "h32": 6.03}, spread=0.02)
    last = until_resolved(asked, source, partial(reported, asked, source), hours=1, workers=1, console=QUIET)
    assert last.verdicts[0].word == "holds"
    counts = {row: sum(made == row for made, _ in source.made) for row in source.rows}
    assert counts["h8"] < counts["h16"] == counts["h32"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["holds"], "of 1 claim, all are decided"),
        (["not resolved", "holds", "reversed"], "of 3 claims, 1 is not resolved"),
        (["not tested", "not resolved", "not tested"], "of 3 claims, 2 are not tested and 1 is not resolved"),
    ],
)
def test_what_is_still_open_is_said_of_every_claim(words, said):
    assert _open_claims(SimpleNamespace(verdicts=[SimpleNamespace(word=word) for word in words])) == said


def test_a_row_whose_cells_fail_is_given_up(tmp_path):
    asked = request(tmp_path)
    source = Made({"h8": 4.0, "h16": 4.1, "h32": 4.2}, spread=0.02)
    source.failing = {"h32"}
    last = until_resolved(asked, source, partial(reported, asked, source), hours=1, workers=1, console=QUIET)
    assert last.verdicts[0].word == "not resolved"
    assert sum(row == "h32" for row, _ in source.made) < 10


def test_a_cell_that_never_ends_with_a_result_is_given_up(tmp_path, monkeypatch):
    """As one does that is killed for want of memory, or that another process trains."""
    asked = request(tmp_path)
    source = Made({"h8": 4.0, "h16": 6.0, "h32": 6.03}, spread=0.02)
    make = source.make

    def made(cells, group, console, workers=None):
        make(cells, group, console)
        source.done.pop(("h32", 2), None)

    monkeypatch.setattr(source, "make", made)
    until_resolved(asked, source, partial(reported, asked, source), hours=1, workers=1, console=QUIET)
    assert source.made.count(("h32", 2)) == 3
    assert {seed for row, seed in source.made if row == "h32"} > {0, 1, 2, 3}, "other seeds are tried"


def test_the_third_failure_of_a_row_is_the_last(tmp_path):
    asked = request(tmp_path)
    source = Made({"h8": 4.0, "h16": 6.0, "h32": 6.03}, spread=0.02)
    source.make(source.cells(range(4)), "", QUIET)
    for failures, given_up in ((2, False), (3, True)):
        source.done |= {("h32", seed): np.nan for seed in range(failures)}
        assert (step_of(asked, source) is None) == given_up


def test_the_next_seed_goes_to_the_comparison_that_needs_the_fewest_more(tmp_path):
    asked = request(tmp_path)
    source = Made({"h8": 0.0, "h16": 0.0, "h32": 0.0}, spread=0.0)
    # 24 pairs with a mean of 0.7 deviations, and four with a mean of one
    for seed in range(24):
        turn = (-1) ** seed
        source.done |= {("h8", seed): 4.0, ("h16", seed): 4.07 + 0.1 * turn}
        if seed < FIRST_SEEDS:
            source.done["h32", seed] = source.done["h16", seed] + 0.1 + 0.1 * turn
    made = reported(asked, source)
    finding = made.verdicts[0].findings[""]
    first, second = (each.seeds_needed(finding.level) for each in finding.comparisons)
    assert first > second and first - 24 < second - FIRST_SEEDS
    step = step_of(asked, source)
    assert {(cell.row, cell.seed) for cell in step.cells} == {("h8", 24), ("h16", 24)}


def test_the_time_that_a_comparison_needs_is_that_of_all_its_rows():
    differences = dict.fromkeys(range(4), 0.1)
    known = Compared("", "", ">", differences, -1, 0.1)
    # six seeds more of a cell of 2 seconds and of one whose time is not known
    assert _Open("C", known, ["a", "b"], 10).cost({"a": 2.0}) == 6 * (2.0 + 1.0)
    assert _Open("C", known, ["a", "b"], None).cost({"a": 2.0, "b": 3.0}) == (MOST_SEEDS - 4) * 5.0
    assert _Open("C", known, ["a"], 3).cost({"a": 2.0}) == 2.0, "at least one"


def test_no_seed_goes_to_what_holds_already_or_to_a_claim_that_none_decides(tmp_path):
    asked = request(tmp_path)
    source = Made({"h8": 0.0, "h16": 0.0, "h32": 0.0}, spread=0.0)
    for seed in range(FIRST_SEEDS):
        turn = (-1) ** seed
        source.done |= {("h8", seed): 4.0, ("h16", seed): 4.1 + 0.02 * turn, ("h32", seed): 4.2 + 0.1 * turn}
    outlook = reported(asked, source).verdicts[0].findings[""].outlook
    first, second = outlook.comparisons
    assert first.word(outlook.level) == "holds" and first.word(outlook.level / 2) == second.word() == "not resolved"
    assert {cell.row for cell in step_of(asked, source).cells} == {"h16", "h32"}
    # h32 is worse, so a rate of its own could undo what more seeds show
    row = asked.table.rows["h32"].model_copy(update={"family": "other"})
    budget = asked.table.budget("nano")
    rates = budget.learning_rates | {"other": UNTUNED}
    budgets = {"nano": budget.model_copy(update={"learning_rates": rates})}
    table = asked.table.model_copy(update={"rows": asked.table.rows | {"h32": row}, "budgets": budgets})
    untuned = replace(asked, table=table)
    assert reported(untuned, source).verdicts[0].word == "not resolved" and step_of(untuned, source) is None


def test_no_seed_goes_to_a_claim_about_the_time_of_a_step(tmp_path):
    asked = request(tmp_path)
    source = Made({"h8": 4.0, "h16": 4.1, "h32": 4.2}, spread=0.001)
    source.make(source.cells(range(FIRST_SEEDS)), "", QUIET)
    time = asked.table.claims["C4"].model_copy(update={"of": "step_time", "parts": ["h8 > h16"]})
    table = asked.table.model_copy(update={"claims": asked.table.claims | {"time": time}})
    asked = replace(asked, table=table)
    seconds = {"h8": dict(enumerate([1.0, 1.1, 1.2, 1.3])), "h16": dict.fromkeys(range(4), 1.1)}
    timed = Conditions(step_times=StepTimes(seconds, "a machine", None))
    made = report_of_cells(asked, source, range(FIRST_SEEDS), Outcomes(source), timed)
    assert [verdict.word for verdict in made.verdicts] == ["holds", "not resolved"]
    assert next_step(asked, source, Outcomes(source), made) is None


def test_no_seed_goes_to_what_may_hold_if_another_comparison_will_contradict_the_claim(tmp_path):
    asked = request(tmp_path)
    source = Made({"h8": 0.0, "h16": 0.0, "h32": 0.0}, spread=0.0)
    for seed in range(FIRST_SEEDS):
        turn = (-1) ** seed
        source.done |= {("h8", seed): 4.0, ("h16", seed): 4.1 + 0.1 * turn}
        source.done["h32", seed] = source.done["h16", seed] - 0.1 + 0.12 * turn
    outlook = reported(asked, source).verdicts[0].findings[""].outlook
    assert [each.outlook for each in outlook.undecided] == ["holds", "reversed"]
    assert {cell.row for cell in step_of(asked, source).cells} == {"h16", "h32"}


def test_no_hours_make_nothing_but_a_report(tmp_path):
    asked = request(tmp_path)
    source = Made({"h8": 4.0, "h16": 4.1, "h32": 4.2}, spread=0.02)
    until_resolved(asked, source, partial(reported, asked, source), hours=0, workers=1, console=QUIET)
    assert source.made == []


def test_rows_that_are_equal_end_as_no_difference(tmp_path):
    asked = request(tmp_path)
    source = Made({"h8": 4.0, "h16": 4.0, "h32": 4.0}, spread=0.004)
    last = until_resolved(asked, source, partial(reported, asked, source), hours=1, workers=1, console=QUIET)
    assert last.verdicts[0].word == "no difference"


def decided(asked: Request, source: Made, seeds: range) -> str:
    return report_of_cells(asked, source, seeds, Outcomes(source), Conditions()).verdicts[0].word


@pytest.mark.parametrize(
    ("count", "looks"), [(40, (3, 5, 7, 9, 11)), pytest.param(120, range(3, 12), marks=pytest.mark.campaign)]
)
def test_the_whole_machine_is_seldom_wrong_where_nothing_is_to_be_found(tmp_path, count, looks):
    """With equal rows and a verdict after every other seed (campaign: every seed), at most 5% of claims are decided."""
    asked, wrong = request(tmp_path, range(FIRST_SEEDS)), 0
    for turn in range(count):
        source = Made({"h8": 4.0, "h16": 4.0, "h32": 4.0}, spread=0.1)
        for seed in range(12):
            random = np.random.default_rng([turn, seed])
            source.done |= {(row, seed): float(4 + 0.1 * random.normal()) for row in source.rows}
            if seed in looks and decided(asked, source, range(seed + 1)) in ("holds", "reversed"):
                wrong += 1
                break
    assert wrong / count <= 0.05 + 2 * (0.05 * 0.95 / count) ** 0.5


def test_the_next_step_says_why(tmp_path):
    asked = request(tmp_path)
    source = Made({"h8": 4.0, "h16": 4.05, "h32": 4.1}, spread=0.05)
    first = step_of(asked, source)
    assert first.why == "seed 0 of every row" and [cell.seed for cell in first.cells] == [0, 0, 0]
    source.make(source.cells(range(FIRST_SEEDS)), "", QUIET)
    step = step_of(asked, source)
    assert step.why.startswith("C4: validation_loss: ") and "has 4 of about" in step.why
    assert len(step.cells) == 2 and {cell.seed for cell in step.cells} == {4}
