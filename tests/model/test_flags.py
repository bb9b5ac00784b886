"""Every flag of a model's settings acts on what is built, or is refused by name: none is ignored."""

from __future__ import annotations

import copy

import pytest
import torch
from pydantic import ValidationError

from experiments.config.compose import compose
from experiments.config.groups import options
from experiments.failures.failure import Mistake
from experiments.model.build import build
from experiments.model.transformer import Transformer
from experiments.settings.model import Model
from experiments.settings.run import Settings

FLAGS = [name for name, field in Model.model_fields.items() if field.annotation is bool]
SMALL = ["hidden_size=24", "heads=2", "layers=2", "length=16", "model.intermediate_size=20", "backend=reference"]
PAIRS = ["data=pairs", "data.train=pairs.tsv"]
CASES = {f"model={name}": [f"model={name}"] for name in options("model")}
CASES |= {f"objective={name}": [f"objective={name}"] for name in options("objective")}
CASES["objective=translation"] += PAIRS
VOCABULARY = 23


def built(settings: Settings, model: Model) -> Transformer:
    architecture = settings.objective.architecture
    return build(architecture, model, copy.deepcopy(settings.variant), VOCABULARY, 0).double().eval()


def parts(model: Transformer) -> tuple[list[str], dict[str, torch.Size]]:
    tensors = {name: tensor.shape for name, tensor in model.state_dict().items()}
    return [f"{name}: {type(module).__name__}" for name, module in model.named_modules()], tensors


def logits(model: Transformer, architecture: str) -> torch.Tensor:
    tokens = torch.arange(12).reshape(2, 6)
    more = {"decoder_tokens": tokens + 5} if architecture == "encoder_decoder" else {}
    with torch.no_grad():
        return model(tokens, **more)


def acts(settings: Settings, flag: str) -> bool:
    """Whether the model with the other value has other parts, starts with other weights, has other logits with the same
    weights, or is refused.
    """
    plain = built(settings, settings.model)
    try:
        tree = settings.model.model_dump()
        other = built(settings, Model.model_validate(tree | {flag: not tree[flag]}))
    except (ValidationError, Mistake) as error:
        return flag in str(error)
    if parts(plain) != parts(other):
        return True
    starts = zip(plain.parameters(), other.parameters(), strict=True)
    if not all(torch.equal(ours, theirs) for ours, theirs in starts):
        return True
    other.load_state_dict(plain.state_dict())
    architecture = settings.objective.architecture
    return not torch.allclose(logits(plain, architecture), logits(other, architecture), rtol=1e-9)


def test_the_flags_are_found():
    assert {"first_norm", "head_bias", "output_scaled"} <= {*FLAGS}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("norm", [[], ["norm=pre"]])
def test_every_flag_acts_or_is_refused(case, norm):
    settings = compose([*CASES[case], *SMALL, *norm])
    assert [flag for flag in FLAGS if not acts(settings, flag)] == []
