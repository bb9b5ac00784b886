"""Wrong inputs of a model that is used as a library are answered in a line that names them."""

from __future__ import annotations

import copy

import pytest
import torch

from experiments.failures.failure import Mistake
from experiments.model.build import build
from experiments.model.check_inputs import check_inputs_of
from tests.model.conftest import VOCABULARY, resolved_variant, small_model

B, N = 2, 5


def checked(architecture: str = "encoder", **changes):
    changes = {"position": "learned", "token_types": 2} | changes
    model = small_model(**changes)
    made = build(architecture, model, resolved_variant(model, "multi_head", 3, 4, 4), VOCABULARY, 0).eval()
    check_inputs_of(made)
    return made


def ids(*shape: int) -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel()).reshape(shape) % VOCABULARY


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"tokens": ids(N)}, r"tokens: has shape \[5\], must be \[B, N\]"),
        ({"tokens": [[1, 2]]}, "tokens: is a list, must be a tensor"),
        ({"tokens": ids(B, N).float()}, "tokens: has dtype torch.float32, must be torch.int64 or torch.int32"),
        ({"tokens": ids(B, N) + VOCABULARY}, "tokens: contains 32, must be at least 0 and under 23"),
        ({"tokens": ids(B, N) - 1}, "tokens: contains -1, must be at least 0 and under 23"),
        ({"tokens": ids(B, N).to("meta")}, "tokens: is on meta, must be on cpu as the model is"),
        ({"tokens": ids(B, 17)}, "a sequence of 17 tokens is longer than model.length=16, the position table"),
        (
            {"tokens": ids(B, N), "mask": torch.ones(B, 1, 1, N, dtype=torch.bool)},
            r"mask: has shape \[2, 1, 1, 5\], must be \[2, 5\] \(B, N\)",
        ),
        ({"tokens": ids(B, N), "mask": torch.ones(B, N)}, "mask: has dtype torch.float32, must be torch.bool"),
        ({"tokens": ids(B, N), "token_types": ids(B, N)}, "token_types: contains 9, must be at least 0 and under 2"),
        ({"tokens": ids(B, N), "positions": torch.tensor([10])}, "positions: contains 10, .* under 10"),
        ({"tokens": ids(B, N), "positions": ids(1, 1)}, r"positions: has shape \[1, 1\], must be \[P\]"),
    ],
)
def test_inputs_that_do_not_fit_are_named(inputs, said):
    with pytest.raises(Mistake, match=said):
        checked()(**inputs)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"decoder_tokens": ids(3, 4)}, r"decoder_tokens: has shape \[3, 4\], must be \[2, M\] \(B, M\)"),
        ({"decoder_tokens": ids(B, 4) + VOCABULARY}, "decoder_tokens: contains 30, must be at least 0 and under 23"),
        ({"decoder_tokens": ids(B, 4), "positions": torch.tensor([8])}, "positions: contains 8, .* under 8"),
    ],
)
def test_both_sides_of_an_encoder_decoder_are_checked(inputs, said):
    with pytest.raises(Mistake, match=said):
        checked("encoder_decoder", token_types=0)(ids(B, N), **inputs)


def test_inputs_that_fit_give_what_they_gave_before():
    model = checked()
    plain = build("encoder", small_model(position="learned", token_types=2),
                  resolved_variant(small_model(), "multi_head", 3, 4, 4), VOCABULARY, 0).eval()  # fmt: skip
    inputs = {"mask": ids(B, N) != 4, "token_types": ids(B, N) % 2, "positions": torch.tensor([0, 9])}
    assert torch.equal(model(ids(B, N), **inputs), plain(ids(B, N), **inputs))
    assert torch.equal(model(ids(B, N).int()), plain(ids(B, N)))
    assert model.state_dict().keys() == plain.state_dict().keys()
    with pytest.raises(Mistake, match="tokens: has shape"):
        copy.deepcopy(model)(ids(N))


def test_an_argument_that_no_model_has_is_pythons_matter():
    with pytest.raises(TypeError, match="attention_mask"):
        checked()(ids(B, N), attention_mask=ids(B, N))


def test_an_argument_that_is_missing_is_pythons_matter_too():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'tokens'"):
        checked("encoder_decoder", token_types=0)(decoder_tokens=ids(B, 4))


def test_a_compiled_model_does_without_the_check(monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with pytest.raises(IndexError):
        checked()(ids(B, N) + VOCABULARY)
