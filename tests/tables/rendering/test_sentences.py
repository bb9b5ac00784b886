"""The sentences of a page."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from experiments.tables.definition.request import load
from experiments.tables.rendering.render import claim_rows, render
from experiments.tables.rendering.sentences import (
    closing_sentence,
    comparison_line,
    details,
    headline,
    shown_or_claimed,
)
from experiments.tables.sources.source import CellOutcome
from experiments.tables.step_times import NOT_MEASURED
from tests.fixtures.tables import NAME
from tests.tables.known import LOSSES, STEP_TIMES, UNEVEN, done, line, made, table_under

pytestmark = pytest.mark.usefixtures("heads_table")


def said_of(**words: dict[str, str]) -> str:
    """The headline. words: by origin, the verdict of each claim."""
    verdicts = [
        SimpleNamespace(key=key, word=word, claim=SimpleNamespace(origin=origin.replace("_", " ")))
        for origin, of in words.items()
        for key, word in of.items()
    ]
    return headline(SimpleNamespace(verdicts=verdicts, request=SimpleNamespace(table=load(NAME))))


def test_the_headline_counts_the_verdicts_and_names_the_claims_if_they_differ():
    assert (
        said_of(paper={"C1": "holds", "C2": "not resolved", "C3": "holds", "C4": "reversed", "C5": "not resolved"})
        == "Of 5 claims by Somebody 2026, 2 hold (C1 and C3), 1 is reversed (C4) and 2 are not resolved (C2 and C5)."
    )
    assert said_of(paper={"C1": "holds"}) == "1 claim by Somebody 2026 holds."
    assert said_of(this_project={"C1": "not tested", "C2": "not tested"}) == "2 claims by this project are not tested."
    assert said_of() == ""
    assert said_of(check={"X2": "holds", "X3": "holds"}) == "2 checks of the code hold."
    mixed = {"X2": "holds", "X3": "reversed"}
    assert said_of(check=mixed) == "Of 2 checks of the code, 1 holds (X2) and 1 is reversed (X3)."


def test_the_headline_has_a_sentence_for_each_party_that_makes_claims():
    assert said_of(
        check={"X2": "holds"},
        this_project={"C8 by length": "not resolved"},
        secondary_sources={"growth": "holds"},
        paper={"C7": "not resolved", "C8": "not resolved"},
    ) == (
        "2 claims by Somebody 2026 are not resolved (C7 and C8). 1 claim by secondary sources holds (growth). "
        "1 claim by this project is not resolved (C8 by length). 1 check of the code holds (X2)."
    )


def test_a_page_of_chosen_claims_says_that_it_decides_no_other():
    found = made()
    assert shown_or_claimed(found) == "Claimed: the more heads the worse."
    chosen = replace(found, request=replace(found.request, chosen_claims=["C4"]))
    alone = " This page decides C4 alone."
    assert shown_or_claimed(chosen) == f"The whole table is about the claim that the more heads the worse.{alone}"
    asked = chosen.request.table.model_copy(update={"shows": "whether heads matter"})
    asks = replace(chosen, request=replace(chosen.request, table=asked))
    assert shown_or_claimed(asks) == f"The whole table asks whether heads matter.{alone}"


def test_a_difference_of_step_times_is_paired_by_round():
    table = load(NAME)
    time = table.claims["C4"].model_copy(update={"of": "step_time"})
    both = table.model_copy(update={"claims": table.claims | {"time": time}})
    said = "Of step times, it is the difference of logarithms, paired by round. A claim holds if"
    assert said in closing_sentence(made(table=both)) and "round" not in closing_sentence(made())


def test_ratios_of_step_times_without_spread_have_no_interval():
    steady = made(step_times=STEP_TIMES._replace(seconds={"h8": dict.fromkeys(range(12), 0.1)}))
    assert steady.step_ratios("h8", "h8", "") == [1.0] * 12 and steady.step_ratio_interval("h8", "h8", "") is None


def test_a_ratio_of_step_times_is_that_of_its_positions():
    seconds = {f"{row}@{scheme}": {0: time} for row, scheme, time in (
        ("h8", "learned", 1.0), ("h16", "learned", 2.0), ("h8", "rotary", 1.0), ("h16", "rotary", 3.0)
    )}  # fmt: skip
    found = made(table=table_under("learned", "rotary"), step_times=STEP_TIMES._replace(seconds=seconds))
    assert [found.step_ratios("h16", "h8", scheme) for scheme in ("learned", "rotary")] == [[2.0], [3.0]]


def test_what_a_better_loss_costs_is_said_under_every_scheme_though_one_is_timed():
    schemes = ("learned", "rotary")
    better = {(f"h16@{scheme}", seed): done(3.0 + 0.001 * seed) for scheme in schemes for seed in range(6)}

    def said(seconds_of_h16: dict[int, float]) -> list[str]:
        seconds = {"h8@learned": dict.fromkeys(range(12), 0.1), "h16@learned": seconds_of_h16}
        found = made(better, table=table_under(*schemes), step_times=STEP_TIMES._replace(seconds=seconds))
        (verdict,) = found.verdicts
        return [
            comparison_line(finding.comparisons[0], found, scheme, "seed")
            for scheme, finding in verdict.findings.items()
        ]

    lines = said({turn: 0.125 + 0.001 * (turn % 3) for turn in range(12)})
    assert len(lines) == 2
    takes = "; a step of h16 takes 1.26 times the time of one of h8"
    assert lines[0].endswith(takes) and lines[1].endswith(f"{takes} under learned positions, which alone were timed")
    lines = said({turn: 0.09 + 0.06 * (turn % 2) for turn in range(12)})
    assert not any("a step of" in line for line in lines), "within the noise of the rounds"


def test_a_difference_that_holds_below_the_margin_is_called_small():
    small = {("h16", seed): done(loss + 0.005 + 0.0001 * seed) for seed, loss in enumerate(LOSSES["h8"])}
    found = made(small)
    (shown,) = [text for _, text in details(found.verdicts[0], found) if "h8 < h16" in text]
    assert ": holds; the mean is less than the margin of 0.01" in shown
    assert "less than the margin" not in render(made(), "markdown")


def test_the_ends_of_a_trend_are_said_to_cost_more():
    table = load(NAME)
    claims = {"C4": table.claims["C4"].model_copy(update={"parts": ["h8 > h16 > h32 by h"]})}
    sizes = {"h8": 30, "h16": 20, "h32": 15}
    changes = {
        (row, seed): done(loss, parameters={"total": sizes[row]})
        for row, losses in LOSSES.items()
        for seed, loss in enumerate(losses)
    }
    found = made(changes, table=table.model_copy(update={"claims": claims}), step_times=NOT_MEASURED)
    (comparison,) = found.verdicts[0].findings[""].comparisons
    said = comparison_line(comparison, found, "", "seed")
    assert said.endswith(": holds; h8 has 2.00 times the parameters of h32")
    assert [row["more_parameters"] for row in claim_rows(found)] == [2.0]
    assert "For a trend, it is the first end of the fitted line minus the last." in closing_sentence(found)


def test_the_better_row_is_that_of_the_pairs():
    """The mean over all its seeds is lower for h16, but over the seeds that both rows have, h8 is better."""
    missing = {(row, seed): CellOutcome("missing") for row in LOSSES for seed in range(6)}
    changes = {
        (row, seed): done(loss, parameters={"total": {"h8": 30}.get(row, 20)})
        for row, losses in UNEVEN.items()
        for seed, loss in enumerate(losses)
    }
    found = made(missing | changes, step_times=NOT_MEASURED)
    first, _ = found.verdicts[0].findings[""].comparisons
    assert line(found, "h16")[found.score] < line(found, "h8")[found.score]
    assert comparison_line(first, found, "", "seed").endswith("; h8 has 1.50 times the parameters of h16")


def test_a_comparison_that_is_not_tested_says_why_if_its_claim_is_decided():
    table = load(NAME)

    def lines(*parts: str) -> list[str]:
        claims = {"C4": table.claims["C4"].model_copy(update={"parts": [*parts]})}
        still_learns = {("h32", seed): done(loss, late_gain=0.25) for seed, loss in enumerate(LOSSES["h32"])}
        found = made(still_learns, table=table.model_copy(update={"claims": claims}), step_times=NOT_MEASURED)
        return [text for _, text in details(found.verdicts[0], found)]

    gained = "still gained 0.25 in the last tenth of the training"
    why = f": not tested; the row h32 {gained}, no less than the difference (0.22)"
    assert lines("h16 > h8", "h8 > h32")[1].endswith(why)
    assert lines("h8 > h32")[0].endswith(": not tested"), "the sentence on the claim gives the reason"


def test_a_margin_that_a_comparison_allows_is_no_part_of_its_difference():
    table = load(NAME)
    claims = {"C4": table.claims["C4"].model_copy(update={"parts": ["h8 ~ h16"]})}
    same = made(table=table.model_copy(update={"claims": claims}))
    assert "paired by seed. It does not include a margin. A claim" in closing_sentence(same)
    assert "the right side, paired by seed. A claim" in closing_sentence(made())


def test_the_legend_names_the_score_that_is_compared():
    assert "difference: validation_loss minus that of the row h8," in render(made(), "table")
