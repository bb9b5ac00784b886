"""What a claim without a verdict needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.display.numbers import rough_duration
from experiments.settings import plugins
from experiments.statistics.comparison import claim_seeds
from experiments.statistics.evidence import Planned
from experiments.tables.definition.request import load
from experiments.tables.rendering.sentences import details
from experiments.tables.report import Report
from experiments.tables.sources.source import CellOutcome
from experiments.tables.step_times import NOT_MEASURED, StepTimes
from tests.fixtures.tables import NAME
from tests.tables.known import LOSSES, STEP_TIMES, done, made, untuned_table

pytestmark = pytest.mark.usefixtures("heads_table")


def needed(found: Report) -> list[str]:
    (verdict,) = found.verdicts
    return [text.partition(": ")[2] for _, text in details(verdict, found) if text.startswith("to decide it: ")]


def test_a_claim_without_a_verdict_says_what_it_needs_on_its_machine_and_on_a_gpu():
    noisy = {("h32", seed): done(loss) for seed, loss in enumerate((3.9, 4.9, 4.2, 4.6, 4.1, 5.5))}
    found = made(noisy)
    (finding,) = found.verdicts[0].findings.values()
    more = claim_seeds(finding.comparisons, finding.level) - 6
    # a run has 1200 steps of 0.125 s with 16 heads and of 0.15 s with 32, and 4 layers of 1,228,800 tokens
    on_machine = rough_duration(more * 1200 * (0.125 + 0.15))
    on_gpu = rough_duration(more * (1.25 + 1.5) * 1_228_800 / 457_000)
    runs = f"about {more} more seeds of h16 and h32, {2 * more} runs"
    assert needed(found) == [
        f"{runs}: about {on_machine} one after another on this table's machine, or about {on_gpu} on one GPU (H200, "
        "fp32, 15 at once)"
    ]
    assert needed(made()) == []


def test_a_ratio_of_step_times_needs_more_rounds_and_an_option_asks_for_them():
    table = load(NAME)
    time = table.claims["C4"].model_copy(update={"of": "step_time", "parts": ["h16 > h8"]})
    turns = (0.124, 0.126, 0.1, 0.13, 0.12, 0.09, 0.14, 0.12)
    seconds = {"h8": dict.fromkeys(range(8), 0.11), "h16": dict(enumerate(turns))}
    found = made(table=table.model_copy(update={"claims": {"time": time}}), step_times=StepTimes(seconds, "", 0.0))
    (finding,) = found.verdicts[0].findings.values()
    more = finding.outlook.more
    every = "each of which times a step of every row"
    assert more and needed(found) == [
        f"about {more} more rounds on a quiet machine (--rounds {8 + more}), at least "
        f"{rough_duration(more * (0.11 + 0.122))} on this table's machine, {every}"
    ]
    untimed = made(table=table.model_copy(update={"claims": {"time": time}}), step_times=NOT_MEASURED)
    assert needed(untimed) == [f"at least 4 rounds on a quiet machine (--rounds 4), {every}"]


def test_few_runs_take_a_gpu_as_long_as_one_of_them():
    found = made({(row, seed): CellOutcome("missing") for row in ("h16", "h32") for seed in range(3, 6)})
    (text,) = needed(found)
    assert text.startswith("at least 1 more seed of h8, h16 and h32, 3 runs: ") and text.endswith(
        "or about 1.0 min on one GPU (H200, fp32, 15 at once)"
    )


def test_the_time_of_padded_sequences_on_a_gpu_is_at_least_that_of_their_tokens():
    noisy = {("h32", seed): done(loss, tokens=1_228_801) for seed, loss in enumerate((3.9, 4.9, 4.2, 4.6, 4.1, 5.5))}
    (text,) = needed(made(noisy))
    assert " on this table's machine, or at least " in text
    assert text.endswith(" on one GPU (H200, fp32, 15 at once, if padding cost nothing)")


def test_runs_whose_processor_time_is_not_known_have_their_time_on_a_gpu():
    """As the runs of tables that measure trained models, of which no step is timed."""
    noisy = {("h32", seed): done(loss) for seed, loss in enumerate((3.9, 4.9, 4.2, 4.6, 4.1, 5.5))}
    (text,) = needed(made(noisy, step_times=NOT_MEASURED))
    assert " runs: about " in text
    assert text.endswith(" at once) (attn table me2026/heads --dry-run estimates a run's time on a CPU)")


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
        "a tuned rate of the family multi_head (attn table me2026/heads --tune --claim C4), and new runs of the row "
        "h16, at least 18 runs: "  # 12 of h8 and h32 to tune it, and 6 of h16
    )
    late = {("h8", seed): done(loss, late_gain=0.5) for seed, loss in enumerate(LOSSES["h8"])}
    (text,) = needed(made(late, table=table))
    more = "twice the steps, which may not be enough, are 6 runs: "
    first, second = text.split(f"; a training of h8 that gains less in its last tenth; {more}")
    assert first.startswith("a tuned rate of the family multi_head ") and "new runs of the row h16" in first and second
    (text,) = needed(made(overrides=("max_steps=10",)))
    assert "(attn table me2026/heads --tune --claim C4 max_steps=10), and new runs of the row h16" in text


def test_the_commands_of_what_is_needed_name_the_budget_the_settings_and_the_folders_of_the_users_own(monkeypatch):
    monkeypatch.setattr(plugins, "_code", [Path("/home/me/mine")])
    table, (nano,) = load(NAME), load(NAME).budgets.values()
    small = nano.model_copy(update={"overrides": f"{nano.overrides} max_steps=10"})
    measured = table.model_copy(update={"source": "theorem1", "budgets": {"nano": nano, "small": small}})
    found = noisy_rows(measured, NOT_MEASURED)
    small_request = replace(found.request, budget_name="small", overrides=("max_steps=20", "data.train=book.txt"))
    commands = ("attn table me2026/heads --dry-run", "attn table me2026/heads --budget small --dry-run")
    words = (" plugins=mine", " plugins=mine max_steps=20")
    places = ("a CPU", "a CPU or a GPU")
    for request, command, more, place in zip((found.request, small_request), commands, words, places, strict=True):
        (text,) = needed(replace(found, request=request))
        assert text.endswith(f" ({command}{more} estimates a run's time on {place})")
    # the smallest budget does not have all rows of the claim
    budgets = {"nano": nano.model_copy(update={"rows": ["h8", "h16"]}), "small": small}
    fewer = made(table=found.request.table.model_copy(update={"budgets": budgets}))
    assert needed(replace(fewer, request=replace(fewer.request, overrides=("learning_rate=1e-3",)))) == [
        f"the budget small, made for a GPU; {commands[1]} plugins=mine estimates its time on a CPU or a GPU"
    ]


def noisy_rows(table=None, step_times: StepTimes = STEP_TIMES) -> Report:
    """h32 is a little worse than h16, and both are clearly better than h8."""
    losses = {"h16": (3.5, 3.51, 3.5, 3.51, 3.5, 3.51), "h32": (3.6, 3.9, 3.4, 3.5, 3.4, 3.9)}
    changes = {(row, seed): done(loss) for row, of_row in losses.items() for seed, loss in enumerate(of_row)}
    table = table or load(NAME)
    claims = {"C4": table.claims["C4"].model_copy(update={"parts": ["h16 > h32"]})}
    return made(changes, table=table.model_copy(update={"claims": claims}), step_times=step_times)


def test_seeds_that_would_end_in_a_mark_are_not_promised():
    (text,) = needed(noisy_rows())
    assert text.startswith("about ") and "more seeds of h16 and h32" in text
    found = noisy_rows(untuned_table())
    (verdict,) = found.verdicts
    assert verdict.word == "not resolved"
    mark = "the row h32 may do better at a tuned learning rate"
    assert verdict.why.endswith(f"; more seeds would not decide the claim if means and spreads stay the same: {mark}")
    (text,) = needed(found)
    assert text.startswith(
        "a tuned rate of the family multi_head (attn table me2026/heads --tune --claim C4), and new runs of the row "
        "h32, at least 18 runs: "
    )


def test_what_a_page_of_planned_seeds_needs_is_that_of_any_time():
    found = noisy_rows()
    planned = replace(found, evidence=Planned())
    assert planned.verdicts[0].word == found.verdicts[0].word == "not resolved"
    assert needed(planned) == [f"{text}; or a new plan on fresh seeds (--plan)" for text in needed(found)]


def test_seeds_that_end_a_plan_for_a_chosen_claim_are_counted_beside_the_other_claims():
    found = noisy_rows()
    other = found.request.table.claims["C4"].model_copy(update={"parts": ["h8 > h16"]})
    table = found.request.table.model_copy(update={"claims": found.request.table.claims | {"C5": other}})
    chosen = replace(found, request=replace(found.request, table=table, chosen_claims=["C4"]))
    levels = [
        replace(chosen, evidence=of).verdicts[0].findings[""].outlook.level for of in (Planned(), chosen.evidence)
    ]
    assert chosen.others == 1 and levels == [0.025, 0.025]
    assert replace(chosen, evidence=Planned()).verdicts[0].findings[""].level == 0.05
