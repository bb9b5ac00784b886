from __future__ import annotations

import pytest

from experiments.failures.failure import Mistake
from experiments.model.build import architecture_of
from experiments.objectives.kinds.causal import Causal


class Skip(Causal):
    architecture = "causal_decodr"


def test_an_objective_whose_architecture_is_not_there_is_named_by_its_file():
    Skip.__module__ = "experiments.objectives.kinds.skip"
    message = "experiments/objectives/kinds/skip.py: architecture = 'causal_decodr': must be one of encoder, .*"
    with pytest.raises(Mistake, match=message + r"did you mean causal_decoder\?"):
        architecture_of(Skip(kind="causal"))
