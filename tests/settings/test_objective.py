from __future__ import annotations

from types import SimpleNamespace

import pytest

from experiments.failures.failure import Mistake
from experiments.objectives.kinds.causal import Causal
from experiments.objectives.objective import build_objective
from experiments.settings.objective import architecture_of
from experiments.settings.run import OBJECTIVE_KINDS


class Skip(Causal):
    architecture = "causal_decodr"


def test_an_objective_whose_architecture_is_not_there_is_named_by_its_file():
    Skip.__module__ = "experiments.objectives.kinds.skip"
    message = "experiments/objectives/kinds/skip.py: architecture = 'causal_decodr': must be one of causal_decoder, .*"
    with pytest.raises(Mistake, match=message + r"did you mean causal_decoder\?"):
        architecture_of(Skip)


def test_an_objective_that_lacks_what_training_asks_for_is_named_by_its_file():
    class Silent(Causal):
        def build(self, vocabulary):
            return SimpleNamespace(vocabulary=vocabulary, lengths_vary=False, batch=None)

    said = r"types\.py: the class SimpleNamespace lacks evaluation_seed and predicted_share$"
    with pytest.raises(Mistake, match=said):
        build_objective(Silent(kind="causal"), None)


@pytest.mark.parametrize("kind", OBJECTIVE_KINDS)
def test_every_objective_names_an_architecture_and_settings_of_its_own(kind):
    settings = OBJECTIVE_KINDS[kind]
    assert architecture_of(settings) == settings.architecture
    assert settings.model_fields.keys() >= {*settings.generation_keys}
