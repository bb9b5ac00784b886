"""Which seeds are trained and which count: planned seeds, seeds where they decide most, and seeds that have begun."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import timedelta
from functools import partial

import numpy as np
import pytest
from rich.console import Console

from experiments.commands import table
from experiments.config.compose import compose
from experiments.failures.failure import Mistake
from experiments.files.durable import read_sealed, write_sealed
from experiments.record.environment import STARTED
from experiments.record.result import UNKNOWN
from experiments.statistics.evidence import Evidence
from experiments.tables import seed_plan
from experiments.tables.conditions import Conditions
from experiments.tables.definition.request import Request, load
from experiments.tables.definition.table import UNTUNED
from experiments.tables.report import Report, report
from experiments.tables.seed_plan import CheckedPlan, evidence_of, make_plan, plan_of, plans
from experiments.tables.seeds import begun_seeds
from experiments.tables.sources.runs import Runs
from experiments.tables.sources.source import CellOutcome, Outcomes, TableCell
from experiments.tables.step_times import NOT_MEASURED, StepTimes
from experiments.tables.until_resolved import FIRST_SEEDS, NextCells, next_step, until_resolved
from tests.fixtures.tables import NAME

pytestmark = pytest.mark.usefixtures("heads_table")
QUIET = Console(file=io.StringIO())


class Made:
    """A source with random scores instead of trained cells: a mean for each row, plus luck for each seed."""

    def __init__(self, rows: dict[str, float], spread: float) -> None:
        self.rows, self.spread = rows, spread
        self.done: dict[tuple[str, int], float] = {}
        self.made: list[tuple[str, int]] = []
        self.failing: set[str] = set()

    def cells(self, seeds) -> list[TableCell]:
        return [TableCell(row, seed, f"{row}-s{seed}") for seed in seeds for row in self.rows]

    def timed(self, row):
        return None

    def trained(self, row):
        return []

    def sizes(self, row):
        return {"h": int(row[1:])}

    def outcome(self, cell: TableCell) -> CellOutcome:
        if (loss := self.done.get((cell.row, cell.seed))) is None:
            return CellOutcome("missing")
        if np.isnan(loss):
            return CellOutcome("failed", "as it was told to")
        result = {"validation_loss": loss, "unigram_loss": 9.0, "late_gain": 0.0, "wall_seconds": 60.0}
        return CellOutcome("done", result=UNKNOWN | result)

    def make(self, cells, group, console, workers=None) -> None:
        for cell in cells:
            luck = np.random.default_rng(cell.seed).normal()
            own = np.random.default_rng([cell.seed, int(cell.row[1:])]).normal()
            failed = cell.row in self.failing
            self.done[cell.row, cell.seed] = np.nan if failed else self.rows[cell.row] + luck + self.spread * own
            self.made.append((cell.row, cell.seed))


def request(tmp_path, seeds=range(5), named=False) -> Request:
    return Request(NAME, load(NAME), "nano", seeds, runs=tmp_path, names_seeds=named)


def begun(source, least: int = 0) -> list[int]:
    return begun_seeds(source, Outcomes(source), least)


def reported(asked: Request, source: Made, outcomes: Outcomes | None = None) -> Report:
    return report(asked, source, sorted({*asked.seeds, *begun(source)}), outcomes or Outcomes(source), Conditions())


def step_of(asked: Request, source: Made) -> NextCells | None:
    return next_step(asked, source, Outcomes(source), reported(asked, source))


def checked(asked: Request, source: Made) -> list[CheckedPlan]:
    return plans(asked, source, Outcomes(source))


def line(asked: Request, source: Made) -> str:
    """The line of the only plan."""
    (plan,) = checked(asked, source)
    return plan.says


def evidence(asked: Request, source: Made) -> Evidence:
    return evidence_of(plan_of(asked.seeds, checked(asked, source)), source, Outcomes(source))


def test_a_claim_that_a_plan_has_decided_gets_no_further_seeds_which_would_end_the_plan(tmp_path):
    source = Made({"h8": 4.0, "h16": 4.03, "h32": 4.06}, spread=0.01)
    make_plan(request(tmp_path), source, FIRST_SEEDS)
    source.make(source.cells(range(FIRST_SEEDS)), "", QUIET)
    asked = request(tmp_path, range(FIRST_SEEDS), named=True)
    outcomes = Outcomes(source)
    conditions = Conditions(evidence=evidence(asked, source))
    planned = report(asked, source, asked.seeds, outcomes, conditions)
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
    assert any("h16" in str(comparison.sentence) for comparison in last.verdicts[0].findings[""].comparisons)


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
    made = report(asked, source, range(FIRST_SEEDS), Outcomes(source), timed)
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


def test_a_run_folder_without_a_result_is_that_of_a_cell_that_has_begun(tmp_path):
    source = Runs({"h8": ["heads=8"]}, tmp_path)
    (cell,) = source.cells([3])
    assert source.outcome(cell).state == "missing" and begun(source) == []
    (tmp_path / cell.name).mkdir()
    assert source.outcome(cell).state == "begun" and begun(source) == [3]


def test_all_seeds_before_the_requested_ones_are_found_however_many_are_missing_between():
    source = Made({"h8": 4.0, "h16": 4.1}, spread=0.02)
    for seed in (40, 43, 60, 99):
        source.done["h8", seed] = 4.0
    assert begun(source) == [] and begun(source, 60) == [40, 43, 60] and begun(source, 99) == [40, 43, 60, 99]


def test_rows_that_are_equal_end_as_no_difference(tmp_path):
    asked = request(tmp_path)
    source = Made({"h8": 4.0, "h16": 4.0, "h32": 4.0}, spread=0.004)
    last = until_resolved(asked, source, partial(reported, asked, source), hours=1, workers=1, console=QUIET)
    assert last.verdicts[0].word == "no difference"


def decided(asked: Request, source: Made, seeds: range) -> str:
    return report(asked, source, seeds, Outcomes(source), Conditions()).verdicts[0].word


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
            if seed in looks and decided(asked, source, range(seed + 1)) == "reversed":
                wrong += 1
                break
    assert wrong / count <= 0.05 + 2 * (0.05 * 0.95 / count) ** 0.5


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
    assert [line["seeds"] for line in made.lines] == [3, 3, 2]
    assert made.is_complete and {line["state"] for line in made.lines} == {"done"}


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
    made = report(asked, source, asked.seeds, Outcomes(source), conditions)
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
    deeper, elsewhere = (replace(plain, overrides=[each]) for each in ("layers=2", "cache=elsewhere"))
    for each in (plain, deeper):
        make_plan(each, source, 4)
    with pytest.raises(Mistake, match="plans seeds 0-3 already"):
        make_plan(elsewhere, source, 4)
    for asked in (plain, deeper, elsewhere):
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
    outcome, plan_now = Made.outcome, seed_plan._plan
    monkeypatch.setattr(Made, "outcome", lambda self, cell: read.append(cell) or outcome(self, cell))
    monkeypatch.setattr(seed_plan, "_plan", lambda *asked: planned.append(asked) or plan_now(*asked))
    for asked in (request(tmp_path, range(4), named=True), request(tmp_path)):
        made = table._report(asked, source, Outcomes(source), None, NOT_MEASURED, "")
        assert {cell["seed"] for cell in made.by_seed} == {*asked.seeds}
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


def test_the_next_step_says_why(tmp_path):
    asked = request(tmp_path)
    source = Made({"h8": 4.0, "h16": 4.05, "h32": 4.1}, spread=0.05)
    first = step_of(asked, source)
    assert first.why == "seed 0 of every row" and [cell.seed for cell in first.cells] == [0, 0, 0]
    source.make(source.cells(range(FIRST_SEEDS)), "", QUIET)
    step = step_of(asked, source)
    assert step.why.startswith("C4: validation_loss: ") and "has 4 of about" in step.why
    assert len(step.cells) == 2 and {cell.seed for cell in step.cells} == {4}
