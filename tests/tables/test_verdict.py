"""Verdicts on known numbers. A sign alone, or a single seed, never decides a claim."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from experiments.failures.failure import Mistake
from experiments.statistics.comparison import Compared
from experiments.statistics.evidence import ALPHA, Anytime, Planned, Waiting
from experiments.tables.definition.table import Budget, Claim, Margin
from experiments.tables.verdict import Measures, Verdict, decide

BUDGET = Budget(task="a task", seeds=3, overrides="", margin=Margin(value=0.1, reason="by hand"))
HIGHER = BUDGET.model_copy(update={"better": "higher"})
SEEDS = range(8)
NOISE = [0.01, -0.01, 0.02, -0.02, 0.0, 0.01, -0.01, 0.0]


def row(mean: float, scale: float = 1.0, turn: int = 0) -> dict[int, float]:
    """A score for each seed around a mean."""
    return {seed: mean + scale * NOISE[(seed + turn) % 8] for seed in SEEDS}


CLEAR, WORSE, SAME, NOISY = row(4.0), row(4.5, turn=1), row(4.005, 0.5, turn=3), row(4.02, 20.0, turn=2)


def verdicts(parts: dict[str, list[str]], scores, budget: Budget = BUDGET, of="score", evidence=None, **more):
    failure = more.pop("of_failure", False)
    claims = {
        key: Claim(says="it is so", origin="paper", of=of, parts=sentences, of_failure=failure)
        for key, sentences in parts.items()
    }
    of_rows = next(iter(scores.values()))
    schemes = scores if of_rows and isinstance(next(iter(of_rows.values())), dict) else {"": scores}
    empty = {"step_time": {}, "parameters": {}, "sizes": {}}
    measures = {scheme: Measures(of_scheme, **(empty | more)) for scheme, of_scheme in schemes.items()}
    return decide(claims, budget, next(iter(schemes.values())), measures, evidence)


def verdict(sentence: str, scores, **more) -> Verdict:
    return verdicts({"C": [sentence]}, scores, **more)[0]


def word(sentence: str, scores, **more) -> str:
    return verdict(sentence, scores, **more).word


def comparison(of: Verdict, scheme: str = "") -> Compared:
    return of.findings[scheme].comparisons[0]


def test_a_clear_difference_holds_one_way_and_is_reversed_the_other():
    scores = {"a": CLEAR, "b": WORSE}
    assert word("a > b", scores) == "holds"
    assert word("b > a", scores) == "reversed"
    assert word("b > a", scores, budget=HIGHER) == "holds", "of a score that is to be high"


def test_the_right_sign_is_not_enough():
    made = verdict("a > b", {"a": CLEAR, "b": NOISY})
    assert comparison(made).mean < 0
    assert made.word == "not resolved"
    more = comparison(made).seeds_needed() - len(SEEDS)
    assert f"about {more} seeds more than these 8 would decide the claim" in made.why


def test_what_is_missing_is_said_of_the_undecided_comparisons_alone():
    # the interval of a - far is the widest
    scores = {"a": CLEAR, "b": row(4.05, 3.0, turn=3), "far": row(9.0, 40.0, turn=2)}
    made = verdicts({"C": ["a > b", "a > far"]}, scores)[0]
    undecided, decided = made.findings[""].comparisons
    assert decided.half_width > undecided.half_width and decided.word() == "holds"
    assert made.why.startswith(f"the undecided comparison is a < b (+-{undecided.half_width:.2g}); about ")


def test_seeds_are_those_of_what_will_not_be_marked():
    scores = {"a": row(4.0, 30.0, turn=1), "b": row(3.7), "c": row(4.0, 40.0, turn=2), "d": row(3.7)}
    made = verdicts({"C": ["a > b", "c > d"]}, scores, untuned=["a"])[0]
    marked, unmarked = made.findings[""].comparisons
    assert marked.outlook == unmarked.outlook == "reversed" and marked.later and not unmarked.later
    assert made.findings[""].outlook.can_decide, "for the second contradicts the claim"
    assert marked.seeds_needed(0.025) < made.findings[""].outlook.seeds == unmarked.seeds_needed(0.025)


def test_added_seeds_end_a_plan_also_for_what_it_has_resolved():
    both = {"first": beside(3.0), "second": beside(2.2)}
    made = verdict("a > b", both, budget=NARROW, evidence=Planned())
    first, second = made.findings.values()
    assert (first.word, first.outlook.word) == ("holds", "not resolved") and second.word == "not resolved"
    for scheme, finding in verdict("a > b", both, budget=NARROW).findings.items():
        added, outlook = finding.outlook, made.findings[scheme].outlook
        assert (outlook.level, outlook.seeds, outlook.more) == (added.level, added.seeds, added.more)


def test_rounds_of_the_bench_are_no_planned_seeds():
    steps = {"a": dict.fromkeys(range(4), 1.0), "b": {turn: 1.0 + 0.01 * turn for turn in range(4)}}
    planned, anytime = (
        verdict("b > a", {"a": CLEAR, "b": CLEAR}, of="step_time", step_time=steps, evidence=each)
        for each in (Planned(), Anytime())
    )
    assert comparison(planned).interval == comparison(anytime).interval


def test_a_plan_that_is_not_complete_is_the_reason():
    assert verdict("a > b", {"a": CLEAR, "b": WORSE}, evidence=Waiting()).why == "its plan is not complete"


def test_a_difference_within_the_margin_is_none():
    scores = {"a": CLEAR, "b": SAME}
    # the interval of a - b holds 0 and lies within +-0.1
    low, high = comparison(verdict("a > b", scores)).interval
    assert -0.1 < low < 0 < high < 0.1
    assert word("a > b", scores) == word("b > a", scores) == "no difference"
    assert word("a ~ b", scores) == word("a >~ b", scores) == word("b >~ a", scores) == "holds"


@pytest.mark.parametrize(
    ("sentence", "untuned", "expected"),
    [
        ("a > b", "", "holds"),
        ("a > b", "a", "holds"),
        ("a > b", "b", "not tested"),
        ("b > a", "a", "reversed"),
        ("b > a", "b", "not tested"),
        ("a >~ b", "b", "not tested"),
        ("a ~ b", "a", "reversed"),
        ("a ~ b", "b", "not tested"),
        ("a > b", "ab", "not tested"),
        ("a > c", "b", "no difference"),
        ("a > c", "a", "not tested"),
        ("a ~ c", "c", "not tested"),
        ("a >~ c", "a", "holds"),
        ("a >~ c", "c", "not tested"),
        ("a > noisy", "noisy", "not resolved"),
        ("a - c > b - c", "c", "holds"),
        ("b - a > c - a", "b", "not tested"),
    ],
)
def test_a_row_whose_rate_was_not_tuned_decides_only_by_being_better(sentence, untuned, expected):
    """Lower is better: a beats b, and c is like a."""
    scores = {"a": CLEAR, "b": WORSE, "c": SAME, "noisy": NOISY}
    made = verdict(sentence, scores, untuned=list(untuned))
    assert made.word == expected
    assert (expected == "not tested") == ("may do better at a tuned learning rate" in made.why)
    flipped = {name: {seed: -value for seed, value in of.items()} for name, of in scores.items()}
    assert word(sentence, flipped, budget=HIGHER, untuned=list(untuned)) == expected
    assert word(sentence, scores, untuned=list(untuned), of_failure=True) == expected


def test_a_better_row_with_an_untuned_rate_decides_by_its_sign_alone():
    """At a tuned rate, a small difference could be a large one, but not one of the other sign."""
    scores = {"a": row(4.0, 0.5), "b": row(4.02, 0.5, turn=1)}
    for untuned, shown in (([], ["holds", "no difference"]), (["a"], ["holds"])):
        made = verdict("a > b", scores, untuned=untuned)
        assert made.word == "holds" and comparison(made).shown() == shown and not comparison(made).marks
    assert word("a > b", scores, untuned=["b"]) == "not tested"


def test_a_trend_is_undone_by_a_row_at_its_bad_end():
    scores, sizes = {"a": CLEAR, "b": row(4.25), "c": WORSE}, {key: {"heads": 2**n} for n, key in enumerate("abc")}
    assert [word("a > b > c by heads", scores, sizes=sizes, untuned=[each]) for each in "abc"] == [
        "holds", "holds", "not tested",
    ]  # fmt: skip


def test_the_middle_row_of_a_trend_at_equal_ratios_has_no_weight():
    scores, sizes = {"a": CLEAR, "b": row(4.25), "c": WORSE}, {"a": {"h": 96}, "b": {"h": 48}, "c": {"h": 24}}
    assert word("a > b > c by h", scores, sizes=sizes, untuned=["b"], late_gain={"b": 0.9}) == "holds"


def test_a_small_difference_of_the_claimed_sign_holds():
    scores = {"a": CLEAR, "b": {seed: value + 0.05 for seed, value in CLEAR.items()}}
    assert word("a > b", scores) == "holds"
    assert word("b > a", scores) == "no difference", "on the other side, but wholly within the margin"
    assert word("a ~ b", scores) == "holds"


def test_sameness_is_reversed_beyond_the_margin_only():
    assert word("a ~ b", {"a": CLEAR, "b": WORSE}) == "reversed"
    assert word("b >~ a", {"a": CLEAR, "b": WORSE}) == "reversed"
    assert word("a >~ b", {"a": CLEAR, "b": WORSE}) == "holds"
    at_margin = {"a": CLEAR, "b": row(4.1, turn=4)}
    assert word("a ~ b", at_margin) == "not resolved"
    assert word("a ~ b", {"a": CLEAR, "b": NOISY}) == "not resolved", "not significant is not equal"


@given(
    st.lists(st.integers(-100, 100).map(lambda hundredths: hundredths / 100), min_size=4, max_size=12),
    st.floats(0.01, 0.5),
    st.sampled_from([">", ">~", "~"]),
    st.sampled_from([-1, 1]),
    st.booleans(),
)
# the mean lies outside of the margin, and the interval across its edge
@example([-0.03, 0.01, -0.02, -0.01], 0.01, "~", -1, True)
@settings(max_examples=200)
def test_a_word_is_what_the_interval_shows(values, margin, relation, sense, planned):
    differences = dict(enumerate(values))
    made = Compared("", "", relation, differences, sense, margin, evidence=Planned() if planned else Anytime())
    bounds = made.interval or (-math.inf, math.inf)
    low, high = sorted(sense * bound for bound in bounds)
    # where a bound lies on an edge, rounding decides
    assume(all(abs(bound - edge) > 1e-6 for bound in (low, high) for edge in (-margin, 0.0, margin)))
    inside = -margin < low and high < margin
    shown = {
        ">": {"holds": low > 0, "no difference": inside, "reversed": high < 0},
        ">~": {"holds": low > -margin, "reversed": high < -margin},
        "~": {"holds": inside, "reversed": low > margin or high < -margin},
    }[relation]
    assert made.word() == next((word for word, is_so in shown.items() if is_so), "not resolved")


@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_few_seeds_never_resolve(seeds):
    few = {name: {seed: values[seed] for seed in range(seeds)} for name, values in {"a": CLEAR, "b": WORSE}.items()}
    made = verdict("a > b", few)
    assert made.word == "not resolved" and comparison(made).interval is None
    assert ("give 4 seeds or more" if seeds == 1 else "too few seeds for an interval") in made.why


def test_how_many_seeds_are_needed_is_what_then_decides():
    scores = {"a": CLEAR, "b": row(4.05, 3.0, turn=3)}
    made = comparison(verdict("a > b", scores))
    needed = made.seeds_needed(0.05)
    assert needed > len(SEEDS)
    random = np.random.default_rng(0)
    noise = random.normal(size=needed)
    noise = (noise - noise.mean()) / noise.std(ddof=1)
    deviation = np.std(made.values, ddof=1)
    for count, expected in ((needed, "holds"), (needed - 1, "not resolved")):
        part = noise[:count]
        part = (part - part.mean()) / part.std(ddof=1)
        grown = Compared("", "", ">", dict(enumerate(made.mean + deviation * part)), -1, 0.1)
        assert grown.word() == expected


def test_seeds_that_only_one_row_has_count_for_nothing():
    made = verdict("a > b", {"a": CLEAR, "b": {2: 4.5, 70: 4.5}})
    assert comparison(made).differences == pytest.approx({2: CLEAR[2] - 4.5})
    made = verdict("a > b", {"a": CLEAR, "b": {70: 4.5}})
    assert made.word == "not resolved" and "no seed has all the rows" in made.why


def test_a_claim_takes_the_worst_of_its_comparisons():
    scores = {"a": CLEAR, "b": WORSE, "c": NOISY, "d": SAME}
    for parts, expected in (
        (["a > b"], "holds"),
        (["a > b", "a > c"], "not resolved"),
        (["a > b", "a > d"], "no difference"),
        (["a > b", "a > d", "b > a"], "reversed"),
    ):
        assert verdicts({"C": parts}, scores)[0].word == expected, parts


def test_a_chain_needs_every_step():
    scores = {"a": CLEAR, "b": WORSE, "c": row(5.0, turn=2)}
    assert word("a > b > c", scores) == "holds"
    assert word("a > c > b", scores) == "reversed"


def test_a_trend_is_one_comparison_of_a_fitted_line():
    sizes = {f"h{heads}": {"h": heads} for heads in (6, 12, 24, 48)}
    # over x = 0, 1, 2, 3 the slope of 4, 4.3, 4.2, 4.5 is (-1.5 * 4 - 0.5 * 4.3 + 0.5 * 4.2 + 1.5 * 4.5) / 5 = 0.14
    means = {"h6": 4.0, "h12": 4.3, "h24": 4.2, "h48": 4.5}
    scores = {name: row(mean, turn=turn) for turn, (name, mean) in enumerate(means.items())}
    made = verdict("h6 > h12 > h24 > h48 by h", scores, sizes=sizes)
    noise = np.mean([value - means[name] for name, of_row in scores.items() for value in of_row.values()])
    assert comparison(made).mean == pytest.approx(-3 * 0.14, abs=5 * abs(noise) + 1e-3)
    assert made.word == "holds", "although 24 heads are better than 12"
    assert [step.word() for step in comparison(made).steps] == ["holds", "reversed", "holds"]
    assert word("h6 > h12 > h24 > h48", scores, sizes=sizes) == "reversed", "as a chain"
    assert word("h48 > h24 > h12 > h6 by h", scores, sizes=sizes) == "reversed"


def test_the_margin_of_a_trend_is_for_all_of_its_sizes_and_that_of_its_steps_is_not():
    budget = BUDGET.model_copy(update={"trend_margin": Margin(value=0.5, reason="by hand")})
    sizes = {f"h{heads}": {"h": heads} for heads in (6, 12, 24)}
    scores = {"h6": CLEAR, "h12": row(4.15, turn=1), "h24": row(4.3, turn=2)}
    (trend,) = verdict("h24 > h12 > h6 by h", scores, budget=budget, sizes=sizes).findings[""].comparisons
    assert (trend.margin, [step.margin for step in trend.steps]) == (0.5, [0.1, 0.1])
    # 0.3 lies within 0.5, and beyond 0.1
    assert trend.word() == "no difference" and word("h24 > h6", scores, budget=budget) == "reversed"
    assert word("h24 > h12 > h6 by h", scores, sizes=sizes) == "reversed"


def test_a_trend_needs_one_size_of_each_side():
    sizes = {"a": {"h": 6}, "b": {"h": 12}, "c": {"h": 12}}
    scores = {"a": CLEAR, "b": WORSE, "c": NOISY}
    with pytest.raises(Mistake, match="differ in h"):
        verdict("a > b - a by h", scores, sizes=sizes)
    with pytest.raises(Mistake, match="do not differ in h"):
        verdict("b > c by h", scores, sizes=sizes)
    with pytest.raises(Mistake, match="the first and the last side do not differ in h"):
        verdict("b > a > c by h", scores, sizes=sizes)
    with pytest.raises(Mistake, match="the row a has no size d_k"):
        verdict("a > b by d_k", scores, sizes=sizes)


def test_a_trend_of_gaps_may_be_between_rows_whose_sizes_are_in_a_fixed_proportion():
    sizes = {"a": {"h": 3}, "wide_a": {"h": 48}, "b": {"h": 6}, "wide_b": {"h": 96}}
    scores = {"a": CLEAR, "wide_a": row(4.2, turn=1), "b": row(4.0, turn=2), "wide_b": row(4.6, turn=3)}
    made = verdict("a - wide_a > b - wide_b by h", scores, sizes=sizes)
    # -0.2 - (-0.4 - 0.2)
    assert comparison(made).mean == pytest.approx(0.4, abs=0.02) and made.word == "reversed"
    with pytest.raises(Mistake, match="differ in h, not in the same proportion"):
        verdict("a - wide_a > b - wide_b by h", scores, sizes=sizes | {"wide_b": {"h": 48}})


def test_rows_that_the_budget_lacks_are_left_out_and_said():
    made = verdict("a > b > c", {"a": CLEAR, "c": WORSE})
    assert made.word == "holds" and made.left_out == ["b"]
    none = verdict("b > c", {"a": CLEAR})
    assert none.word == "not tested" and "rows of none" in none.why


def test_a_claim_most_of_whose_comparisons_are_missing_may_fail_but_not_hold():
    scores = {"a": CLEAR, "b": WORSE}
    made = verdicts({"C": ["a > b", "a > c", "a > d"]}, scores)[0]
    assert made.word == "not tested" and made.why == "this budget has the rows of 1 of its 3 comparisons"
    assert verdicts({"C": ["a > b", "a > c"]}, scores)[0].word == "holds"
    assert verdicts({"C": ["b > a", "a > c", "a > d"]}, scores)[0].word == "reversed"
    noisy = verdicts({"C": ["a > b", "a > c", "a > d"]}, {"a": CLEAR, "b": row(4.5, 60.0, turn=2)})[0]
    assert noisy.word == "not resolved" and not noisy.findings[""].outlook.can_decide
    assert noisy.why.endswith(f"stay the same: {made.why}")


def beside(t: float) -> dict[str, dict[int, float]]:
    """Scores of a and b whose paired differences have this t statistic, in favour of a."""
    standard = (np.array(NOISE) - np.mean(NOISE)) / np.std(NOISE, ddof=1)
    differences = 0.01 * (standard + t / np.sqrt(len(NOISE)))
    return {"a": CLEAR, "b": {seed: CLEAR[seed] + float(differences[seed]) for seed in SEEDS}}


NARROW = BUDGET.model_copy(update={"margin": Margin(value=1e-4, reason="by hand")})


def test_holm_keeps_a_lone_weak_claim_from_holding_beside_others():
    # with eight pairs an interval is 4.2 standard errors wide
    scores = beside(4.5) | {f"n{turn}": row(4.02 + 0.01 * turn, 20.0, turn=turn) for turn in range(1, 9)}
    assert word("a > b", scores, budget=NARROW) == "holds"
    claims = {"C": ["a > b"]} | {f"D{turn}": [f"a > n{turn}"] for turn in range(1, 9)}
    made = verdicts(claims, scores, budget=NARROW)[0]
    assert made.word == "not resolved"
    assert comparison(made).word() == "holds" and "holds only without Holm's correction" in made.why


def test_a_claim_without_rows_takes_no_share_of_the_allowed_error():
    scores = beside(4.5)
    claims = {"C": ["a > b"]} | {f"D{number}": [f"a > missing{number}"] for number in range(8)}
    assert verdicts(claims, scores, budget=NARROW)[0].word == "holds"


def test_claims_that_were_not_chosen_take_their_share_of_the_allowed_error_unless_the_seeds_were_planned():
    claims = {"C": Claim(says="it is so", origin="paper", of="score", parts=["a > b"])}

    def words(t, evidence):
        scores = beside(t)
        measures = {"": Measures(scores, {}, {}, {})}
        return [decide(claims, NARROW, scores, measures, evidence, unchosen)[0].word for unchosen in (0, 8)]

    assert words(4.5, Anytime()) == ["holds", "not resolved"]
    # a plan is for its claims alone
    assert words(3.0, Planned()) == ["holds", "holds"]


def test_a_side_may_be_a_number():
    assert word("a > 4.3", {"a": CLEAR}) == "holds" and word("4.3 > a", {"a": CLEAR}) == "reversed"
    assert word("a > 3.7", {"a": CLEAR}) == "reversed" and word("a ~ 4.02", {"a": CLEAR}) == "holds"


def test_a_planned_number_of_seeds_decides_sooner():
    # beyond 2.4 standard errors, Student's quantile of seven degrees of freedom, and short of 4.2
    assert word("a > b", beside(3.0), budget=NARROW) == "not resolved"
    assert word("a > b", beside(3.0), budget=NARROW, evidence=Planned()) == "holds"
    assert word("a > b", beside(2.2), budget=NARROW, evidence=Planned()) == "not resolved"


def test_a_verdict_stands_under_every_scheme_of_positions_or_depends_on_them():
    better, worse = {"a": CLEAR, "b": WORSE}, {"a": WORSE, "b": CLEAR}
    assert word("a > b", {"one": better, "two": better}) == "holds"
    assert word("a > b", {"one": better, "two": worse}) == "depends"
    assert word("a > b", {"one": better, "two": {"a": CLEAR, "b": SAME}}) == "depends"
    open_one = verdict("a > b", {"one": better, "two": {"a": CLEAR, "b": NOISY}})
    assert open_one.word == "not resolved" and open_one.why.startswith("two: ")
    assert "more than these 8 would decide the claim under two positions if means" in open_one.why


# claims with the words that are wrong if all rows are equal
CLAIMS_OF_EQUAL_ROWS = {
    "one": (["a > b"], {"holds", "reversed"}),
    "several": (["a > b", "b > c"], {"holds", "reversed"}),
    "trend": (["a > b > c by h"], {"holds", "reversed"}),
    "gap": (["a - b > c - d"], {"holds", "reversed"}),
    "same": (["a ~ c"], {"reversed", "no difference"}),
    "as good": (["c >~ a"], {"reversed", "no difference"}),
}


@pytest.mark.parametrize(
    ("tables", "looks"), [(12, (4, 6, 8, 10)), pytest.param(60, range(4, 17), marks=pytest.mark.campaign)]
)
def test_equal_rows_are_seldom_told_apart_by_any_claim_under_any_scheme_after_any_seed(tables, looks):
    claims = {key: parts for key, (parts, _) in CLAIMS_OF_EQUAL_ROWS.items()}
    sizes = {row: {"h": heads} for row, heads in zip("abcd", (4, 8, 16, 32), strict=True)}

    def is_wrong(scores: list[list[list[float]]], count: int) -> bool:
        seen = {
            scheme: {row: dict(enumerate(of_row[:count])) for row, of_row in zip("abcd", of_scheme, strict=True)}
            for scheme, of_scheme in zip("xy", scores, strict=True)
        }
        made = verdicts(claims, seen, budget=NARROW, sizes=sizes)
        words = {(each.key, finding.word) for each in made for finding in each.findings.values()}
        return any(word in CLAIMS_OF_EQUAL_ROWS[key][1] for key, word in words)

    alarms = 0
    for table in range(tables):
        scores = np.random.default_rng(table).normal(4.0, 0.1, (2, 4, max(looks))).tolist()
        alarms += any(is_wrong(scores, count) for count in looks)
    # two of the twelve tables would have a wrong verdict by Student's t, and so they would without Holm's correction
    assert alarms / tables <= max(ALPHA, 1 / tables)


def test_a_stuck_row_decides_nothing():
    scores = {"a": CLEAR, "b": WORSE}
    stuck = {"b": {"plateau": "ended less than 0.5 nats below unigram_loss with 8 of 8 seeds"}}
    made = verdict("a > b", scores, stuck=stuck)
    assert made.word == "not tested" and "b ended less than 0.5 nats" in made.why
    assert word("a > b", scores, stuck=stuck, of_failure=True) == "holds", "a claim that training fails"
    assert word("a >~ b", scores, stuck=stuck, of_failure=True) == "not tested", "as good as what fails"
    assert word("a + 0.25 > b", scores, stuck=stuck, of_failure=True) == "holds", "by at least a quarter"
    assert word("a + 0.75 > b", scores, stuck=stuck, of_failure=True) == "reversed"


def test_a_row_that_still_learns_decides_only_what_is_larger():
    scores = {"a": CLEAR, "b": WORSE}  # they differ by 0.5
    assert word("a > b", scores, late_gain={"a": 0.3, "b": 0.49}) == "holds"
    made = verdict("a > b", scores, late_gain={"a": 0.3, "b": 0.51})
    assert made.word == "not tested" and "b still gained 0.51 in the last tenth of the training" in made.why
    # a difference that is the same or not worse decides by its distance from the margin of 0.1
    same = {"a": CLEAR, "b": SAME}
    assert word("a ~ b", same, late_gain={"a": 0.09}) == "holds"
    assert word("a ~ b", same, late_gain={"a": 0.11}) == "not tested"
    assert word("b >~ a", scores, late_gain={"a": 0.39}) == "reversed"
    assert word("b >~ a", scores, late_gain={"a": 0.41}) == "not tested"


def test_a_row_that_still_learns_may_decide_one_outcome_and_not_another():
    scores = {"a": row(4.0, 0.5), "b": row(4.03, 0.5, turn=1)}
    assert comparison(verdict("a > b", scores)).shown() == ["holds", "no difference"]
    for gain, expected in ((0.02, "holds"), (0.04, "no difference"), (0.08, "not tested")):
        assert word("a > b", scores, late_gain={"a": gain}) == expected


def test_rows_that_still_learn_may_together_undo_what_none_of_them_could():
    scores = {"a": row(4.0, 0.5), "b": row(4.5, turn=1), "c": row(4.0, 0.5), "d": row(4.3, turn=1)}
    sentence = "a - b > c - d"  # by 0.2
    for rows, expected in (("bc", "not tested"), ("ab", "holds"), ("ad", "holds"), ("b", "holds")):
        assert word(sentence, scores, late_gain=dict.fromkeys(rows, 0.15)) == expected, rows
    why = verdict(sentence, scores, late_gain={"b": 0.15, "c": 0.06}).why
    assert (
        "the rows b and c still gained 0.06 or more in the last tenth of the training, together no less than the dif"
        in why
    )
    # to be the same, a difference may not move either way
    same = {"a": SAME, "b": SAME, "c": SAME, "d": SAME}
    for rows, expected in (("ad", "not tested"), ("bc", "not tested"), ("ac", "holds")):
        assert word("a - b ~ c - d", same, late_gain=dict.fromkeys(rows, 0.06)) == expected, rows


def test_what_a_row_that_still_learns_will_not_decide_is_foreseen():
    scores = {"a": CLEAR, "b": NOISY}
    made = verdict("a > b", scores, late_gain={"b": 0.5})
    assert made.word == "not resolved" and not made.findings[""].outlook.can_decide
    assert "more seeds would not decide the claim" in made.why and "b still gained 0.5" in made.why


def test_step_times_are_compared_by_their_ratio_whatever_the_positions():
    times = {"a": {turn: 2.0 + 0.01 * NOISE[turn] for turn in SEEDS}, "b": dict.fromkeys(SEEDS, 1.0)}
    made = verdict("a > b", {"one": {"a": {}, "b": {}}, "two": {"a": {}, "b": {}}}, of="step_time", step_time=times)
    assert made.word == "holds" and list(made.findings) == [""]
    assert comparison(made).mean == pytest.approx(np.log(2), abs=1e-3)


@pytest.mark.parametrize(("log_ratio", "expected"), [(0.019, "holds"), (0.021, "reversed")])
def test_step_times_are_as_long_if_they_differ_by_less_than_a_fiftieth(log_ratio, expected):
    times = {"a": {turn: math.exp(log_ratio + 0.001 * NOISE[turn]) for turn in SEEDS}, "b": dict.fromkeys(SEEDS, 1.0)}
    assert word("a ~ b", {"a": {}, "b": {}}, of="step_time", step_time=times) == expected


def test_a_ratio_of_step_times_that_is_not_resolved_needs_more_rounds():
    times = {"a": {turn: math.exp(value) for turn, value in NOISY.items()}, "b": dict.fromkeys(SEEDS, math.exp(3.8))}
    made = verdict("a > b", {"a": {}, "b": {}}, of="step_time", step_time=times)
    assert made.word == "not resolved"
    assert re.search(r"; about \d+ rounds more than these \d+ would decide the claim if means", made.why)


def test_parameters_are_counted_not_measured():
    parameters = {"a": {0: 172}, "b": {0: 100}, "c": {0: 100}}
    sizes = {"a": {"h_k": 6, "h": 6, "layers": 1}}
    for sentence, expected in (
        ("a - b = 2 * layers * h_k * h", "holds"),
        ("a - b = 71", "reversed"),
        ("a > b", "holds"),
        ("b > a", "reversed"),
        ("b > c", "reversed"),
    ):
        made = verdict(sentence, {"a": {}, "b": {}, "c": {}}, of="parameters", parameters=parameters, sizes=sizes)
        assert made.word == expected, sentence
        assert comparison(made).interval is None, "nothing is uncertain"
