"""A tied output embedding: what docs/concepts.md says of its logits at the start."""

from __future__ import annotations

import math

import pytest
import torch

from experiments.model.build import build
from tests.model.conftest import resolved_variant, small_model

WIDTH, VOCABULARY = 256, 2000


def start(tokens, **changes):
    """The deviation of the logits over the vocabulary, and the logit of the token that stands there, two means."""
    model = small_model(hidden_size=WIDTH, embedding_size=WIDTH, intermediate_size=WIDTH, head_bias=False, **changes)
    decoder = build("causal_decoder", model, resolved_variant(model, "multi_head", 4, 64, 64), VOCABULARY, 0).eval()
    with torch.no_grad():
        logits = decoder(tokens)
    return float(logits.std(-1).mean()), float(logits.gather(-1, tokens[..., None]).mean())


@pytest.fixture
def words():
    """[8, 16], no token twice"""
    return torch.randperm(VOCABULARY, generator=torch.Generator().manual_seed(0))[:128].view(8, 16)


@pytest.mark.parametrize("std", [0.005, 0.02])
def test_the_logits_start_as_far_apart_tied_or_not(words, std):
    """Their deviation is std sqrt(d). If tied, the token that is read has the logit std d, which adds to it."""
    for tied in (True, False):
        deviation, own = start(words, tied=tied, initial_std=std)
        spread = 1 + WIDTH / VOCABULARY if tied else 1
        assert deviation == pytest.approx(std * math.sqrt(WIDTH * spread), rel=0.03)
        # the branches of the layers turn the stream a little away from its embedding
        assert own == pytest.approx(std * WIDTH if tied else 0.0, rel=0.1, abs=deviation)


def test_tied_embeddings_of_deviation_one_start_with_the_token_that_is_read(words):
    """Untied models have an output embedding of deviation 1 / sqrt(d)."""
    tied, own = start(words, tied=True, initial_std=None)
    assert tied == pytest.approx(math.sqrt(WIDTH), rel=0.1) and own > 5 * math.sqrt(WIDTH)
    assert start(words, tied=False, initial_std=None)[0] == pytest.approx(1.0, rel=0.05)
