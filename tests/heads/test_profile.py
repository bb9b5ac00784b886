"""Each quantity on maps worked by hand, and on a model whose heads are known."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon

from experiments.heads.measures.distance import (
    embed_in_plane,
    head_distances,
    jensen_shannon,
    within_and_between,
    within_layers,
)
from experiments.heads.measures.profile import (
    confidence,
    entropy,
    entropy_share,
    is_rarest,
    offset_pointed_to,
    profile_heads,
    weight_at,
    weight_on,
)
from experiments.heads.parts import parts_of
from experiments.heads.sections.distances import trend_with_depth
from experiments.tables.measured import head_distance

# one sequence, two heads, two tokens, the first of them special
WEIGHTS = torch.tensor([[[[0.75, 0.25], [0.5, 0.5]], [[0.0, 1.0], [1.0, 0.0]]]], dtype=torch.float64)
SPECIAL = torch.tensor([[True, False]])


def test_entropy_is_that_of_each_row():
    quarter = 0.25 * math.log(4) + 0.75 * math.log(4 / 3)
    expected = torch.tensor([[[quarter, math.log(2)], [0, 0]]], dtype=torch.float64)
    torch.testing.assert_close(entropy(WEIGHTS), expected)


def test_the_share_of_the_entropy_is_over_the_positions_that_a_query_may_attend_to():
    even = torch.ones(5, 5).tril().double()
    one = torch.eye(5).double()
    share, several = entropy_share(torch.stack([even / even.sum(-1, keepdim=True), one])[None])
    assert several.tolist() == [[[False, True, True, True, True]]]
    torch.testing.assert_close(share[0], torch.tensor([[0.0, 1, 1, 1, 1], 5 * [0.0]]).double())


def test_even_attention_is_broad_in_a_causal_model(known, trained_run_of, monkeypatch):
    monkeypatch.setattr(known, "causal", True)
    uniform = profile_heads(trained_run_of(known), *parts_of(known))[1]
    assert uniform["entropy"] == pytest.approx(sum(map(math.log, range(2, 9))) / 7)
    assert uniform["entropy_share"] == pytest.approx(1) and uniform["role"] == "broad"


def test_confidence_is_the_largest_weight_on_a_token_that_is_not_special():
    assert confidence(WEIGHTS, SPECIAL).tolist() == [[[0.25, 0.5], [1.0, 0.0]]]


def test_the_share_on_special_tokens():
    assert weight_on(WEIGHTS, SPECIAL).tolist() == [[[0.75, 0.5], [0.0, 1.0]]]


def test_the_weight_at_an_offset_is_zero_outside_of_the_sequence():
    assert weight_at(WEIGHTS, -1).tolist() == [[[0.0, 0.5], [0.0, 1.0]]]
    assert weight_at(WEIGHTS, 0).tolist() == [[[0.75, 0.5], [0.0, 0.0]]]
    assert weight_at(WEIGHTS, 1).tolist() == [[[0.25, 0.0], [1.0, 0.0]]]


def test_the_offset_pointed_to():
    assert offset_pointed_to(WEIGHTS).tolist() == [[[0, -1], [1, -1]]]


def test_the_rarest_tokens_are_of_the_smallest_count_and_never_special():
    tokens = torch.tensor([[0, 3, 2, 3, 1], [0, 2, 2, 1, 1]])
    counts, special = torch.tensor([0, 100, 10, 1]), tokens == 0
    assert is_rarest(tokens, special, counts).int().tolist() == [[0, 1, 0, 1, 0], [0, 1, 1, 0, 0]]


def test_the_tokens_of_sources_are_counted_in_sources(bert_of, trained_run_of, monkeypatch):
    run = trained_run_of(bert_of("multi_head"))
    assert all(counts.tolist() == run.dataset.unigram.tolist() for counts in run.token_counts.values())
    monkeypatch.setattr("experiments.training.evaluate.COUNTED", 2)
    # sources of the tokens 5 to 8, of which 8 is rare, and targets of others
    rows = np.array([[5, 5, 6, 7, 9, 9, 9, 9], [5, 6, 6, 7, 9, 9, 9, 9], [5, 7, 8, 5, 9, 9, 9, 9]], dtype=np.uint16)
    pairs = SimpleNamespace(data=SimpleNamespace(holds_pairs=True))
    dataset = run.dataset._replace(train=run.dataset.train._replace(tokens=rows))
    counts = replace(run, settings=pairs, dataset=dataset).token_counts
    assert counts["tokens"][5:10].tolist() == [5, 3, 3, 1, 0] and len(counts["tokens"]) == len(run.dataset.unigram)
    assert counts["decoder_tokens"].tolist() == run.dataset.unigram.tolist()


def test_distances_are_the_jensen_shannon_divergence():
    weights = torch.rand(4, 6, 5, dtype=torch.float64).softmax(-1)
    weights[3] = weights[1]
    found = jensen_shannon(weights)
    for i in range(4):
        for j in range(4):
            rows = [jensenshannon(weights[i, row], weights[j, row]) ** 2 for row in range(6)]
            assert found[i, j].item() == pytest.approx(sum(rows), abs=1e-12)
    disjoint = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    assert jensen_shannon(disjoint)[0, 1].item() == pytest.approx(math.log(2))


def test_distances_are_averaged_over_all_sequences_and_in_the_table_over_the_first(
    bert_of, trained_run_of, monkeypatch
):
    run = trained_run_of(bert_of("multi_head"))
    at_once, _ = head_distances(run)
    # batches of two sequences, of which three queries at a time are compared
    monkeypatch.setattr("experiments.heads.trained_run.TOKENS_AT_ONCE", 16)
    monkeypatch.setattr("experiments.heads.measures.distance.QUERIES_AT_ONCE", 3)
    assert len(list(run.text_batches())) == 3
    assert head_distances(run)[0] == pytest.approx(at_once, abs=1e-12)
    monkeypatch.setattr(head_distance, "TOKENS", 17)
    first, layer_heads = head_distances(replace(run, sequences=2))
    expected = within_and_between(first, np.array([layer for layer, _ in layer_heads]))[0]
    assert head_distance.measure(run, pairs="within")["distance"] == expected
    assert expected != pytest.approx(within_and_between(at_once, np.array([1, 1, 1, 2, 2, 2]))[0])


def test_the_plane_keeps_distances_that_fit_into_it():
    square = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    wanted = torch.cdist(square, square).double()
    points = torch.from_numpy(embed_in_plane(wanted.numpy()))
    torch.testing.assert_close(torch.cdist(points, points), wanted, atol=0.02, rtol=0)


@pytest.mark.filterwarnings("error")
def test_heads_that_are_all_alike_are_one_point_of_the_plane():
    assert not embed_in_plane(np.zeros((3, 3))).any()


def test_the_mean_distance_within_a_layer_leaves_out_the_head_itself():
    distances = torch.tensor([[0.0, 2.0, 9.0], [2.0, 0.0, 9.0], [9.0, 9.0, 0.0]]).double().numpy()
    layers = torch.tensor([1, 1, 2]).numpy()
    assert within_layers(distances, layers) == {1: 2.0}
    assert within_and_between(distances, layers) == (2.0, 9.0)


def test_a_model_whose_heads_are_known(known, trained_run_of):
    run = trained_run_of(known)
    previous, uniform, *twins = profile_heads(run, *parts_of(known))
    assert previous["previous"] > 0.999 and previous["entropy"] < 0.01 and previous["role"] == "positional"
    assert (previous["offset"], previous["offset_share"]) == (-1, 1.0)
    assert previous["special"] == pytest.approx(1 / 7, abs=1e-3)  # only the first of seven has [CLS] before it
    assert uniform["entropy"] == pytest.approx(math.log(8)) and uniform["role"] == "broad"
    assert uniform["special"] == pytest.approx(1 / 8) and uniform["confidence"] == pytest.approx(1 / 8)
    for name in ("entropy", "confidence", "previous", "next", "current", "rarest", "offset", "role"):
        assert twins[0][name] == pytest.approx(twins[1][name])

    distances, layer_heads = head_distances(run)
    assert layer_heads == [(1, 1), (1, 2), (1, 3), (1, 4)]
    assert distances[2, 3] == pytest.approx(0, abs=1e-9) and distances[0, 2] > 0.1
    # between one position and all eight alike
    expected = jensenshannon([1, *7 * [0]], 8 * [1 / 8]) ** 2
    assert distances[0, 1] == pytest.approx(expected, abs=1e-3)


def test_heads_that_attend_alike_have_no_trend():
    assert trend_with_depth({1: 1e-5, 2: 9e-5}, 5e-5, 6e-5).startswith("All heads attend alike")
    falling = {1: 0.3, 2: 0.2, 3: 0.25, 4: 0.1}
    assert "falls with depth, from 0.300 in the first to 0.100 in the last" in trend_with_depth(falling, 0.2, 0.3)
    # two layers always rise or fall
    equal = trend_with_depth(dict.fromkeys(range(1, 5), 0.0), 0.0, 0.3)
    assert "neither falls nor rises with depth, from 0.000" in equal and equal.endswith("depth +0.00).")
    few = trend_with_depth({1: 0.3, 2: 0.1}, 0.2, 0.3)
    assert few.endswith("is 0.300 within the first layer, and 0.100 within the last.") and "correlation" not in few
    assert trend_with_depth({1: 0.3}, 0.3, 0.3) == ""
