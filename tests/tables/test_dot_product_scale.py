"""Random dot products: what is known of them in closed form."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from experiments.tables.numerical.dot_product_scale import measure


def numbers(scale: str, key_size: int, seed: int = 0, queries: int = 64, memory: int = 64) -> dict[str, float]:
    return measure(seed=seed, scale=scale, key_size=key_size, queries=queries, memory=memory)


@pytest.mark.parametrize("key_size", [8, 128])
def test_the_variance_is_the_key_size_and_the_division_takes_it_away(key_size):
    plain, divided = (
        [numbers(scale, key_size, seed)["variance"] for seed in range(20)] for scale in ("none", "divided")
    )
    assert np.mean(plain) == pytest.approx(key_size, rel=0.1)
    assert np.multiply(divided, key_size) == pytest.approx(plain)


def test_a_smaller_start_is_the_division():
    assert numbers("smaller_start", 32) == pytest.approx(numbers("divided", 32))


def test_saturation_and_gradient_are_those_of_torchs_softmax():
    # the same draws as `measure` makes
    query, key = (torch.from_numpy(np.random.default_rng([3, part]).normal(size=(5, 7 - part))) for part in (0, 1))
    logits = query.T @ key
    entropy = torch.distributions.Categorical(logits=logits).entropy()
    jacobians = torch.stack([torch.func.jacrev(lambda row: torch.softmax(row, 0))(row) for row in logits])
    found = measure(seed=3, scale="none", key_size=5, queries=7, memory=6)
    assert found["saturation"] == pytest.approx(1 - float(entropy.mean()) / np.log(6))
    assert found["gradient"] == pytest.approx(float(torch.linalg.matrix_norm(jacobians).mean()))


def test_logits_far_apart_overflow_nothing():
    found = numbers("none", 10_000)
    assert 0.9 < found["saturation"] <= 1 and np.isfinite(found["gradient"])
