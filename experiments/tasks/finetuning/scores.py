"""The scores of a task with labels or numbers, by scikit-learn, scipy and the standard library."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.integer] | npt.NDArray[np.floating]


def score(metric: str, predicted: Values, true: Values) -> float:
    """The score, in percent where the field gives percent (accuracy, F1), else from -1 to 1; 0 where not defined."""
    value = METRICS[metric](predicted, true)
    return 0.0 if math.isnan(value) else value


def accuracy(predicted: Values, true: Values) -> float:
    """Percentage of predictions that are right."""
    return 100.0 * float(np.mean(predicted == true))


def f1(predicted: Values, true: Values) -> float:
    """F1 of the label with number 1, in percent."""
    from sklearn.metrics import f1_score

    return 100.0 * float(f1_score(true, predicted, zero_division=0.0))


def matthews(predicted: Values, true: Values) -> float:
    """Matthews correlation of any number of labels, -1 to 1; 0 where all predictions, or all labels, are the same."""
    from sklearn.metrics import matthews_corrcoef

    return float(matthews_corrcoef(true, predicted))


def pearson(predicted: Values, true: Values) -> float:
    """Pearson's correlation, -1 to 1; nan where one side is constant.

    Its sums are exact. Those of numpy and scipy depend on the number of threads.
    """
    if not _vary(predicted, true):
        return math.nan
    return statistics.correlation(predicted.astype(np.float64).tolist(), true.astype(np.float64).tolist())


def spearman(predicted: Values, true: Values) -> float:
    """Spearman's rank correlation, -1 to 1; nan where one side is constant."""
    from scipy.stats import rankdata

    return pearson(rankdata(predicted), rankdata(true))


def _vary(*values: Values) -> bool:
    return all(np.ptp(each) > 0 for each in values)


METRICS: dict[str, Callable[[Values, Values], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
}
