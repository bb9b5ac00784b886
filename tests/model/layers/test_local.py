"""Local layers: what a token may reach, and the limits in which they are layers that attend to all."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from torch.testing import assert_close

from experiments.failures.failure import Mistake
from experiments.model.architectures import encoder_decoder, two_stream_encoder
from experiments.model.layers.local import Local
from tests.model.conftest import small_model


@pytest.mark.parametrize("padded", [False, True])
def test_a_window_over_the_whole_text_is_attention_to_all(bert_of, tokens, padded):
    mask = (torch.arange(7) < torch.tensor([7, 4, 2])[:, None]) if padded else None
    everywhere = bert_of(layers=3)(tokens, mask=mask)
    assert_close(bert_of(layers=3, local_window=6, global_every=2)(tokens, mask=mask), everywhere)
    assert_close(bert_of(layers=3, local_window=1, global_every=1)(tokens, mask=mask), everywhere)


@pytest.mark.parametrize(("window", "narrows"), [(5, True), (6, False)])
def test_a_window_over_the_whole_text_is_no_mask(window, narrows):
    """A mask would keep linear attention from its sums, and mixed heads from the kernel of a GPU."""
    local = Local(small_model(local_window=window, global_every=2))
    context = local.context(1, torch.zeros(1, 7, 12), {"mask": None})
    assert (context["mask"] is not None) == narrows


def test_what_reaches_a_token_is_as_far_as_the_windows(bert_of, tokens):
    """The first of two layers attends to all tokens, so the window is tested by changing the input of the second."""
    model = bert_of(layers=2, local_window=2, global_every=2)
    stream = torch.randn(1, 7, 12, generator=torch.Generator().manual_seed(0)).double().requires_grad_()
    last = model.encoder.layers[1]
    context = model.encoder.local.context(1, stream, {"mask": None, "rotary": model.rotary})
    last(stream, **context)[0, 3].sum().backward()
    assert (stream.grad[0].abs().sum(-1) > 0).tolist() == [False, True, True, True, True, True, False]


def test_the_base_of_local_layers_is_their_own(bert_of, tokens):
    plain, other = (
        bert_of(local_window=6, global_every=2),
        bert_of(local_window=6, global_every=2, local_rotary_base=10.0),
    )
    assert not torch.allclose(plain(tokens), other(tokens))
    assert_close(bert_of(local_rotary_base=10.0)(tokens), bert_of()(tokens))


def test_the_first_attention_may_have_no_norm(bert_of, tokens):
    plain, model = bert_of(), bert_of(first_norm=False)
    norm = "encoder.layers.0.attention_residual.norm"
    assert plain.state_dict().keys() - model.state_dict().keys() == {f"{norm}.weight", f"{norm}.bias"}
    assert model(tokens).shape == (3, 7, 23)
    with pytest.raises(ValidationError, match="first_norm false: needs norm=pre"):
        small_model(first_norm=False, norm="post")


def test_models_without_local_layers_refuse_them(variant_of):
    model = small_model(local_window=2)
    for kind in (two_stream_encoder.Architecture, encoder_decoder.Architecture):
        with pytest.raises(Mistake, match=r"model\.local_window=2"):
            kind(model, variant_of(model, "multi_head", 3, 4, 4) | {"backend": "auto"}, 23)
