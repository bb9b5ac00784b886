"""Vaswani's Transformer: ours with the weights of torch.nn.Transformer."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from experiments.config.compose import compose
from experiments.model.build import build

VOCABULARY, SIZE, HEADS = 23, 12, 3


@pytest.fixture
def ours():
    words = ["model=transformer_nano", f"hidden_size={SIZE}", f"heads={HEADS}", "length=16"]
    settings = compose([*words, "model.initial_std=0.3", "model.dropout=0"])
    model = build("encoder_decoder", settings.model, settings.variant, VOCABULARY, 0).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # norms and biases start as ones and zeros, which would hide a mix-up
            parameter.add_(
                0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
            )
    return model


def take(theirs: nn.MultiheadAttention, attention) -> None:
    """Give torch's attention our weights."""
    maps = (attention.query, attention.key, attention.value)
    theirs.in_proj_weight.copy_(torch.cat([linear.weight for linear in maps]))
    theirs.in_proj_bias.copy_(torch.cat([linear.bias for linear in maps]))
    theirs.out_proj.load_state_dict(attention.output.state_dict())


@pytest.fixture
def theirs(ours):
    """torch's layers by themselves: nn.Transformer adds a norm after each stack, which the paper has not."""
    sizes = {"d_model": SIZE, "nhead": HEADS, "dim_feedforward": 4 * SIZE, "dropout": 0.0, "layer_norm_eps": 1e-6}
    kinds = {"batch_first": True, "dtype": torch.float64}
    encoder = [nn.TransformerEncoderLayer(**sizes, **kinds) for _ in ours.encoder.layers]
    decoder = [nn.TransformerDecoderLayer(**sizes, **kinds) for _ in ours.decoder.layers]
    with torch.no_grad():
        for layer, own in zip([*encoder, *decoder], ours.layers, strict=True):
            take(layer.self_attn, own.attention)
            layer.linear1.load_state_dict(own.feed_forward.inner.state_dict())
            layer.linear2.load_state_dict(own.feed_forward.outer.state_dict())
            residuals = [own.attention_residual, own.feed_forward_residual]
            if layer in decoder:
                take(layer.multihead_attn, own.cross_attention)
                residuals.insert(1, own.cross_attention_residual)
            for number, residual in enumerate(residuals, 1):
                getattr(layer, f"norm{number}").load_state_dict(residual.norm.state_dict())
    return [layer.eval() for layer in encoder], [layer.eval() for layer in decoder]


def embedded(weight, tokens):
    """Embeddings times sqrt(D), and the sinusoids of the paper's 3.5, an entry at a time."""
    positions = [
        [(math.cos if i % 2 else math.sin)(place / 10000 ** ((i - i % 2) / SIZE)) for i in range(SIZE)]
        for place in range(tokens.shape[1])
    ]
    return F.embedding(tokens, weight) * math.sqrt(SIZE) + torch.tensor(positions, dtype=torch.float64)


def test_logits_of_torchs_transformer(ours, theirs):
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(VOCABULARY, (3, 9), generator=generator)
    decoder_tokens = torch.randint(VOCABULARY, (3, 6), generator=generator)
    mask = torch.arange(9) < torch.tensor([9, 5, 1])[:, None]
    encoder, decoder = theirs
    weight = ours.embedding.token.weight
    later = torch.ones(6, 6, dtype=torch.bool).triu(1)
    with torch.no_grad():
        memory, x = embedded(weight, tokens), embedded(weight, decoder_tokens)
        for layer in encoder:
            memory = layer(memory, src_key_padding_mask=~mask)
        for layer in decoder:
            x = layer(x, memory, tgt_mask=later, memory_key_padding_mask=~mask)
        # tied: the output embedding is the input embedding
        # the buffer of sinusoids was made in float32
        assert_close(ours(tokens, decoder_tokens, mask=mask), x @ weight.T, rtol=1e-5, atol=1e-5)
