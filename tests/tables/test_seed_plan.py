"""Seeds that are planned before they are trained, and plans that decide nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from experiments.config.compose import compose
from experiments.failures.failure import Mistake
from experiments.files.durable import read_sealed, write_sealed
from experiments.record.environment import STARTED
from experiments.tables import seed_plan
from experiments.tables.conditions import Conditions
from experiments.tables.definition.request import Request, load
from experiments.tables.report_of_cells import report_of_cells, report_of_request
from experiments.tables.seed_plan import make_plan, plan_of
from experiments.tables.sources.source import CellOutcome, Outcomes
from tests.fixtures.tables import NAME
from tests.tables.made import QUIET, Made, checked, evidence, request

pytestmark = pytest.mark.usefixtures("heads_table")


def line(asked: Request, source: Made) -> str:
    """The line of the only plan."""
    (plan,) = checked(asked, source)
    return plan.says


def test_a_plan_comes_before_its_seeds_and_then_decides_by_students_t(tmp_path):
    source = Made({"h8": 4.0, "h16": 4.05, "h32": 4.1}, spread=0.02)
    source.make(source.cells(range(2)), "", QUIET)
    path = make_plan(request(tmp_path), source, 4)
    written = json.loads(path.read_text())
    assert (written["seeds"], written["table"]) == ([2, 3, 4, 5], NAME)
    assert written["comparisons"] == ["h8 > h16", "h16 > h32"] and written["margin"] == 0.01
    asked = request(tmp_path, range(2, 6), named=True)
    assert evidence(asked, source).name == "planned, not complete"
    source.make(source.cells(asked.seeds), "", QUIET)
    by_plan = evidence(asked, source)
    assert by_plan.name == "planned"
    conditions = Conditions(evidence=by_plan, plan=plan_of(asked.seeds, checked(asked, source)))
    made = report_of_cells(asked, source, asked.seeds, Outcomes(source), conditions)
    assert made.verdicts[0].word == "holds" and "Student's t" in dict(made.facts)["evidence"]
    assert "seeds 2 to 5, 2 comparisons" in dict(made.facts)["plan"]
    # other seeds are not those of the plan, whatever else is the same
    for seeds in (range(6), range(2, 5)):
        assert evidence(request(tmp_path, seeds, named=True), source).name == "anytime"
    assert plan_of(range(6), checked(asked, source)) is None, "with others beside them"


def test_a_planned_cell_that_diverges_is_complete_and_one_that_fails_is_not(tmp_path, monkeypatch):
    source = Made({"h8": 4.0, "h16": 4.05, "h32": 4.1}, spread=0.02)
    make_plan(request(tmp_path), source, 4)
    source.make(source.cells(range(4)), "", QUIET)
    last, outcome = source.cells(range(4))[-1], Made.outcome
    asked = request(tmp_path, range(4), named=True)
    for state, name in (("diverged", "planned"), ("failed", "planned, not complete")):
        ended = CellOutcome(state, "as it was told to")
        of_last = {last: ended}
        monkeypatch.setattr(Made, "outcome", lambda self, cell, of=of_last: of.get(cell) or outcome(self, cell))
        assert evidence(asked, source).name == name


def test_a_plan_of_another_definition_or_code_is_none(tmp_path, monkeypatch):
    source = Made({"h8": 4.0, "h16": 4.05, "h32": 4.1}, spread=0.02)
    make_plan(request(tmp_path), source, 4)
    asked = request(tmp_path, range(4), named=True)
    assert evidence(asked, source).name == "planned, not complete"
    other = Request(NAME, load(NAME), "nano", range(4), ["layers=2"], tmp_path, names_seeds=True)
    assert evidence(other, source).name == "anytime"
    planned = line(asked, source)
    assert planned.endswith(": seeds 0 to 3, 2 comparisons")
    assert line(other, source) == f"{planned}; void, because the table and its overrides changed since"
    monkeypatch.setattr(seed_plan, "code_digests", lambda settings, backend: {"other": "code"})
    monkeypatch.setattr(Made, "trained", lambda source, row: [compose([])])
    assert line(asked, source).endswith("; void, because the code that trains them changed since")


def test_tables_with_other_overrides_have_plans_for_the_same_seeds(tmp_path):
    source = Made({"h8": 4.0, "h16": 4.05, "h32": 4.1}, spread=0.02)
    plain = request(tmp_path, range(4), named=True)
    deeper, *elsewhere = (
        replace(plain, overrides=[each])
        for each in ("layers=2", "cache=elsewhere", "trainer.devices=2", "trainer.sharded=true")
    )
    for each in (plain, deeper):
        make_plan(each, source, 4)
    for each in elsewhere:
        with pytest.raises(Mistake, match="plans seeds 0-3 already"):
            make_plan(each, source, 4)
    for asked in (plain, deeper, *elsewhere):
        assert [*sorted(bool(void) for _, void in checked(asked, source))] == [False, True], "both are listed"
        assert evidence(asked, source).name == "planned, not complete"


def test_a_plan_for_one_claim_is_of_its_rows_and_void_for_the_whole_table(tmp_path):
    table = load(NAME)
    pair = table.claims["C4"].model_copy(update={"parts": ["h8 > h16"]})
    whole = replace(
        request(tmp_path, range(4), named=True),
        table=table.model_copy(update={"claims": table.claims | {"a pair": pair}}),
    )
    one = replace(whole, chosen_claims=["a pair"])
    assert [*one.rows] == ["h8", "h16"] and [*one.claims] == ["a pair"]
    source, of_all = (
        Made({"h8": 4.0, "h16": 4.05}, spread=0.02),
        Made({"h8": 4.0, "h16": 4.05, "h32": 4.1}, spread=0.02),
    )
    make_plan(one, source, 4)
    ((plan, void),) = checked(one, source)
    assert not void and plan.rows == ["h8", "h16"] and plan.comparisons == ["h8 > h16"]
    assert line(whole, of_all) == f"{plan.says}; for other claims" and line(one, source) == plan.says
    # whoever may choose between two verdicts on the same seeds is wrong more often
    for seeds in (range(4), range(3, 6), range(2)):
        with pytest.raises(Mistake, match=r"plans seeds 0-3 already(.|\n)*--claim, given several times"):
            make_plan(replace(whole, seeds=seeds), of_all, len(seeds))
    # without a choice, the next seeds are those after the planned ones
    later = make_plan(replace(whole, names_seeds=False), of_all, 2)
    assert json.loads(later.read_text())["seeds"] == [4, 5]
    later.unlink()
    source.make(source.cells(range(4)), "", QUIET)
    assert evidence(one, source).name == "planned"
    assert evidence(whole, of_all).name == "anytime"


def test_a_plan_for_cells_that_were_begun_before_it_is_none(tmp_path, monkeypatch):
    source = Made({"h8": 4.0, "h16": 4.05, "h32": 4.1}, spread=0.02)
    make_plan(request(tmp_path), source, 4)
    source.make(source.cells(range(4)), "", QUIET)
    asked = request(tmp_path, range(4), named=True)
    ((plan, void),) = checked(asked, source)
    assert not void
    outcome = Made.outcome
    before, after = ((plan.made + timedelta(seconds=seconds)).strftime(STARTED) for seconds in (-60, 60))

    def environment(**facts):
        def of_cell(self, cell):
            of_one = {"environment": facts} if cell == self.cells(range(4))[-1] else {}
            return replace(outcome(self, cell), result=outcome(self, cell).result | of_one)

        monkeypatch.setattr(Made, "outcome", of_cell)
        return evidence(asked, source).name, line(asked, source)

    is_void = ("anytime", f"{plan.says}; void, because its cells were begun before it")
    assert environment(started=before) == is_void
    assert environment(started=after, earlier=[{"started": before}]) == is_void, "and continued after it"
    assert environment(started=after, earlier=[]) == environment() == ("planned", plan.says)


def test_a_report_reads_every_cell_and_checks_every_plan_once(tmp_path, monkeypatch):
    source = Made({"h8": 4.0, "h16": 4.05, "h32": 4.1}, spread=0.02)
    for seeds in (range(4), range(4, 8)):
        make_plan(request(tmp_path, seeds, named=True), source, 4)
    source.make(source.cells(range(4)), "", QUIET)
    read, planned = [], []
    outcome, plan_now = Made.outcome, seed_plan._plan_now
    monkeypatch.setattr(Made, "outcome", lambda self, cell: read.append(cell) or outcome(self, cell))
    monkeypatch.setattr(seed_plan, "_plan_now", lambda *asked: planned.append(asked) or plan_now(*asked))
    for asked in (request(tmp_path, range(4), named=True), request(tmp_path)):
        made = report_of_request(asked, source, Outcomes(source))
        assert {cell.seed for cell in made.by_seed} == {*asked.seeds}
        assert len(read) == len(set(read)) and len(planned) == 2
        read.clear()
        planned.clear()


def test_words_leave_a_plan_as_it_is_and_what_decides_does_not(tmp_path):
    source = Made({"h8": 4.0, "h16": 4.05, "h32": 4.1}, spread=0.02)
    make_plan(request(tmp_path), source, 4)
    table = load(NAME)
    budget = table.budget("nano")

    def line_with(**changes):
        changed = Request(NAME, table.model_copy(update=changes), "nano", range(4), (), tmp_path, names_seeds=True)
        return line(changed, source)

    def claims(**changes):
        return {key: claim.model_copy(update=changes) for key, claim in table.claims.items()}

    def budgets(**changes):
        return table.budgets | {"nano": budget.model_copy(update=changes)}

    assert "void" not in line_with(title="another", claims=claims(says="in other words", origin="secondary sources"))
    assert "void" not in line_with(budgets=budgets(note="new", seeds=9) | {"small": budget})
    parts = {"C4": ["h8 > h16"], "C5": ["h16 > h32"]}
    apart = {key: table.claims["C4"].model_copy(update={"parts": each}) for key, each in parts.items()}
    untuned = {family: rate.model_copy(update={"tried": {}}) for family, rate in budget.learning_rates.items()}
    for decides in (
        {"baseline": "h32"},
        {"claims": claims(of_failure=True)},
        {"claims": apart},
        {"budgets": budgets(diverged=None)},
        {"budgets": budgets(learning_rates=untuned)},
    ):
        assert line_with(**decides).endswith("; void, because the table changed since"), decides


def test_a_plan_that_was_edited_by_hand_is_refused_by_name(tmp_path):
    source = Made({"h8": 4.0, "h16": 4.05, "h32": 4.1}, spread=0.02)
    path = make_plan(request(tmp_path), source, 4)
    written = json.loads(path.read_text())
    asked = request(tmp_path, range(4), named=True)
    for key, value in written.items():
        other = [*value, *(value[:1] or ["h8"])] if isinstance(value, list) else f"{value}0"
        for edited in (written | {key: other}, {name: each for name, each in written.items() if name != key}):
            path.write_text(json.dumps(edited))
            with pytest.raises(Mistake, match=f"{path.name}: is not a plan: "):
                checked(asked, source)


@pytest.mark.parametrize("seeds", [[], [-1], ["a"], None])
def test_a_plan_of_no_possible_seeds_is_refused_whatever_its_digest_is(tmp_path, seeds):
    path = make_plan(request(tmp_path), Made({"h8": 4.0}, spread=0.02), 4)
    write_sealed(path, read_sealed(path) | {"seeds": seeds})
    with pytest.raises(Mistake, match=r"is not a plan: .*seeds"):
        checked(request(tmp_path), Made({}, 0.0))


def test_seeds_that_have_begun_can_not_be_planned(tmp_path):
    source = Made({"h8": 4.0, "h16": 4.05, "h32": 4.1}, spread=0.02)
    source.make(source.cells([0])[:1], "", QUIET)
    with pytest.raises(Mistake, match="cells of seed 0 have begun"):
        make_plan(request(tmp_path, range(4), named=True), source, 4)
    with pytest.raises(Mistake, match="--plan 1: a single seed decides nothing"):
        make_plan(request(tmp_path), source, 1)
    with pytest.raises(Mistake, match="--plan 3: --seeds 4-7 gives 4"):
        make_plan(request(tmp_path, range(4, 8), named=True), source, 3)
    make_plan(request(tmp_path, range(4, 8), named=True), source, 4)
    with pytest.raises(Mistake, match="plans seeds 4-7 already"):
        make_plan(request(tmp_path, range(4, 8), named=True), source, 4)


def test_a_file_that_is_no_plan_is_named(tmp_path):
    folder = tmp_path / "tables" / seed_plan.PLANS
    folder.mkdir(parents=True)
    (folder / "me2026-heads-nano-0-3.json").write_text("[]")
    with pytest.raises(Mistake, match=r"me2026-heads-nano-0-3\.json: is not a plan"):
        checked(request(tmp_path), Made({}, 0.0))
