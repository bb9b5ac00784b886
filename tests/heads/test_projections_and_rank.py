"""Talking heads' projections and the rank of logits, on matrices worked by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from experiments.heads.hooks import has_stages, read_stages
from experiments.heads.measures.projections import (
    distance_from_identity,
    effective_partners,
    off_diagonal_share,
    random_off_diagonal,
    static_projections,
)
from experiments.heads.measures.rank import divergence_by_rank, effective_rank, numerical_rank
from experiments.heads.options import HeadsOptions
from experiments.heads.sections import distances, projections, rank, roles, syntax


def test_the_identity_is_at_distance_zero_and_has_one_partner():
    eye = torch.eye(3)
    assert (distance_from_identity(eye), off_diagonal_share(eye), effective_partners(eye)) == (0, 0, 1)
    assert distance_from_identity(2 * eye) == pytest.approx(1) and off_diagonal_share(2 * eye) == 0


def test_a_full_matrix():
    full = torch.tensor([[1.0, -1.0], [1.0, 1.0]])
    assert (
        distance_from_identity(full) == pytest.approx(1)
        and off_diagonal_share(full) == 0.5
        and effective_partners(full) == 2
    )
    assert distance_from_identity(torch.ones(2, 3)) is None and off_diagonal_share(torch.ones(2, 3)) == pytest.approx(
        2 / 3
    )


def test_the_projections_of_a_model(bert_of):
    both = static_projections(bert_of("talking_heads"))
    assert [list(named) for named in both] == [["P_l", "P_w", "P_l P_w"]] * 2
    torch.testing.assert_close(both[0]["P_l P_w"], both[0]["P_l"] @ both[0]["P_w"])
    assert [list(named) for named in static_projections(bert_of("logits_only"))] == [["P_l"]] * 2
    assert static_projections(bert_of("multi_head")) == [{}, {}]


@pytest.mark.parametrize("heads", [3, 4, 24])
@pytest.mark.parametrize(("mixing", "said"), [(1.0, "neither diagonal nor sparse"), (0.01, "nearly diagonal")])
def test_whether_heads_mix_is_said_for_any_number_of_heads(bert_of, monkeypatch, heads, mixing, said):
    noise = torch.randn(heads, heads, generator=torch.Generator().manual_seed(0))
    layer = {"P_l": torch.eye(heads) + mixing * (noise - torch.eye(heads))}
    monkeypatch.setattr(projections.projections, "static_projections", lambda model: [layer, layer])
    section = projections.make(SimpleNamespace(model=bert_of("talking_heads")), HeadsOptions())
    assert said in section.text


@pytest.mark.parametrize("shape", [(3, 3), (2, 6), (6, 2)])
def test_random_matrices_are_off_the_diagonal_as_expected(shape):
    matrices = torch.randn(4000, *shape, generator=torch.Generator().manual_seed(0))
    found = sum(map(off_diagonal_share, matrices)) / len(matrices)
    assert found == pytest.approx(random_off_diagonal(matrices[0]), abs=0.01)


def test_what_is_said_of_projections_depends_on_their_own_numbers_of_heads(bert_of, monkeypatch):
    model, lines = SimpleNamespace(model=bert_of("talking_heads")), []
    monkeypatch.setattr(projections.figures, "projection_distances", lambda curves, chance: lines.append(chance))
    monkeypatch.setattr(projections.figures, "titled", lambda figure, title: figure)

    def said(**layer: torch.Tensor) -> str:
        monkeypatch.setattr(projections.projections, "static_projections", lambda model: [layer, layer])
        return projections.make(model, HeadsOptions()).text

    assert "(79% in a random matrix), and a head effectively talks to 5.0 of 4 or 6 heads" in said(
        P_l=torch.ones(2, 4), P_w=torch.ones(4, 6)
    )
    assert "(83% in a random matrix), and a head effectively talks to 4.0 of 2 or 6 heads" in said(
        P_l=torch.ones(2, 6), P_w=torch.ones(6, 2)
    )
    assert lines == [None, pytest.approx(5 / 6)]
    # each of three heads talks to one other
    assert "nearly diagonal or sparse" in said(P_l=torch.eye(3).roll(1, 0))
    assert "neither diagonal nor sparse" in said(P_l=torch.ones(2, 2))


def test_ranks():
    maps = torch.stack(
        [torch.eye(4), torch.ones(4, 4), torch.zeros(4, 4), torch.tensor([3.0, 1, 0, 0]).diag()]
    ).double()
    assert numerical_rank(maps).tolist() == [4, 1, 0, 2]
    two = math.exp(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))
    assert effective_rank(maps).tolist() == pytest.approx([4, 1, 0, two])


def test_the_rank_of_logits_is_the_key_size_until_they_mix(bert_of, batch):
    for variant, mixed in (("multi_head", 2), ("talking_heads", 6)):
        for layer in read_stages(bert_of(variant, key_size=2), batch.tokens, "logits", "mixed_logits"):
            assert numerical_rank(layer["logits"]).eq(2).all()
            assert numerical_rank(layer["mixed_logits"]).eq(mixed).all()


@pytest.mark.parametrize(("variant", "is_product"), [("multi_head", True), ("additive", False), ("multi_token", False)])
def test_only_products_have_a_rank_before_mixing(bert_of, trained_run_of, variant, is_product):
    section = rank.make(trained_run_of(bert_of(variant, key_size=2).float()), HeadsOptions())
    assert ("logits" in {row["stage"] for row in section.tables["rank"]}) == is_product
    assert ("2.0 for QK^T" in section.text) == is_product == ("are not QK^T" not in section.text)
    legend = [text.get_text() for text in section.figures["rank"].axes[0].get_legend().get_texts()]
    assert legend == (["for QK^T"] if is_product else ["before the softmax"])


@pytest.mark.parametrize(
    ("variant", "position", "found"),
    [
        ("multi_head", "rotary", "2.0 for QK^T."),
        ("multi_head", "alibi", "2.0 for QK^T and 8.0 before the softmax, after the bias of the positions."),
        ("weights_only", "relative", "2.0 for QK^T and 8.0 before the softmax, after the bias of the positions."),
        ("talking_heads", "rotary", "2.0 for QK^T and 6.0 before the softmax, after P_l."),
        ("talking_heads", "alibi", "2.0 for QK^T and 8.0 before the softmax, after P_l and the bias of the positions."),
    ],
)
def test_what_raises_the_rank_is_said(bert_of, trained_run_of, variant, position, found):
    run = trained_run_of(bert_of(variant, key_size=2, position=position).float(), position)
    section = rank.make(run, HeadsOptions())
    assert f"the mean numerical rank is {found}" in section.text
    assert ("mixed_logits" in {row["stage"] for row in section.tables["rank"]}) == ("softmax, " in found)


def test_logits_of_a_rank_are_matched_at_that_rank():
    left, right = torch.randn(2, 6, 2).double(), torch.randn(2, 2, 6).double()
    shift = torch.randn(2, 6, 1).double()
    found = divergence_by_rank(left @ right + shift, [0, 1, 2, 6], torch.ones(6, 6, dtype=torch.bool))
    assert found[1:].diff(dim=0).le(1e-12).all() and found[2:].abs().max() < 1e-12 < found[1].min()
    # rank 0: all positions alike, so that the divergence is ln M less the entropy
    weights = (left @ right).softmax(-1)
    expected = math.log(6) + torch.xlogy(weights, weights).sum(-1).mean(-1)
    torch.testing.assert_close(found[0], expected)


@pytest.mark.parametrize(("variant", "changes"), [("sliding_window", {}), ("multi_head", {"local_window": 2})])
def test_the_true_weights_are_those_that_a_window_allows(bert_of, trained_run_of, variant, changes):
    model = bert_of(variant, **changes, global_every=2)
    for attention in model.attentions:
        attention.window = 1
    run = trained_run_of(model.float())
    found = [row["divergence"] for row in rank.make(run, HeadsOptions()).tables["matching"] if row["rank"] == 1]
    stages = read_stages(model.double(), next(run.token_batches()), "mixed_logits", "weights")
    assert any((layer["weights"] == 0).any() for layer in stages)
    for divergence, layer in zip(found, stages, strict=True):
        weights, logits = layer["weights"], layer["mixed_logits"]
        left, values, right = torch.linalg.svd(logits - logits.mean(-1, keepdim=True))
        nearest = left[..., :1] * values[..., None, :1] @ right[..., :1, :]
        nearest = nearest.masked_fill(weights == 0, -math.inf).softmax(-1)
        expected = (torch.xlogy(weights, weights) - torch.xlogy(weights, nearest)).sum(-1).mean()
        assert divergence == pytest.approx(expected.item())


def test_a_variant_without_a_softmax_has_no_section_about_its_weights(bert_of, trained_run_of):
    run = trained_run_of(bert_of("sigmoid").float())
    assert has_stages(run.model, "mixed_weights", "outputs") and not has_stages(run.model, "logits", "weights")
    for section in (roles, syntax, distances, rank):
        assert section.make(run, HeadsOptions()) is None
