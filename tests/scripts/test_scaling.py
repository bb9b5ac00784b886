"""scripts/scaling.py: what a second process gains."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

from experiments.config.compose import compose
from experiments.tasks.choose import task_of
from experiments.training.step.world import ALONE

SCRIPT = Path(__file__).parents[2] / "scripts" / "scaling.py"


def test_the_gradients_that_are_summed_are_those_of_the_model(tiny):
    settings = compose(tiny)
    seconds, sums, parameters = runpy.run_path(str(SCRIPT))["measure"](settings, ALONE, SimpleNamespace(seconds=0.0))
    assert seconds > 0 and sums == 0
    vocabulary = task_of(settings).prepare(lambda *_: None).tokenizer.vocabulary_size
    assert parameters == task_of(settings).build_model(vocabulary).parameter_counts()["total"]
