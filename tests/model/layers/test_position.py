from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from experiments.model.layers.position import Alibi, RelativeBias, bucket, sinusoids, slopes
from experiments.settings.position import POSITION_KINDS
from experiments.settings.run import READ_WITH_POSITIONS


@pytest.mark.parametrize("kind", POSITION_KINDS)
def test_a_kind_of_positions_depends_on_the_settings_that_it_declares_and_on_no_other_of_them(bert_of, tokens, kind):
    # so that every one of them matters to some kind
    given = {"position": kind, "position_start": "sinusoidal", "local_window": 2}
    changed = {
        "sinusoidal_base": 16.0, "position_start": "normal", "rotary_base": 16.0, "local_rotary_base": 16.0,
        "relative_buckets": 4, "relative_distance": 64,
    }  # fmt: skip
    assert {f"model.{key}" for key in changed} == {*READ_WITH_POSITIONS} - {"optimizer.position_rate_factor"}
    before = bert_of(**given)(tokens)
    for key, value in changed.items():
        differs = not torch.equal(bert_of(**(given | {key: value}))(tokens), before)
        assert differs == (f"model.{key}" in POSITION_KINDS[kind].reads), key


def test_sinusoids_by_hand():
    table = sinusoids(3, 4, 10000.0)
    # frequencies 1 and 10000^(-2/4) = 1/100
    expected = [[math.sin(p), math.cos(p), math.sin(p / 100), math.cos(p / 100)] for p in range(3)]
    assert_close(table, torch.tensor(expected))
    fifth = torch.tensor([math.sin(p * 10000 ** (-4 / 5)) for p in range(3)])
    assert_close(sinusoids(3, 5, 10000.0)[:, 4], fifth)
    # frequencies 1 and 64^(-2/4) = 1/8
    assert_close(sinusoids(3, 4, 64.0)[:, 2], torch.tensor([math.sin(p / 8) for p in range(3)]))


def test_sinusoids_of_an_offset_are_a_rotation():
    """PE(p + k) is a linear function of PE(p) (Vaswani et al. 2017, 3.5): inner products depend on the offset only."""
    table = sinusoids(30, 8, 100.0).double()
    products = table @ table.T
    for offset in range(30):
        assert_close(products.diagonal(offset), products[0, offset].expand(30 - offset), rtol=0, atol=1e-6)


@pytest.mark.parametrize("base", [10000.0, 16.0])
def test_sinusoidal_embedding_is_the_scaled_token_plus_the_sinusoid(base, bert_of, tokens):
    embedding = bert_of(position="sinusoidal", sinusoidal_base=base).embedding
    expected = embedding.token.weight[tokens] * math.sqrt(12) + sinusoids(16, 12, base).double()[:7]
    assert_close(embedding(tokens), embedding.norm(expected))


def test_learned_positions_can_start_as_sinusoidal_ones(bert_of, tokens):
    fixed = bert_of(position="sinusoidal", sinusoidal_base=16.0).embedding
    learned = bert_of(position="learned", position_start="sinusoidal", sinusoidal_base=16.0).embedding
    assert learned.position.weight.requires_grad
    # the same up to a factor, which the norm takes away
    assert_close(learned(tokens), fixed(tokens))
    for std, expected in ((0.3, 0.3), (None, 1.0)):
        drawn = bert_of(position="learned", initial_std=std).embedding.position.weight
        assert float(drawn.detach().std()) == pytest.approx(expected, rel=0.2)


def test_buckets_by_hand():
    # 8 buckets: 4 a direction, of which 2 hold one distance each; then [2, 6) and from 6 on, as 2 (16/2)^(1/2) = 5.66
    offset = torch.tensor([0, -1, -2, -5, -6, -16, -400, 1, 2, 5, 6, 16, 400])
    assert bucket(offset, 8, 16).tolist() == [0, 1, 2, 2, 3, 3, 3, 5, 6, 6, 7, 7, 7]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("buckets", "distance"), [(32, 128), (8, 16), (4, 3), (64, 1000)])
def test_buckets_are_those_of_t5(buckets, distance, causal):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    offset = torch.arange(-3 * distance, 3 * distance)
    theirs = t5.T5Attention._relative_position_bucket(
        offset, bidirectional=not causal, num_buckets=buckets, max_distance=distance
    )
    assert bucket(offset, buckets, distance, causal).tolist() == theirs.tolist()


def test_relative_bias_is_the_table_at_the_bucket_of_the_offset():
    bias = RelativeBias(8, 16, heads=3, causal=False, std=1.0)
    logits = bias(5)
    assert logits.shape == (1, 3, 5, 5)
    for query in range(5):
        for memory in range(5):
            row = bias.table.weight[bucket(torch.tensor(memory - query), 8, 16)]
            assert_close(logits[0, :, query, memory], row)


def test_layers_share_one_relative_table(bert_of):
    bert = bert_of(position="relative", heads=5, layers=3)
    tables = [parameter.shape for name, parameter in bert.named_parameters() if "relative" in name]
    assert tables == [(8, 5)]


@pytest.mark.parametrize(
    ("heads", "powers"), [(1, [8]), (4, [2, 4, 6, 8]), (8, range(1, 9)), (6, [2, 4, 6, 8, 1, 3]), (3, [4, 8, 2])]
)
def test_slopes_of_alibi_by_hand(heads, powers):
    assert slopes(heads) == [2.0**-power for power in powers]


def test_alibi_is_the_distance_times_the_slope():
    bias = Alibi(2)(4)
    assert bias.shape == (1, 2, 4, 4) and not list(Alibi(2).parameters())
    assert_close(bias[0, 0, 1], -torch.tensor([1.0, 0.0, 1.0, 2.0]) / 16)
    assert_close(bias[0, 1], bias[0, 0] / 16)
