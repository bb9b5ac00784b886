from __future__ import annotations

import pytest

from experiments.failures.failure import Mistake
from experiments.objectives.kinds.translation import Translation
from experiments.training.run_length import planned_steps


@pytest.mark.parametrize(
    ("limits", "steps"),
    [
        ({"max_steps": 7}, 7),
        ({"max_tokens": 8 * 16 * 3}, 3),
        ({"max_tokens": 8 * 16 * 3 + 1}, 4),
        ({"max_steps": 7, "max_tokens": 1}, 1),
        ({"max_steps": 7, "max_minutes": 1.0}, 7),
    ],
)
def test_the_smallest_limit_counts(settings, limits, steps):
    limits = {"max_steps": None} | limits
    assert planned_steps(settings(**{f"trainer__{key}": value for key, value in limits.items()})) == steps


def test_no_limit_is_an_error(settings):
    with pytest.raises(Mistake, match=r"max_steps, trainer\.max_tokens and trainer\.max_minutes"):
        planned_steps(settings(trainer__max_steps=None))


def test_minutes_alone_suit_a_schedule_without_an_end_only(settings):
    limits = {"trainer__max_steps": None, "trainer__max_minutes": 1.0}
    assert planned_steps(settings(**limits, schedule={"kind": "constant", "warmup_steps": 4})) is None
    with pytest.raises(Mistake, match=r"schedule\.kind=linear .*; set max_steps or trainer\.max_tokens too"):
        planned_steps(settings(**limits))


def test_no_limit_is_advised_that_would_be_refused(settings):
    def of_pairs(**limits):
        objective = Translation(kind="translation", beam=1, length_penalty=0.0, bleu_pairs=0)
        return settings(trainer__max_steps=None, **limits).model_copy(update={"objective": objective})

    with pytest.raises(Mistake, match=r"max_steps and trainer\.max_minutes are null"):
        planned_steps(of_pairs())
    with pytest.raises(Mistake, match=r"schedule\.kind=linear .*; set max_steps too"):
        planned_steps(of_pairs(trainer__max_minutes=1.0))


@pytest.mark.parametrize(("epochs", "sequences", "steps"), [(1.1, 500, 55), (1.1, 501, 56), (2.3, 1000, 230)])
def test_epochs_are_counted_as_they_are_written(settings, monkeypatch, epochs, sequences, steps):
    of_epochs = settings(trainer__max_steps=None, trainer__batch_size=10)
    monkeypatch.setattr(type(of_epochs), "epoch_limit", epochs)
    assert planned_steps(of_epochs, sequences) == steps
