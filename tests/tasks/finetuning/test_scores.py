from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from experiments.tasks.finetuning.scores import score

# 4 true positives, 1 false positive, 2 false negatives, 3 true negatives
TRUE = np.array([1, 1, 1, 1, 0, 1, 1, 0, 0, 0])
TOLD = np.array([1, 1, 1, 1, 1, 0, 0, 0, 0, 0])


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("accuracy", 70.0),
        ("f1", 100 * 8 / 11),  # 2 TP / (2 TP + FP + FN)
        ("matthews", (4 * 3 - 1 * 2) / math.sqrt(5 * 6 * 4 * 5)),
    ],
)
def test_labels_by_hand(metric, expected):
    assert score(metric, TOLD, TRUE) == pytest.approx(expected)


def test_numbers_by_hand():
    true, told = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 4.0, 9.0, 16.0])
    # covariance 25/2, variances 5 and 129, each times 4 / 4
    assert score("pearson", told, true) == pytest.approx(25 / math.sqrt(5 * 129))
    assert score("spearman", told, true) == pytest.approx(1.0)
    # ranks 1 2 4 3 against 1 2 3 4: 1 - 6 * 2 / (4 * 15)
    assert score("spearman", np.array([0.1, 0.2, 0.9, 0.5]), true) == pytest.approx(0.8)


def test_pearson_s_correlation_of_single_precision_is_computed_in_double():
    chance = np.random.default_rng(0)
    true = (5 * chance.random(1500)).astype(np.float32)
    told = (true + chance.normal(size=1500)).astype(np.float32)
    in_double = np.corrcoef(told.astype(np.float64), true.astype(np.float64))[0, 1]
    assert score("pearson", told, true) == pytest.approx(in_double, rel=1e-12)


@pytest.mark.parametrize("metric", ["pearson", "spearman"])
def test_a_correlation_is_the_same_to_the_last_digit_however_its_sums_are_split(metric):
    """Sums of floats depend on their order unless they are exact, and threads change the order."""
    chance = np.random.default_rng(0)
    true = chance.normal(size=4000)
    told = true + chance.normal(size=4000)
    orders = (chance.permutation(4000) for _ in range(8))
    assert len({score(metric, told[order], true[order]) for order in orders}) == 1
    by_scipy = {"pearson": pearsonr, "spearman": spearmanr}[metric](told, true).statistic
    assert score(metric, told, true) == pytest.approx(by_scipy, rel=1e-12)


@pytest.mark.parametrize("metric", ["f1", "matthews", "pearson", "spearman"])
def test_where_it_is_not_defined_it_is_nought(metric):
    assert score(metric, np.zeros(4), np.array([1.0, 0.0, 1.0, 0.0])) == 0.0
