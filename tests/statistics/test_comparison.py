"""Claims of several comparisons: their level is the smallest at which they are decided."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from experiments.statistics.comparison import Compared, Mark, Relation, claim_p_value, claim_seeds, claim_word
from experiments.statistics.evidence import ALPHA, MOST_SEEDS, Anytime, Planned, mean_and_deviation

NOISE = (0.05, -0.04, 0.02, -0.05, 0.01, 0.01, 0.03, -0.03)
RELATIONS: tuple[Relation, ...] = (">", ">~", "~")


def compared(mean: float, relation: Relation = ">", scale: float = 1.0) -> Compared:
    """Differences around a mean, of which a negative one is claimed."""
    return Compared("", "", relation, {seed: mean + scale * each for seed, each in enumerate(NOISE)}, -1, 0.1)


@given(
    st.lists(
        st.builds(compared, st.floats(-0.4, 0.4), st.sampled_from(RELATIONS), st.sampled_from([0.1, 0.3, 1.0, 4.0])),
        min_size=1, max_size=3,
    )
)  # fmt: skip
def test_a_claim_is_decided_from_its_p_value_up_to_alpha(comparisons):
    level = claim_p_value(comparisons)
    assume(1e-12 < level < ALPHA)
    assert claim_word(comparisons, level * (1 - 1e-9)) == "not resolved"
    for part in (1e-9, 0.01, 0.1, 0.5, 1.0):
        assert claim_word(comparisons, level * (1 + 1e-9) + part * (ALPHA - level)) != "not resolved"


def test_the_p_value_of_a_claim_by_hand():
    holds, reversed = compared(-0.3), compared(0.3)
    (to_hold,), (to_reverse,) = ([each.p_values()[word]] for each, word in ((holds, "holds"), (reversed, "reversed")))
    assert claim_p_value([holds]) == pytest.approx(to_hold) and claim_p_value([reversed]) == pytest.approx(to_reverse)
    assert claim_p_value([holds, compared(-0.25)]) == pytest.approx(compared(-0.25).p_values()["holds"]), "the largest"
    assert claim_p_value([reversed, holds, holds]) == pytest.approx(3 * to_reverse), "one of three contradicts"
    assert claim_p_value([]) == 1.0


def test_a_claim_holds_if_all_its_comparisons_hold_however_small_one_is():
    """A small difference with a sign also lies within the margin, which the significance level divided by two shows."""
    small, clear = compared(-0.04, scale=0.7), compared(-0.3)
    p_values = small.p_values()
    assert p_values["no difference"] < 0.01 < 0.025 < p_values["holds"] < 0.05
    assert small.shown() == ["holds", "no difference"] and clear.shown() == ["holds"]
    assert claim_word([small, clear], 0.05) == "holds"
    # where Holm's correction leaves less, the sign does not decide, but it still contradicts "no difference"
    assert claim_word([small, clear], 0.025) == claim_word([small], 0.025) == "not resolved"


def test_a_small_difference_that_holds_leaves_a_claim_to_its_other_comparisons():
    small, unclear = compared(-0.03, scale=0.1), compared(-0.1, scale=4.0)
    assert max(small.p_values()[word] for word in ("holds", "no difference")) < 1e-4
    assert claim_word([small, unclear], 0.05) == "not resolved"
    assert claim_p_value([small, unclear]) == unclear.p_values()["holds"] > 0.05
    assert claim_seeds([small, unclear], 0.05) == unclear.seeds_needed(0.05) > len(NOISE)


def test_a_small_difference_contradicts_its_claim_only_before_its_sign_is_shown():
    small, signed = (replace(compared(mean, scale=0.3), evidence=Planned()) for mean in (-0.006, -0.012))
    assert max(each.p_values()["no difference"] for each in (small, signed)) < 1e-3
    assert small.word() == "no difference" and signed.word() == "holds"
    unclear, wrong = compared(-0.1, scale=4.0), compared(0.3)
    assert claim_word([small], 0.05) == claim_word([small, unclear], 0.05) == "no difference"
    assert claim_p_value([small, unclear]) == pytest.approx(2 * small.p_values()["no difference"])
    assert claim_word([signed], 0.05) == "holds" and claim_word([signed, unclear], 0.05) == "not resolved"
    assert claim_p_value([signed]) == signed.p_values()["holds"] > 10 * signed.p_values()["no difference"]
    assert claim_word([small, wrong], 0.05) == claim_word([signed, wrong], 0.05) == "reversed", "the worst of them"


def test_a_small_difference_of_the_wrong_sign_is_none():
    """It is not reversed, although its interval excludes 0, because the interval lies within the margin."""
    small = compared(0.03, scale=0.1)
    assert max(small.p_values()[word] for word in ("reversed", "no difference")) < 1e-4
    assert claim_word([small], 0.05) == "no difference"


def test_a_marked_comparison_neither_holds_nor_contradicts_and_another_may_contradict_the_claim():
    holds, reversed = compared(-0.3), compared(0.3)
    cannot_hold, cannot_contradict = (replace(each, marks=[Mark("h8", "untuned", "")]) for each in (holds, reversed))
    for untested in ([holds, cannot_hold], [holds, cannot_contradict], [cannot_contradict]):
        assert claim_word(untested, 0.05) == "not tested" and claim_p_value(untested) == 1.0
    contradicted = [reversed, cannot_hold]
    assert claim_word(contradicted, 0.05) == "reversed"
    assert claim_p_value(contradicted) == pytest.approx(2 * reversed.p_values()["reversed"])


def test_a_claim_holds_with_the_seeds_of_its_slowest_comparison_and_fails_with_those_of_one():
    quick, slow, never = compared(-0.3), compared(-0.15, scale=4.0), compared(0.1, "~")
    assert len(NOISE) < claim_seeds([quick, slow], 0.05) == slow.seeds_needed(0.05)
    wrong = compared(0.3, scale=4.0)
    assert claim_seeds([quick, slow, wrong], 0.05) == wrong.seeds_needed(0.05 / 3) < slow.seeds_needed(0.05)
    assert claim_seeds([quick, never], 0.05) is None and claim_seeds([], 0.05) is None


def test_the_seeds_of_a_claim_are_the_fewest_also_where_more_would_leave_it_open_again():
    """17 to 32 seeds show no difference in the first comparison, which then holds; from 160 on both hold."""
    deviation = mean_and_deviation(NOISE)[1]
    pair = [replace(compared(-0.004, scale=each / deviation), margin=0.01) for each in (0.006, 0.02)]
    assert claim_seeds(pair, 0.05) == 17 and pair[1].seeds_needed(0.05) > 100


def test_the_seeds_of_a_claim_count_those_that_a_comparison_already_has():
    """The longer one has enough seeds, so the claim waits for the shorter one alone."""
    short, long = (compared(-0.2, scale=scale) for scale in (6.0, 10.0))
    long = replace(long, differences=dict(enumerate(long.values * 5)))
    assert long.word() == "holds" and long.p_values_with(short.seeds_needed())["holds"] > 0.05
    assert claim_seeds([short, long], 0.05) == short.seeds_needed()


def test_what_needs_more_than_a_thousand_seeds_is_not_foreseen():
    assert compared(-0.05, scale=11.6).seeds_needed() == 995 and compared(-0.05, scale=11.7).seeds_needed() is None


def test_seeds_that_are_added_are_no_planned_ones():
    slow = compared(-0.15, scale=4.0)
    planned = replace(slow, evidence=Planned())
    assert planned.seeds_needed(0.05) < slow.seeds_needed(0.05) == claim_seeds([planned], 0.05)


@pytest.mark.parametrize("evidence", [Anytime(), Planned()])
@given(
    st.floats(-0.3, 0.3), st.sampled_from(RELATIONS), st.sampled_from([0.01, 0.3, 1.0]), st.sampled_from([0.05, 1e-4])
)  # fmt: skip
@settings(max_examples=20, deadline=None)
def test_the_seeds_needed_are_the_fewest_that_resolve_it(evidence, mean, relation, scale, level):
    of = replace(compared(mean, relation, scale), evidence=evidence)
    found = mean_and_deviation(of.values)
    resolves = (min(of._p_values(count, *found).values()) <= level for count in range(len(NOISE), MOST_SEEDS + 1))
    assert of.seeds_needed(level) == next((len(NOISE) + more for more, yes in enumerate(resolves) if yes), None)
