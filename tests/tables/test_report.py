"""A table made from known outcomes, in every format."""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console

from experiments.display.latex import tex
from experiments.display.numbers import rough_duration
from experiments.display.rows import as_csv
from experiments.failures.failure import Mistake
from experiments.failures.wording import joined
from experiments.files.durable import write_sealed
from experiments.measure.cores import BUSY
from experiments.record.result import UNKNOWN
from experiments.statistics.comparison import claim_seeds
from experiments.statistics.evidence import Planned
from experiments.tables.conditions import Conditions, untuned_families
from experiments.tables.definition import published
from experiments.tables.definition.inequality import parse
from experiments.tables.definition.published import PublishedNumber
from experiments.tables.definition.request import Request, load
from experiments.tables.rendering.columns import readable_table
from experiments.tables.rendering.index import write_index
from experiments.tables.rendering.latex import MOST_COLUMNS, divided
from experiments.tables.rendering.published_difference import published_difference
from experiments.tables.rendering.render import claim_rows, render, write_all
from experiments.tables.rendering.sentences import closing_sentence, comparison_line, details, headline
from experiments.tables.report import Report, judged_by, report
from experiments.tables.sources.source import CellOutcome, Outcomes, TableCell
from experiments.tables.step_times import StepTimes
from tests.fixtures.latex import overfull_boxes
from tests.fixtures.tables import NAME

# the printed F1 falls with the number of heads; here more heads have a higher loss, but 32 heads a lower one than 16
LOSSES = {
    "h8": (4.00, 4.02, 4.01, 4.00, 4.02, 4.01),
    "h16": (4.30, 4.35, 4.32, 4.31, 4.34, 4.32),
    "h32": (4.20, 4.26, 4.22, 4.21, 4.25, 4.22),
}
STEP_TIMES = StepTimes(
    {"h8": {0: 0.1, 1: 0.1, 2: 0.1}, "h16": {0: 0.125, 1: 0.125, 2: 0.5}, "h32": {0: 0.15, 1: 0.15, 2: 0.15}},
    "a machine",
    0.0,
)
WARMUP, HEADS = load("xiong2020/warmup"), load("shazeer2020/heads")
pytestmark = pytest.mark.usefixtures("heads_table")


class Known:
    """A source with given outcomes."""

    def __init__(self, outcomes: dict[tuple[str, int], CellOutcome]) -> None:
        self.outcomes = outcomes

    def cells(self, seeds) -> list[TableCell]:
        return [TableCell(row, seed, f"{row}-s{seed}") for row, seed in self.outcomes if seed in seeds]

    def outcome(self, cell: TableCell) -> CellOutcome:
        return self.outcomes[cell.row, cell.seed]

    def timed(self, row: str) -> None:
        """Nothing is trained."""

    def trained(self, row: str) -> list[object]:
        """Nothing is trained."""
        return []

    def sizes(self, row: str) -> dict[str, object]:
        heads = int(row[1:])
        return {
            "variant": "multi_head",
            "h_k": heads,
            "h": heads,
            "h_v": heads,
            "d_k": 192 // heads,
            "layers": 4,
            "multiplies": 1000,
        }


def done(loss: float, **more) -> CellOutcome:
    result = {"validation_loss": loss, "unigram_loss": 6.5, "late_gain": 0.004, "peak_memory_bytes": 5 * 10**8}
    result |= {"parameters": {"total": 2_570_752}, "steps": 1200, "tokens": 1_228_800, "device": "a machine, 2 threads"}
    result |= {
        "corpus": {"kind": "text", "sha256": {"train": ["abcdef0123456789"]}},
        "code_digest": "0123456789ab",
    }
    result |= {"environment": {"started": "2026-11-21T10:00:00+0000"}, "precision": "fp32", "backend": "sdpa"}
    return CellOutcome("done", result=UNKNOWN | result | {"config": {"variant": {"name": "multi_head"}}} | more)


def made(
    changes: dict[tuple[str, int], CellOutcome] | None = None,
    overrides: tuple[str, ...] = (),
    file=None,
    table=None,
    step_times: StepTimes = STEP_TIMES,
) -> Report:
    outcomes = {(row, seed): done(loss) for row, losses in LOSSES.items() for seed, loss in enumerate(losses)}
    source = Known(outcomes | (changes or {}))
    request = Request(NAME, table or load(NAME), "nano", range(6), overrides, published_file=file)
    return _report(request, source, Conditions(published.published_of(request), step_times))


def _report(request: Request, source: Known, conditions: Conditions) -> Report:
    return report(request, source, request.seeds, Outcomes(source), conditions)


def line(found: Report, row: str) -> dict:
    return next(each for each in found.lines if each["row"] == row)


def test_what_is_printed_is_compared_as_ours_is():
    found = made()
    (pair,) = parse("h8 > h16")
    assert str(published_difference(pair, found)) == "+0.28 squad_f1 (higher is better)"  # 90.89 - 90.61
    assert not published_difference(pair, found).comparable
    (trend,) = parse("h8 > h16 > h32 by h")
    # a line through three places one apart: the ends' difference
    assert published_difference(trend, found).value == pytest.approx(90.89 - 90.45)
    (counted,) = parse("h8 - h16 = h")
    assert published_difference(counted, found) is None


def test_a_printed_perplexity_is_compared_as_a_loss():
    found = made()
    printed = found.request.table.published.model_copy(update={"metric": "ppl"})
    table = found.request.table.model_copy(update={"published": printed})
    numbers = {
        "h8": {"ppl": PublishedNumber(4.92, None, "")},
        "h16": {"ppl": PublishedNumber(5.29, None, "")},
        "h32": {},
    }
    found = replace(found, request=replace(found.request, table=table), printed=numbers)
    (pair,) = parse("h8 > h16")
    difference = published_difference(pair, found)
    assert difference.value == pytest.approx(math.log(4.92 / 5.29)) and difference.comparable
    (unread,) = parse("h8 > h32")
    assert published_difference(unread, found) is None
    (by_half,) = parse("h8 + 0.5 > h16")
    assert published_difference(by_half, found).value == pytest.approx(math.log(4.92 / 5.29) + 0.5)
    assert published_difference(by_half, made()) is None, "half a nat is no SQuAD F1"


def test_what_a_better_loss_costs_is_said_under_every_scheme_though_one_is_timed():
    found = made({("h16", seed): done(3.0 + 0.001 * seed) for seed in range(6)})
    untimed = [line | {"positions": "second", "step_seconds": None} for line in found.lines]
    seconds = {"h8": dict.fromkeys(range(12), 0.1), "h16": {turn: 0.125 + 0.001 * (turn % 3) for turn in range(12)}}
    lines = [line | {"positions": "first"} for line in found.lines] + untimed
    both = replace(found, lines=lines, step_seconds=seconds)
    comparison = found.verdicts[0].findings[""].comparisons[0]
    for scheme in ("first", "second"):
        assert comparison_line(comparison, both, scheme, "seed").endswith(
            "; a step of h16 takes 1.26 times the time of one of h8"
        )
    seconds["h16"] = {turn: 0.09 + 0.06 * (turn % 2) for turn in range(12)}
    assert "a step of" not in comparison_line(comparison, both, "first", "seed"), "within the noise of the rounds"


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


def test_the_table_by_seed_has_a_line_for_a_cell_that_has_not_begun():
    halfway = made({("h8", 0): CellOutcome("missing")})
    lines = list(csv.DictReader(io.StringIO(as_csv(halfway.by_seed))))
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


# means 4.25 and 4.15, so 16 heads look better; over the seeds that both have they are 0.1 worse than 4.05
UNEVEN = {"h8": (4.0, 4.1, 4.4, 4.5), "h16": (4.1, 4.2), "h32": (4.3, 4.4, 4.7, 4.8)}


def uneven() -> Report:
    changes = {(row, seed): CellOutcome("missing") for row in LOSSES for seed in range(6)}
    return made(
        changes | {(row, seed): done(loss) for row, losses in UNEVEN.items() for seed, loss in enumerate(losses)}
    )


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


@pytest.mark.parametrize("format", ["table", "markdown", "latex"])
def test_every_form_counts_missing_cells_at_the_top_and_marks_what_is_not_over_all_seeds(format):
    text = render(uneven(), format)
    top = text.partition("unigram")[0]
    assert "8 of 18 cells are missing; (!) marks numbers that cover only some of the seeds." in top
    (row,) = [each for each in text.splitlines() if "16 heads" in each]
    assert row.count("(!)") == 2
    (row,) = [each for each in text.splitlines() if "8 heads" in each]
    assert "(!)" not in row
    footnote = "(!) h16: the mean covers seeds 0-1 of 0-3; the difference covers seeds 0-1, shared with h8: 4.1500"
    assert footnote in text
    assert "(!)" not in render(made(), format) and "missing" not in render(made(), format)


def test_the_figure_counts_missing_cells_and_marks_their_rows(tmp_path):
    write_all(uneven(), tmp_path)
    drawn = (tmp_path / "me2026_heads.svg").read_text()
    for text in ("8 of 18 cells are missing", "C4: not resolved", "(!) h16: the mean covers seeds 0-1 of 0-3", ">(!)<"):
        assert text in drawn
    write_all(made(), tmp_path)
    assert "(!)" not in (tmp_path / "me2026_heads.svg").read_text()


def test_another_text_is_said():
    assert "the text is" not in dict(made().facts)["budget"]
    found = made(overrides=("data=text", "data.train=a.txt"))
    assert dict(found.facts)["budget"].endswith("; the text is that of data=text")


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
    (cell,) = [each for each in found.by_seed if (each["row"], each["seed"]) == ("h32", 0)]
    assert cell["validation_loss"] == worst


def test_a_learning_rate_that_is_given_stands_in_place_of_the_tuned_one():
    table = WARMUP
    source = Known({(row, 0): CellOutcome("missing") for row in table.rows_at("nano")})
    source.sizes = lambda row: {}
    for overrides, rates in (((), 3), (("learning_rate=0.1",), 0)):
        request = Request("xiong2020/warmup", table, "nano", range(1), overrides)
        facts = dict(_report(request, source, Conditions()).facts)
        assert sum(name.startswith("learning rate of") for name in facts) == rates


def test_a_row_at_a_rate_that_was_not_tuned_may_not_lose():
    table = load(NAME)
    budget = table.budget("nano")
    (tuning,) = budget.learning_rates.values()

    def verdict(tried, *overrides):
        rates = {"multi_head": tuning.model_copy(update={"tried": tried})}
        budgets = {"nano": budget.model_copy(update={"learning_rates": rates})}
        return made(table=table.model_copy(update={"budgets": budgets}), overrides=overrides).verdicts[0]

    assert verdict(tuning.tried).word == verdict(None).word == "reversed", "tuned, or the paper's own rate"
    assert verdict({}).word == "not tested" and "its learning rate was not tuned" in verdict({}).why
    assert verdict({}, "learning_rate=0.1").word == "reversed", "the user's own rate"
    assert verdict(tuning.tried, "max_steps=10", "learning_rate=0.1").word == "reversed"


@pytest.mark.parametrize("budget", ["nano", "paper"])
@pytest.mark.parametrize(
    "override", ["optimizer=adamw", "optimizer.beta2=0.9", "schedule=linear", "max_steps=10", "trainer.max_tokens=9"]
)
def test_a_rate_is_tuned_for_the_settings_of_its_trials_only(budget, override):
    same = ["data=text", "data.train=a.txt", "precision=bf16", "trainer.device=cpu", "cache=folder", "logger.wandb=off"]
    table = WARMUP
    tuned, changed = (
        Request("xiong2020/warmup", table, budget, range(1), overrides) for overrides in (same, [*same, override])
    )
    assert tuned.tunings == Request("xiong2020/warmup", table, budget, range(1)).tunings and not tuned.is_untuned
    assert changed.is_untuned and set(changed.tunings) == set(tuned.tunings)
    assert {of.where for of in changed.tunings.values()} == {f"not tuned with {override}"}
    (line,) = untuned_families(changed)
    families = joined([*tuned.family_tunings])
    assert line.startswith(f"The learning rates of {families} were not tuned with {override}, so their rows can ")


def test_the_rate_of_a_papers_own_settings_is_not_tuned_for_others():
    name = "shazeer2020/heads"
    paper, changed = (Request(name, HEADS, "paper", range(1), each) for each in ([], ["max_steps=10"]))
    assert paper.tunings == {} and changed.is_untuned
    assert changed.tuning_command() == f"attn table {name} --budget paper --tune max_steps=10"


def test_a_row_that_may_still_have_learned_decides_nothing():
    (verdict,) = made({("h16", 0): done(LOSSES["h16"][0], late_gain=None)}).verdicts
    assert verdict.word == "not tested"
    assert "h16 was not evaluated before the last tenth of its steps with 1 of 6 seeds" in verdict.why
    # without this row, the others contradict the claim
    (verdict,) = made({("h8", 0): done(LOSSES["h8"][0], late_gain=None)}).verdicts
    assert verdict.word == "reversed"


def test_a_difference_that_holds_below_the_margin_is_called_small():
    small = {("h16", seed): done(loss + 0.005 + 0.0001 * seed) for seed, loss in enumerate(LOSSES["h8"])}
    found = made(small)
    (shown,) = [text for text in details(found.verdicts[0], found) if "h8 < h16" in text]
    assert ": holds; the mean is less than the margin of 0.01" in shown
    assert "less than the margin" not in render(made(), "markdown")


def test_the_ends_of_a_trend_are_said_to_cost_more():
    table = load(NAME)
    claims = {"C4": table.claims["C4"].model_copy(update={"parts": ["h8 > h16 > h32 by h"]})}
    found = made(table=table.model_copy(update={"claims": claims}))
    lines = [each | {"parameters": {"h8": 30, "h16": 20, "h32": 15}[each["row"]]} for each in found.lines]
    found = replace(found, lines=lines, step_seconds={})
    (comparison,) = found.verdicts[0].findings[""].comparisons
    said = comparison_line(comparison, found, "", "seed")
    assert said.endswith(": holds; h8 has 2.00 times the parameters of h32")
    assert [row["more_parameters"] for row in claim_rows(found)] == [2.0]
    assert "For a trend, it is the first end of the fitted line minus the last." in closing_sentence(found)


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


def test_machines_stand_with_their_seeds():
    def on(machine: str, seed: int) -> CellOutcome:
        return done(4.0, device=machine, config={"variant": {"name": "multi_head"}, "seed": seed})

    found = made({(row, seed): on("a GPU" if seed < 4 else "a CPU", seed) for row in LOSSES for seed in range(6)})
    assert dict(found.facts)["machine"] == "a GPU (seeds 0-3); a CPU (seeds 4-5)"


def test_a_margin_that_a_comparison_allows_is_no_part_of_its_difference():
    table = load(NAME)
    claims = {"C4": table.claims["C4"].model_copy(update={"parts": ["h8 ~ h16"]})}
    same = made(table=table.model_copy(update={"claims": claims}))
    assert "paired by seed. It leaves out a margin that a comparison allows. A claim" in closing_sentence(same)
    assert "the right side, paired by seed. A claim" in closing_sentence(made())


def needed(found: Report) -> list[str]:
    (verdict,) = found.verdicts
    return [text.partition(": ")[2] for text in details(verdict, found) if text.startswith("to decide it: ")]


def test_a_claim_without_a_verdict_says_what_it_needs_on_its_machine_and_on_a_gpu():
    noisy = {("h32", seed): done(loss) for seed, loss in enumerate((3.9, 4.9, 4.2, 4.6, 4.1, 5.5))}
    found = made(noisy)
    (finding,) = found.verdicts[0].findings.values()
    more = claim_seeds(finding.comparisons, finding.level) - 6
    # a run has 1200 steps of 0.125 s with 16 heads and of 0.15 s with 32, and 4 layers of 1,228,800 tokens
    on_machine = rough_duration(more * 1200 * (0.125 + 0.15))
    on_gpu = rough_duration(more * (1.25 + 1.5) * 1_228_800 / 708_000)
    runs = f"about {more} more seeds of h16 and h32, {2 * more} runs"
    assert needed(found) == [
        f"{runs}: about {on_machine} one after another on this table's machine, or {on_gpu} on one GPU (H100, fp32, 14 "
        "at once)"
    ]
    assert needed(made()) == []


def test_few_runs_take_a_gpu_as_long_as_one_of_them():
    found = made({(row, seed): CellOutcome("missing") for row in ("h16", "h32") for seed in range(3, 6)})
    (text,) = needed(found)
    assert text.startswith("at least 1 more seed of h8, h16 and h32, 3 runs: ") and text.endswith(
        "13 s on one GPU (H100, fp32, 14 at once)"
    )


def test_the_time_of_padded_sequences_on_a_gpu_is_not_known():
    noisy = {("h32", seed): done(loss, tokens=1_228_801) for seed, loss in enumerate((3.9, 4.9, 4.2, 4.6, 4.1, 5.5))}
    (text,) = needed(made(noisy))
    assert text.endswith(" one after another on this table's machine")


def untuned_table():
    table = load(NAME)
    (tuning,) = table.budget("nano").learning_rates.values()
    rates = {"multi_head": tuning.model_copy(update={"tried": {}})}
    budgets = {"nano": table.budget("nano").model_copy(update={"learning_rates": rates})}
    return table.model_copy(update={"budgets": budgets})


def test_a_claim_that_is_not_tested_says_what_would_test_it():
    stuck = {("h32", seed): done(6.4) for seed in range(6)}
    (text,) = needed(made(stuck))
    assert text.startswith("a longer training of h32; twice the steps are 6 runs: ")
    diverged = {("h32", seed): CellOutcome("diverged", "not finite") for seed in range(6)}
    (text,) = needed(made(diverged))
    assert text.startswith("a training of h32 that does not diverge, for example at a lower learning rate, in 6 runs")
    unknown = {("h16", seed): done(loss, late_gain=None) for seed, loss in enumerate(LOSSES["h16"])}
    (text,) = needed(made(unknown))
    assert text.startswith("an evaluation of h16 before the last tenth of the steps (trainer.evaluate_every), in 6 ru")
    table = untuned_table()
    (text,) = needed(made(table=table))
    assert text.startswith(
        "a tuned rate of the family multi_head (attn table me2026/heads --tune), and new runs of the row h16"
    )
    late = {("h8", seed): done(loss, late_gain=0.5) for seed, loss in enumerate(LOSSES["h8"])}
    (text,) = needed(made(late, table=table))
    first, second = text.split("; a longer training of h8; twice the steps are 6 runs: ")
    assert first.startswith("a tuned rate of the family multi_head ") and "new runs of the row h16" in first and second
    (text,) = needed(made(overrides=("max_steps=10",)))
    assert "(attn table me2026/heads --tune max_steps=10), and new runs of the row h16" in text


def noisy_rows(table=None) -> Report:
    """h32 is a little worse than h16, and both are clearly better than h8."""
    losses = {"h16": (3.5, 3.51, 3.5, 3.51, 3.5, 3.51), "h32": (3.6, 3.9, 3.4, 3.5, 3.4, 3.9)}
    changes = {(row, seed): done(loss) for row, of_row in losses.items() for seed, loss in enumerate(of_row)}
    table = table or load(NAME)
    claims = {"C4": table.claims["C4"].model_copy(update={"parts": ["h16 > h32"]})}
    return made(changes, table=table.model_copy(update={"claims": claims}))


def test_seeds_that_would_end_in_a_mark_are_not_promised():
    (text,) = needed(noisy_rows())
    assert text.startswith("about ") and "more seeds of h16 and h32" in text
    found = noisy_rows(untuned_table())
    (verdict,) = found.verdicts
    assert verdict.word == "not resolved"
    mark = "the row h32 may do better, because its learning rate was not tuned"
    assert verdict.why.endswith(f"; more seeds would not decide the claim if means and spreads stay the same: {mark}")
    (text,) = needed(found)
    assert text.startswith(
        "a tuned rate of the family multi_head (attn table me2026/heads --tune), and new runs of the row h32, at "
    )


def test_what_a_page_of_planned_seeds_needs_is_that_of_any_time():
    found = noisy_rows()
    planned = judged_by(Planned(), found)
    assert planned.verdicts[0].word == found.verdicts[0].word == "not resolved"
    assert needed(planned) == [f"{text}; or a new plan on fresh seeds (--plan)" for text in needed(found)]


def test_seeds_that_end_a_plan_for_a_chosen_claim_are_counted_beside_the_other_claims():
    found = noisy_rows()
    other = found.request.table.claims["C4"].model_copy(update={"parts": ["h8 > h16"]})
    table = found.request.table.model_copy(update={"claims": found.request.table.claims | {"C5": other}})
    chosen = replace(found, request=replace(found.request, table=table, chosen_claims=["C4"]))
    levels = [judged_by(of, chosen).verdicts[0].findings[""].outlook.level for of in (Planned(), chosen.evidence)]
    assert chosen.others == 1 and levels == [0.025, 0.025]
    assert judged_by(Planned(), chosen).verdicts[0].findings[""].level == 0.05


def test_a_wait_for_cores_that_makes_a_machine_busy_is_said():
    def notes(waited):
        return [note for note in made(step_times=STEP_TIMES._replace(waited=waited)).notes if "busy" in note]

    said = "The machine was busy while steps were timed: a row waited 11% of its time for a core."
    assert notes(BUSY + 0.01) == [said] and notes(BUSY) == notes(None) == []


def test_two_machines_are_said():
    def notes(*rows: str) -> list[str]:
        there = {(row, 0): done(4.0, device="another") for row in rows}
        return [note for note in made(there).notes if "machines" in note]

    mixed, note = notes("h8")
    assert mixed == "Rows of seed 0 were trained on different machines, whose rounding differs."
    assert "h8-s0 (another)" in note and note.endswith("speeds and peak memories are not comparable.")
    assert len(notes(*LOSSES)) == 1, "where all rows of a seed have the other machine, their differences are of one"


def test_cells_that_read_other_tokens_are_said():
    def notes(*tokens):
        return [
            note
            for note in made(
                {("h8", seed): done(4.0, sequences={"packed/a": of}) for seed, of in enumerate(tokens)}
            ).notes
            if "tokens" in note
        ]

    assert notes("one", "one") == []
    (note,) = notes("one", "other")
    assert note.startswith("h8-s0 and h8-s1 read different tokens of the same text") and note.endswith("comparable.")


@pytest.mark.parametrize(
    ("place", "values", "condition"),
    [("compiled", (True, False), "choice of torch.compile"), ("tokenizer_digest", ("ab", "cd"), "tokenizer")],
)
def test_a_condition_that_cells_do_not_share_is_said(place, values, condition):
    def notes(*values):
        found = made({("h8", seed): done(4.0, **{place: value}) for seed, value in enumerate(values)})
        return [note for note in found.notes if "The cells differ" in note]

    assert notes(values[0], values[0]) == []
    assert notes(*values) == [f"The cells differ in their {condition}, so their measurements are not comparable."]


def test_torch_compile_is_said():
    compiled = {(row, seed): done(loss, compiled=True) for row in LOSSES for seed, loss in enumerate(LOSSES[row])}
    assert dict(made(compiled).facts)["torch.compile"] == "of layers"
    assert "torch.compile" not in dict(made().facts)


def test_markdown_has_marks_verdicts_and_conditions():
    text = render(made(overrides=("data=text", "data.train=/home/me/book.txt")), "markdown")
    assert "90.89 +- 0.15 (s)" in text and "a third party's transcription" in text
    assert "**C4, reversed.**" in text and "95% interval" in text
    assert text.splitlines()[2:5] == ["Claimed: the more heads the worse.", "", "1 claim is reversed."]
    assert "data.train=book.txt" in text and "/home/me" not in text
    for fact in (
        "a machine, 2 threads",
        "2026-11-21",
        "1,228,800",
        "multi_head 01234567",
        "SHA-256 abcdef01",
        "seeds: 0-5",
        "anytime-valid",
        "margin: 0.01: made for the test",
    ):
        assert fact in text


def test_the_comparisons_of_a_scheme_are_below_it_in_every_markdown(monkeypatch):
    lines = ["rotary: holds", "  a < b: holds", "    step, which decides nothing: ..."]
    monkeypatch.setattr("experiments.tables.rendering.render.details", lambda verdict, report: lines)
    items = "* rotary: holds\n    * a < b: holds\n        * step, which decides nothing: ...\n"
    assert items in render(made(), "markdown")


def test_the_headline_counts_the_verdicts_and_names_the_claims_if_they_differ():
    def said(**words: str) -> str:
        return headline(SimpleNamespace(verdicts=[SimpleNamespace(key=key, word=word) for key, word in words.items()]))

    assert (
        said(C1="holds", C2="not resolved", C3="holds", C4="reversed", C5="not resolved")
        == "Of 5 claims, 2 hold (C1 and C3), 1 is reversed (C4) and 2 are not resolved (C2 and C5)."
    )
    assert said(C1="holds") == "1 claim holds."
    assert said(C1="not tested", C2="not tested") == "2 claims are not tested."
    assert said() == ""


def test_csv_is_exact():
    rows = list(csv.DictReader(io.StringIO(render(made(), "csv"))))
    assert [row["published_squad_f1"] for row in rows] == ["90.89", "90.61", "90.45"]
    assert float(rows[0]["validation_loss"]) == pytest.approx(4.01)
    assert rows[0]["published_squad_f1_mark"] == "s"
    claims = claim_rows(made())
    assert claims[0]["verdict"] == "reversed" and claims[0]["differences"].startswith("0:")


def test_latex_is_booktabs_and_escaped():
    text = render(made(), "latex")
    assert r"90.89 $\pm$ 0.15 (s)" in text and r"validation\_loss" in text and "$d_k$" in text
    body = re.sub(r"%.*", "", text.replace(r"\%", "")).replace("$d_k$", "")
    assert not re.search(r"(?<!\\)[_#]", body)
    tabulars = re.findall(r"begin{tabular}{([lr]+)}(.*?)end{tabular}", body, re.DOTALL)
    assert len(tabulars) == text.count(r"\toprule") == text.count(r"\bottomrule") == 2
    for columns, inside in tabulars:
        lines = re.findall(r"(.*) \\\\\n", inside)
        assert lines and {len(re.split(r"(?<!\\)&", line)) for line in lines} == {len(columns)} <= {
            *range(MOST_COLUMNS + 1)
        }


def test_no_column_is_lost_in_two_tables():
    keys = list(readable_table(made())[0])
    scores, costs = divided(keys)
    assert {*scores, *costs} == {*keys} and {*scores} & {*costs} == {"row"}
    assert scores[-1] == "difference" and costs[-1] == "memory_bytes"
    published = [f"published {metric}" for metric in "abcdef"]
    assert divided(["row", "positions", "difference", "step", *published, "mark"]) == [
        ["row", "positions", "difference", "mark"], ["row", "positions", "step", *published]
    ]  # fmt: skip
    # of a table without any result yet
    assert divided(["row", "what", "heads", "d_k", *published, "mark"])[0] == ["row", "what", "heads", "d_k", "mark"]
    assert divided(keys[:4]) == [keys[:4]]


def test_latex_compiles_and_fits_the_page(tmp_path):
    # whatever stands before it
    text = f"Some words.\n{render(made(), 'latex')}"
    packages = re.search(r"% needs \\usepackage\{(.*)\}", text)[1].split(",")
    assert overfull_boxes(text, packages, tmp_path) == []


def test_latex_says_as_much_of_a_claim_as_the_other_formats():
    text = render(made(), "latex")
    assert r"\item C4, reversed: The more heads the worse." in text
    assert text.count(r"\begin{itemize}") == text.count(r"\end{itemize}") > 2
    claims = render(made(), "markdown").partition("## Claims")[2].partition("## Conditions")[0]
    lines = re.findall(r"^ *\* (.*)$", claims, re.MULTILINE)
    assert lines and all(rf"\item {tex(line)}" in text for line in lines)
    assert r"\item margin: 0.01: " in text and r"\item evidence: anytime-valid" in text
    assert "a third party's transcription" in text and "Holm's correction" in text


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
    found = _report(request, Sized(outcomes), Conditions())
    assert found.verdicts[0].word == "holds"


@pytest.mark.parametrize("width", [60, 100, 250])
def test_a_narrow_terminal_crops_no_number(width):
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None, highlight=False)
    text = render(made(), "table", console)
    for number in ("90.89 +- 0.15 (s)", "4.0100", "2,570,752", "500 MB", "x1.25", "+0.3133"):
        assert number in text, number
    assert "..." not in text.replace("0 .. N", "") and "\u2026" not in text


def test_every_format_is_written_at_once(tmp_path):
    written = write_all(made(), tmp_path / "results")
    names = [path.name for path in written]
    ends = (".txt", ".md", ".csv", ".tex", "_seeds.csv", "_claims.csv", ".svg", ".pdf", ".json")
    assert names == [*(f"me2026_heads{end}" for end in ends), "README.md"]
    assert sorted(path.name for path in (tmp_path / "results").iterdir()) == sorted(names)
    assert all(path.read_bytes() for path in written)
    assert "![More heads of less width](me2026_heads.svg)" in (tmp_path / "results" / "me2026_heads.md").read_text()
    by_seed = [*csv.DictReader((tmp_path / "results" / "me2026_heads_seeds.csv").open())]
    assert [float(row["validation_loss"]) for row in by_seed if row["row"] == "h16"] == [*LOSSES["h16"]]


def test_files_of_one_budget_do_not_replace_those_of_another(tmp_path):
    nano = made()
    for budget, seeds, stem in (
        ("nano", range(6), "me2026_heads"),
        ("small", range(6), "me2026_heads-small"),
        ("small", range(4, 6), "me2026_heads-small-4-5"),
    ):
        request = replace(nano.request, budget_name=budget, seeds=seeds)
        assert request.result_stem == stem
    assert replace(nano.request, chosen_claims=["C4"]).result_stem == "me2026_heads-C4"
    index = write_all(nano, tmp_path / "results")[-1]
    (tmp_path / "results" / "me2026_heads.md").rename(tmp_path / "results" / "me2026_heads-small-4-5.md")
    write_index(tmp_path / "results")
    assert f"attn table {NAME}" not in index.read_text(), "it has been run, at another budget"


def test_the_list_of_results_links_to_pages_that_are_there(tmp_path):
    (tmp_path / "verdicts.md").touch()
    index = write_all(made(), tmp_path / "results")[-1].read_text()
    assert "[How a claim is decided](../verdicts.md) explains the verdicts, and `docs/tables.md`" in index


def test_a_claim_whose_verdict_differs_between_schemes_lists_them(tmp_path):
    shared, own = "paper,budget,claim,says,verdict,positions,word,paired_by,origin", "comparison,comparison_word"
    header = f"{shared},{own},mean,low,high,pairs\n"
    lines = [
        f"P,nano,{claim},it helps,not resolved,{scheme},{word},seed,paper,loss: a < b,{word},-0.2,-0.5,0.1,4\n"
        for claim, second in (("one", "holds"), ("two", "not resolved"))
        for scheme, word in (("learned", "not resolved"), ("rotary", second))
    ]
    (tmp_path / "p_t.md").touch()
    (tmp_path / "p_t_claims.csv").write_text(header + "".join(lines))
    index = write_index(tmp_path).read_text()
    assert "| **not resolved** (learned: not resolved, rotary: holds) |" in index and "| **not resolved** |" in index


def test_the_verdicts_are_read_above_the_numbers():
    text = render(made(), "markdown")
    above = text.partition("| row |")[0]
    assert "| C4 | The more heads the worse | **reversed** |" in above


COMPARED = "paper,budget,claim,says,verdict,paired_by,origin,comparison,comparison_word,small,mean,low,high,pairs\n"


def test_the_list_of_results_says_how_many_parameters_more_the_better_sides_have(tmp_path):
    header = COMPARED.replace("small", "more_parameters")
    line = "P,nano,{},it helps,holds,seed,paper,loss: a < b,holds,{},-0.25,-0.375,-0.125,4\n".format
    lines = [line("one", 1.5), line("two", 1.25), line("two", 1.908), line("two", ""), line("three", "")]
    (tmp_path / "p_t.md").touch()
    (tmp_path / "p_t_claims.csv").write_text(header + "".join(lines))
    index = write_index(tmp_path).read_text()
    assert "loss -0.25 [-0.375, -0.125]; the better side has 1.50 times the parameters |" in index
    assert "; the better side has up to 1.91 times the parameters |" in index and "-0.125] |" in index


def test_the_list_of_results_says_how_many_claims_hold_and_by_how_much(tmp_path):
    lines = (
        "P,nano,one,it helps,holds,seed,paper,loss: a < b,holds,True,-0.25,-0.375,-0.125,4",
        "P,nano,two,both help,reversed,seed,paper,loss: a < b,reversed,False,0.5,0.25,0.75,4",
        "P,nano,two,both help,reversed,seed,paper,loss: a < c,holds,False,-0.125,-0.2,-0.05,4",
        "P,nano,time,it takes longer,holds,round,paper,log step time: a > b,holds,False,0.693147,0.6,0.8,12",
        "P,nano,time,it takes longer,holds,round,paper,log step time: a > c,holds,False,1.098612,1.0,1.2,12",
        "P,nano,none,nobody knows,not tested,seed,paper,loss: a < d,not tested,False,,,,0",
        "P,nano,ours,we wonder,holds,seed,this project,loss: a < e,holds,False,-0.5,-0.6,-0.4,4",
        "P,nano,proved,it must be,holds,seed,check,loss: a < f,holds,False,-0.5,-0.6,-0.4,4",
    )
    (tmp_path / "p_t.md").touch(), (tmp_path / "p_t.svg").touch()
    (tmp_path / "p_t_claims.csv").write_text(COMPARED + "\n".join(lines))
    index = write_index(tmp_path).read_text()
    assert "Of 5 claims, 3 hold, 1 is reversed and 1 is not tested." in index
    assert "Of the 4 that a paper makes itself, 2 hold, 1 is reversed and 1 is not tested." in index
    assert "Of 1 check of the code, 1 holds." in index
    claims, _, checks = index.partition("## Checks of the code")
    assert "| this project | **holds**" in claims and "it must be" not in claims and "| proved |" in checks
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in claims.splitlines() if "P |" in line]
    assert [row[4] for row in rows] == [
        "loss -0.25 [-0.375, -0.125], less than the margin",
        "loss +0.5 [+0.25, +0.75]",
        "step time x2.00 to x3.00",
        "",
    ]
    assert rows[0] == [
        "one",
        "[it helps](p_t.md)",
        "P",
        "**holds**",
        "loss -0.25 [-0.375, -0.125], less than the margin",
        "4 seeds",
        "nano",
        "[figure](p_t.svg)",
    ]


@pytest.mark.parametrize("incomplete", ["me2026_heads-4-7", "me2026_heads"])
def test_a_claim_of_several_pages_is_counted_once_and_a_page_of_one_claim_makes_no_table(tmp_path, incomplete):
    stems = {"me2026_heads-C4": ["C4"], "me2026_heads-4-7": [], "me2026_heads": []}
    (counted,) = {stem for stem, chosen in stems.items() if not chosen} - {incomplete}
    for stem, chosen in stems.items():
        (tmp_path / f"{stem}.md").touch()
        missing = stem == incomplete
        cells = [{"seed": seed, "state": "missing" if missing and seed else "done"} for seed in range(4)]
        write_sealed(tmp_path / f"{stem}.json", {"chosen_claims": chosen, "lines": [{}], "by_seed": cells})
        verdict = "not resolved" if stem == counted else "holds"
        line = f"P,nano,C4,it helps,{verdict},seed,paper,loss: a < b,{verdict},False,-0.25,-0.375,-0.125,4"
        (tmp_path / f"{stem}_claims.csv").write_text(f"{COMPARED}{line}\n")
    # files that have nothing to do with a table
    (tmp_path / "notes.md").touch()
    (tmp_path / "notes.json").write_text("[")
    index = write_index(tmp_path).read_text()
    assert "Of 1 claim, 1 is not resolved." in index and "## Tables without results" not in index
    others = f"[another page]({incomplete}.md): holds, 4 seeds; [another page](me2026_heads-C4.md): holds, 4 seeds"
    (line,) = [line for line in index.splitlines() if "it helps" in line]
    assert f"[it helps]({counted}.md) | P | **not resolved**; {others} |" in line
    for stem in ("me2026_heads-4-7", "me2026_heads"):
        (tmp_path / f"{stem}.md").unlink()
    index = write_index(tmp_path).read_text()
    assert "Of 1 claim, 1 holds." in index and f"attn table {NAME} --until-resolved" in index


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
        "It was asked for pair alone: 1 other claim of this table and these rows are left out: 32 heads." in alone.notes
    )
    planned = replace(alone, evidence=Planned())
    assert planned.verdicts[0].findings[""].level == 0.05
    assert "(one verdict is tried here)" in closing_sentence(planned)
    whole = replace(found.request, chosen_claims=["C4"])
    assert "It was asked for C4 alone: 1 other claim of this table is left out." in replace(found, request=whole).notes


def test_the_legend_names_the_score_that_is_compared():
    assert "difference: validation_loss minus that of the row h8," in render(made(), "table")


def test_the_users_own_reading_of_the_paper(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text('tables: {"1": {rows: {h8: {squad_f1: 90.5, squad_f1_pm: 0.3, mnli: null}}}}')
    text = render(made(file=file), "markdown")
    assert "90.5 +- 0.3 (u)" in text and "85 +- 0.2 (s)" in text and "90.61 +- 0.14 (s)" in text
    assert "--published mine.yaml" in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rows: {}", "contains no tables"),
        ('tables: {"1": {rows: {h9: {squad_f1: 1}}}}', "table 1 has no 'h9'"),
        ('tables: {"1": {rows: {h8: {squad_f: 1}}}}', "did you mean squad_f1"),
        ('tables: {"1": {rows: {h8: {squad_f1: much}}}}', "must be a number"),
        ('tables: {"1": {rows: {h8: {squad_f1: .nan}}}}', "must be a number"),
        ('tables: {"1": {rows: {8: {squad_f1: 90.0}}}}', "table 1 has no '8'.*did you mean h8"),
        ('tables: {"1": {rows: {h8: {1: 90.0}}}}', "table 1, row h8 has no '1'"),
        ('tables: {"2a": {rows: {h8: {squad_f1: 90.0}}}}', "the paper has no '2a'"),
        ("{", "--published .*mine.yaml: line 1: while parsing"),
        (b"a: 1\n\xff\xfe", "mine.yaml: line 2: the byte 0xff is not UTF-8"),
    ],
)
def test_a_file_of_published_numbers_that_is_wrong(tmp_path, text, said):
    file = tmp_path / "mine.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(Mistake, match=said):
        published.read(NAME, "1", file)
    with pytest.raises(Mistake, match="No such file"):
        published.read(NAME, "1", tmp_path / "absent.yaml")
