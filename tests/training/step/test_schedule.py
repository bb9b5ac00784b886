from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.settings.schedule import Decay, Endless
from experiments.training.step.schedule import learning_rate


def schedule(kind, warmup_steps=0, final=0.0):
    if kind in ("inverse_sqrt", "constant"):
        return Endless(kind=kind, warmup_steps=warmup_steps)
    return Decay(kind=kind, warmup_steps=warmup_steps, final=final)


def rates(schedule, planned, peak=1.0):
    return [learning_rate(step, planned, peak, schedule) for step in range(1, planned + 1)]


def test_linear_by_hand():
    # 4 steps of warm-up, then down in 1 / (8 + 1 - 4) = 1/5 steps; step 9, which isn't run, would have 0
    assert rates(schedule("linear", 4), 8) == pytest.approx([0.25, 0.5, 0.75, 1.0, 0.8, 0.6, 0.4, 0.2])


def test_linear_towards_a_share_of_the_peak():
    assert rates(schedule("linear", 1, 0.5), 4, peak=2.0) == pytest.approx([2.0, 1.75, 1.5, 1.25])


def test_cosine_by_hand():
    # progress 1/4, 1/2, 3/4 of half a cosine
    half = math.sqrt(0.5) / 2
    assert rates(schedule("cosine", 1), 4) == pytest.approx([1.0, 0.5 + half, 0.5, 0.5 - half])


def test_inverse_sqrt_by_hand():
    assert rates(schedule("inverse_sqrt", 4), 16)[3::12] == pytest.approx([1.0, 0.5])
    assert learning_rate(100, None, 1.0, schedule("inverse_sqrt")) == pytest.approx(0.1)


def test_constant_needs_no_end():
    assert learning_rate(1, None, 0.3, schedule("constant", 2)) == pytest.approx(0.15)
    assert learning_rate(10**9, None, 0.3, schedule("constant", 2)) == 0.3


def test_a_warmup_longer_than_the_run():
    assert rates(schedule("linear", 60), 2) == pytest.approx([1 / 60, 2 / 60])


@given(
    kind=st.sampled_from(["linear", "cosine"]),
    warmup=st.integers(0, 30),
    planned=st.integers(1, 60),
    final=st.floats(0, 1),
)
def test_rises_then_falls_and_never_wastes_a_step(kind, warmup, planned, final):
    values = rates(schedule(kind, warmup, final), planned)
    top = min(warmup, planned)
    assert values[:top] == sorted(values[:top])
    assert values[max(top - 1, 0) :] == sorted(values[max(top - 1, 0) :], reverse=True)
    assert all(0 < value <= 1 for value in values)
