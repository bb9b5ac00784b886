"""Verdicts on numbers that are known: never from a sign, never from one seed."""

from __future__ import annotations

import pytest

from experiments.tables.definition.table import Budget, Claim
from experiments.tables.verdicts.verdict import Measures, decide

BUDGET = Budget(task="a task", seeds=3, overrides="", margin=0.1)
HIGHER = BUDGET.model_copy(update={"better": "higher"})
CLEAR = {0: 4.00, 1: 4.01, 2: 4.02}
WORSE = {0: 4.50, 1: 4.52, 2: 4.51}
NOISY = {0: 4.1, 1: 3.8, 2: 4.4}


def verdicts(
    parts: dict[str, list[str]], scores: dict[str, dict[int, float]], budget: Budget = BUDGET, of="score", **more
):
    claims = {key: Claim(says="it is so", of=of, parts=sentences) for key, sentences in parts.items()}
    times = more.get("step_time", {})
    measures = Measures(scores, times, more.get("parameters", {}), more.get("sizes", {}))
    return decide(claims, budget, scores or times or more["parameters"], measures)


def word(sentence: str, scores, **more) -> str:
    return verdicts({"C": [sentence]}, scores, **more)[0].word


def test_a_clear_difference_holds_one_way_and_fails_the_other():
    scores = {"a": CLEAR, "b": WORSE}
    assert word("a > b", scores) == "holds"
    assert word("b > a", scores) == "fails"
    assert word("b > a", scores, budget=HIGHER) == "holds", "of a score that is to be high"


def test_the_right_sign_is_not_enough():
    (verdict,) = verdicts({"C": ["a > b"]}, {"a": NOISY, "b": {0: 4.2, 1: 4.1, 2: 4.45}})
    assert verdict.parts[0].mean < 0
    assert verdict.word == "not resolved"
    assert "seeds would resolve it" in verdict.why


def test_how_many_more_seeds_by_hand():
    # differences 0.1 and 0.3: mean / deviation is sqrt(2), so t = sqrt(2 n) after n seeds. Its 97.5% points are 3.18 of
    # 4 seeds (t = 2.83) and 2.78 of 5 (t = 3.16); its 98.75% points, for one of two claims, 3.50 of 5 and 3.16 of 6
    scores = {"a": {0: 4.0, 1: 4.0}, "b": {0: 4.1, 1: 4.3}}
    (alone,) = verdicts({"C": ["a > b"]}, scores)
    assert alone.word == "not resolved" and "about 5 seeds would resolve it, 3 more" in alone.why
    beside, _ = verdicts({"C": ["a > b"], "D": ["b > a"]}, scores)
    assert "about 6 seeds would resolve it, 4 more" in beside.why
    # a mean of 0 is no nearer to either side however many seeds there are
    (never,) = verdicts({"C": ["a > b"]}, {"a": {0: 4.0, 1: 4.0}, "b": {0: 4.1, 1: 3.9}})
    assert "no number of seeds" in never.why


def test_one_seed_never_resolves():
    (verdict,) = verdicts({"C": ["a > b"]}, {"a": {0: 1.0}, "b": {0: 9.0}})
    assert verdict.word == "not resolved" and "one seed" in verdict.why
    assert word("a ~ b", {"a": {0: 1.0}, "b": {0: 1.0}}) == "not resolved"


def test_seeds_that_only_one_row_has_count_for_nothing():
    (verdict,) = verdicts({"C": ["a > b"]}, {"a": CLEAR, "b": {2: 4.5, 7: 4.5}})
    assert verdict.parts[0].differences == pytest.approx({2: -0.48})
    (verdict,) = verdicts({"C": ["a > b"]}, {"a": CLEAR, "b": {7: 4.5}})
    assert verdict.word == "not resolved" and "no seed has all the rows" in verdict.why


def test_a_claim_of_several_parts_holds_only_if_all_do():
    scores = {"a": CLEAR, "b": WORSE, "c": NOISY}
    assert word("a > b", scores) == "holds"
    assert verdicts({"C": ["a > b", "a > c"]}, scores)[0].word == "not resolved"
    assert verdicts({"C": ["a > b", "b > a"]}, scores)[0].word == "fails"


def test_not_significant_is_not_equal():
    assert word("a ~ c", {"a": CLEAR, "c": NOISY}) == "not resolved"
    same = {seed: value + 0.003 * seed for seed, value in CLEAR.items()}
    assert word("a ~ b", {"a": CLEAR, "b": same}) == "holds"
    assert word("a ~ b", {"a": CLEAR, "b": WORSE}) == "fails"


def test_as_good_as_asks_nothing_of_the_better_side():
    # the margin is 0.1 and the score a loss; CLEAR is 0.5 below WORSE, and `near` 0.05 above CLEAR
    near = {seed: value + 0.05 + 0.001 * seed for seed, value in CLEAR.items()}
    scores = {"a": CLEAR, "b": WORSE, "near": near}
    assert word("a >~ b", scores) == "holds", "better by more than the margin"
    assert word("near >~ a", scores) == "holds", "worse, by less than the margin"
    assert word("b >~ a", scores) == "fails"
    assert word("b >~ a", scores, budget=HIGHER) == "holds"
    (verdict,) = verdicts({"C": ["near >~ a"]}, scores)
    assert verdict.parts[0].sentence == "validation_loss: near < a + 0.1"
    # b is worse by 0 and 0.12: mean 0.06, 0.04 from the margin, deviation 0.085; by hand t = 0.04 sqrt(n) / 0.085
    # passes its 97.5% points at 20 seeds (2.108 > 2.093) and not at 19 (2.054 < 2.101)
    (verdict,) = verdicts({"C": ["b >~ a"]}, {"a": {0: 4.0, 1: 4.0}, "b": {0: 4.0, 1: 4.12}})
    assert verdict.word == "not resolved" and "about 20 seeds would resolve it" in verdict.why


def test_gaps_are_compared_by_their_pairs():
    scores = {"m1": CLEAR, "t1": {0: 3.9, 1: 3.92, 2: 3.91}, "m2": WORSE, "t2": {0: 4.0, 1: 4.01, 2: 4.02}}
    (verdict,) = verdicts({"C": ["t2 - m2 > t1 - m1"]}, scores)
    assert verdict.parts[0].differences[0] == pytest.approx((4.0 - 4.5) - (3.9 - 4.0))
    assert verdict.word == "holds"


def test_holm_asks_more_of_a_claim_beside_others():
    # resolved by itself, not as one of 41
    scores = {"a": {0: 1.0, 1: 2.0, 2: 3.0}, "b": {0: 4.5, 1: 6.0, 2: 7.9}, "c": NOISY, "d": CLEAR}
    alone = verdicts({"C": ["a > b"]}, scores)[0]
    assert alone.word == "holds" and 0.002 < alone.p < 0.05
    crowd = verdicts({f"C{index}": ["c > d"] for index in range(40)} | {"C": ["a > b"]}, scores)[-1]
    assert crowd.word == "not resolved" and crowd.p == alone.p
    assert "beside the table's other claims" in crowd.why


def test_a_budget_without_the_rows_decides_nothing_and_costs_the_others_nothing():
    first, second = verdicts({"C1": ["a > b"], "C2": ["x > y"]}, {"a": CLEAR, "b": WORSE})
    assert first.word == "holds" and first.adjusted == first.p
    assert second.word == "not resolved" and second.left_out == ["x > y"]


def test_step_times_are_compared_as_ratios():
    times = {"a": {0: 1.0, 1: 1.1, 2: 1.05}, "b": {0: 1.5, 1: 1.66, 2: 1.58}}
    (verdict,) = verdicts({"X": ["b > a"]}, {}, of="step_time", step_time=times)
    assert verdict.word == "holds"
    assert verdict.parts[0].differences[0] == pytest.approx(0.405465, abs=1e-6)  # ln 1.5


def test_parameters_are_exact():
    counts = {"a": {0: 100.0}, "b": {0: 172.0}}
    sizes = {"b": {"layers": 1, "h": 6}, "a": {"layers": 1, "h": 6}}
    given = {"of": "parameters", "parameters": counts, "sizes": sizes}
    assert word("b - a = layers * 2 * h * h", {}, **given) == "holds"
    assert word("b - a = layers * h * h", {}, **given) == "fails"
