"""A report made from known outcomes: means, differences, ranks, marks and verdicts."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace

import pytest

from experiments.display.rows import as_csv
from experiments.statistics.evidence import Planned
from experiments.tables.conditions import Conditions
from experiments.tables.definition.request import Request, load
from experiments.tables.rendering.render import render
from experiments.tables.rendering.sentences import closing_sentence
from experiments.tables.sources.source import CellOutcome
from tests.fixtures.tables import NAME
from tests.tables.known import LOSSES, Known, done, line, made, report_of, uneven

pytestmark = pytest.mark.usefixtures("heads_table")
WARMUP = load("xiong2020/warmup")


def test_means_errors_ranks_and_signs():
    found = made()
    h16 = line(found, "h16")
    assert h16["validation_loss"] == pytest.approx(sum(LOSSES["h16"]) / 6)
    assert h16["standard_error"] == pytest.approx(0.0076, abs=1e-4)
    assert h16["difference"] == pytest.approx((0.30 + 0.33 + 0.31 + 0.31 + 0.32 + 0.31) / 6)
    assert h16["difference_low"] < h16["difference"] < h16["difference_high"]
    assert [line(found, row)["rank"] for row in LOSSES] == [1, 3, 2]
    assert [line(found, row)["published_rank"] for row in LOSSES] == [1, 2, 3]
    assert [line(found, row)["rank_deviation"] for row in LOSSES] == [0, 1, -1]
    assert [line(found, row)["sign"] for row in LOSSES] == [None, "same", "same"]
    assert h16["step_time"] == pytest.approx(1.25) and h16["step_seconds"] == 0.125, "one slow round counts little"
    assert found.verdicts[0].word == "reversed", "32 heads are better than 16"


def test_intervals_and_signs_follow_the_evidence():
    losses = {("h16", seed): done(4.01 + loss) for seed, loss in enumerate((0.05, 0.01, 0.04, 0.02, 0.05, 0.03))}
    found = made(losses)
    planned = replace(found, evidence=Planned())
    before, after = (line(each, "h16") for each in (found, planned))
    assert before["difference_low"] < 0 < after["difference_low"] < after["difference"] == before["difference"]
    assert (before["sign"], after["sign"]) == ("not resolved", "same")


def test_the_perplexity_of_a_row_is_that_of_its_mean_loss():
    found = made(table=load(NAME).model_copy(update={"columns": ["perplexity", "unigram_loss"]}))
    h8 = line(found, "h8")
    assert h8["perplexity"] == pytest.approx(math.exp(h8["validation_loss"])) and h8["unigram_loss"] == 6.5


def test_the_table_by_seed_has_a_line_for_a_cell_that_has_not_begun():
    halfway = made({("h8", 0): CellOutcome("missing")})
    lines = list(csv.DictReader(io.StringIO(as_csv(halfway.exact_rows_by_seed()))))
    assert [each["state"] for each in lines[:2]] == ["missing", "done"] and not lines[0]["unigram_loss"]


def test_a_sign_that_is_not_resolved_is_not_claimed():
    noisy = {("h16", seed): done(loss) for seed, loss in enumerate((3.5, 4.0, 4.6, 3.6, 4.1, 4.5))}
    assert line(made(noisy), "h16")["sign"] == "not resolved"


def test_missing_and_refused_cells_are_shown_as_such():
    found = made(
        {("h32", seed): CellOutcome("missing") for seed in range(6)}
        | {("h32", 2): CellOutcome("refused", "other code")}
    )
    h32 = line(found, "h32")
    assert (h32["validation_loss"], h32["seeds"], h32["rank"]) == (None, 0, None)
    assert h32["state"] == "0 of 6 done, missing, refused"
    assert "h32, seed 2: refused: other code" in found.notes
    assert found.verdicts[0].word == "not resolved"
    assert "0 of 6 done" in render(found, "markdown")


def test_rows_that_share_a_run_share_the_note_on_it():
    found = made({(row, 2): CellOutcome("refused", "other code") for row in ("h16", "h32")})
    assert [note for note in found.notes if "refused" in note] == ["h16, h32, seed 2: refused: other code"]


def test_order_and_difference_that_contradict_are_marked_and_explained():
    found = uneven()
    h8, h16, h32 = (line(found, row) for row in LOSSES)
    assert h16["validation_loss"] < h8["validation_loss"] and h16["difference"] == pytest.approx(0.1)
    assert h16["of_seeds"] == "seeds 0-1 of 0-3"
    assert h16["difference_of_seeds"] == "seeds 0-1, shared with h8: 4.1500 against 4.0500"
    assert {each["of_seeds"] or each["difference_of_seeds"] for each in (h8, h32)} == {None}
    assert (found.missing, found.cells) == (8, 18)


def test_a_mean_over_some_of_the_seeds_is_not_ranked():
    found = uneven()
    # by its mean h16 would be the first of three; paired by seed it is worse than h8
    assert [line(found, row)["rank"] for row in LOSSES] == [1, None, 2]
    assert [line(found, row)["published_rank"] for row in LOSSES] == [1, None, 2]
    (row,) = [each for each in render(found, "markdown").splitlines() if "16 heads" in each]
    assert "(2)" not in row and "(1)" not in row


def test_the_sign_of_a_row_that_is_not_ranked_is_that_of_the_shared_seeds():
    found = made({("h32", 0): CellOutcome("missing")})
    assert (line(found, "h32")["rank"], line(found, "h32")["sign"]) == (None, "same")


def test_a_baseline_of_fewer_seeds_marks_the_differences_to_it():
    found = made({("h8", 0): CellOutcome("failed", "a reason"), ("h32", 0): CellOutcome("missing")})
    h8, h16, h32 = (line(found, row) for row in LOSSES)
    assert h8["of_seeds"] == h32["of_seeds"] == "seeds 1-5 of 0-5" and h16["of_seeds"] is None
    assert h16["difference_of_seeds"].startswith("seeds 1-5, shared with h8") and h32["difference_of_seeds"] is None


def test_rows_without_a_shared_seed_say_so():
    none_shared = {("h8", seed): CellOutcome("missing") for seed in range(3)}
    none_shared |= {("h16", seed): CellOutcome("missing") for seed in range(3, 6)}
    assert line(made(none_shared), "h16")["difference_of_seeds"] == "no seeds, because it shares none with h8"


def test_a_cell_that_diverged_counts_as_what_the_budget_says():
    found = made({("h32", seed): CellOutcome("diverged", "not finite") for seed in range(6)})
    assert line(found, "h32")["validation_loss"] == 6.5
    assert any("counts as the unigram_loss" in note for note in found.notes)
    assert line(found, "h32")["mark"] == "diverged with 6 of 6 seeds"
    assert found.verdicts[0].word == "not tested"


@pytest.mark.parametrize(("better", "worst"), [("lower", 6.5), ("higher", 6.0)])
def test_a_cell_that_diverged_counts_as_the_worst_of_the_others(better, worst):
    table = load(NAME)
    budgets = {"nano": table.budget("nano").model_copy(update={"better": better})}
    changes = {("h32", 0): CellOutcome("diverged", "not finite"), ("h8", 0): done(4.0, unigram_loss=6.0)}
    found = made(changes, table=table.model_copy(update={"budgets": budgets}))
    (cell,) = [each for each in found.by_seed if (each.row, each.seed) == ("h32", 0)]
    assert cell.score == worst


def test_a_score_that_is_not_finite_counts_as_diverged():
    found = made({("h16", 0): done(math.inf), ("h8", 1): done(-math.inf)})
    states = {(cell.row, cell.seed): cell.state for cell in found.by_seed}
    assert states["h16", 0] == states["h8", 1] == "diverged"
    assert found.verdicts[0].word == "not tested" and "h16 diverged with 1 of" in found.verdicts[0].why


def test_a_row_at_a_rate_that_was_not_tuned_may_not_lose():
    table = load(NAME)
    budget = table.budget("nano")
    (tuning,) = budget.learning_rates.values()

    def verdict(tried, *overrides):
        rates = {"multi_head": tuning.model_copy(update={"tried": tried})}
        budgets = {"nano": budget.model_copy(update={"learning_rates": rates})}
        return made(table=table.model_copy(update={"budgets": budgets}), overrides=overrides).verdicts[0]

    assert verdict(tuning.tried).word == verdict(None).word == "reversed", "tuned, or the paper's own rate"
    assert verdict({}).word == "not tested" and "may do better at a tuned learning rate" in verdict({}).why
    for overrides in (["learning_rate=0.1"], ["max_steps=10", "learning_rate=0.1"]):
        assert verdict(tuning.tried, *overrides).word == "not tested", "the user's own rate"


@pytest.mark.parametrize("unknown", [None, float("nan")])
def test_a_row_that_may_still_have_learned_decides_nothing(unknown):
    (verdict,) = made({("h16", 0): done(LOSSES["h16"][0], late_gain=unknown)}).verdicts
    assert verdict.word == "not tested"
    assert "h16 had no evaluation before the last tenth of the steps with 1 of 6 seeds" in verdict.why
    # without this row, the others contradict the claim
    (verdict,) = made({("h8", 0): done(LOSSES["h8"][0], late_gain=None)}).verdicts
    assert verdict.word == "reversed"


def test_a_row_still_learns_if_it_gains_as_much_as_the_difference_that_it_decides():
    """The margin of the table is 0.01."""
    words = {}
    for gain in (0.004, 0.007):
        for better, name in ((0.006, "has a sign"), (0.0, "has none")):
            losses = {("h16", seed): 4.00 + 0.001 * (seed % 2) for seed in range(6)}
            losses |= {("h8", seed): loss - better + 0.0002 * seed * (-1) ** seed for (_, seed), loss in losses.items()}
            losses |= {("h32", seed): 5.0 for seed in range(6)}
            found = made({place: done(loss, late_gain=gain) for place, loss in losses.items()})
            words[gain, name] = found.verdicts[0].findings[""].comparisons[0].word()
    assert words[0.004, "has a sign"] == "holds" and words[0.007, "has a sign"] == "not tested"
    assert words[0.004, "has none"] == words[0.007, "has none"] == "no difference"


def test_one_row_has_no_rank():
    found = made({(row, seed): CellOutcome("missing") for row in ("h16", "h32") for seed in range(6)})
    assert line(found, "h8")["rank"] is None and line(made(), "h8")["rank"] == 1


def test_parameters_are_compared_as_they_are_counted():
    claim = {
        "says": "a",
        "origin": "check",
        "of": "parameters",
        "parts": ["pre_none12 - post_none12 = layers * 2 * h * h"],
    }
    table = WARMUP.model_validate(WARMUP.model_dump() | {"claims": {"sizes": claim}})
    outcomes = {
        (row, seed): done(4.0, parameters={"total": 388 if row == "pre_none12" else 100})
        for row in table.rows_at("nano")
        for seed in range(2)
    }

    class Sized(Known):
        def sizes(self, row):
            return {"layers": 4, "h": 6}

    request = Request("xiong2020/warmup", table, "nano", range(2))
    found = report_of(request, Sized(outcomes), Conditions())
    assert found.verdicts[0].word == "holds"


def test_claims_that_were_not_chosen_count_in_the_correction_unless_a_plan_is_for_the_chosen_ones():
    table = load(NAME)
    pair = table.claims["C4"].model_copy(update={"parts": ["h8 > h16"]})
    found = made(table=table.model_copy(update={"claims": table.claims | {"pair": pair}}))
    (_, beside) = found.verdicts
    alone = replace(found, request=replace(found.request, chosen_claims=["pair"]))
    (only,) = alone.verdicts
    assert only.findings[""].level <= beside.findings[""].level <= 0.05
    assert only.findings[""].level == 0.05 / 2
    assert "(one verdict is tried here, and 1 on the table's other claims counts too)" in closing_sentence(alone)
    assert (
        "This page leaves out 1 other claim of the table, and the row that it does not need: 32 heads." in alone.notes
    )
    planned = replace(alone, evidence=Planned())
    assert planned.verdicts[0].findings[""].level == 0.05
    assert "(one verdict is tried here)" in closing_sentence(planned)
    whole = replace(found.request, chosen_claims=["C4"])
    assert "This page leaves out 1 other claim of the table." in replace(found, request=whole).notes
