"""BatchNorm in a run: its running statistics are part of the state from which a run continues."""

from __future__ import annotations

import pytest

from experiments.training.step import learner as learner_module
from tests.fixtures.outcome import tensors_of


@pytest.fixture
def batch(settings):
    return settings(model__norm_kind="batch_masked", trainer__micro_batch=3)


def test_a_resumed_run_has_the_same_running_statistics(batch, ends_alike_when_cut, outcome):
    _, folder = ends_alike_when_cut(batch, 8)
    assert any(name.endswith("running_variance") for _, name in outcome(folder)[1])


def test_a_step_that_is_passed_over_leaves_the_statistics_finite(settings, go, monkeypatch):
    backward, calls = learner_module.backward, []

    def spoiled(forward, batch, index, micro_batch):
        calls.append(index)
        sums = backward(forward, batch, index, micro_batch)
        return sums._replace(smoothed=sums.smoothed * float("nan")) if index == 2 else sums

    monkeypatch.setattr(learner_module, "backward", spoiled)
    result, folder = go(settings(model__norm_kind="batch", trainer__guard="skip"))
    assert result.skipped_steps == 1 and 2 in calls
    for (_, name), tensor in tensors_of(folder).items():
        assert tensor.isfinite().all(), name
