"""Importance of heads compared with removing them, and models from which heads are removed."""

from __future__ import annotations

import pytest
import torch

from experiments.config.groups import options
from experiments.failures.failure import Mistake
from experiments.heads import trained_run
from experiments.heads.hooks import gated, hooked, read_stages, value_heads
from experiments.heads.measures import importance
from experiments.heads.measures.importance import (
    by_gradient,
    by_relevance,
    first_predictions,
    head_relevance,
    linearized,
    normalized_by_layer,
    of_run_by_gradient,
)
from experiments.heads.measures.pruning import (
    gates_without,
    loss_with_gates,
    loss_without_each,
    removal_order,
    remove_heads,
)
from experiments.heads.options import HeadsOptions
from experiments.heads.sections import importance as importance_section
from experiments.heads.trained_run import TrainedRun
from experiments.objectives.loss import loss


def test_gradient_importance_is_the_slope_of_each_sequences_loss(bert_of, batch):
    model = bert_of("talking_heads")
    found, step, sequences = by_gradient(model, [batch]), 1e-5, []
    for sequence in range(4):
        mine = batch.positions // 8 == sequence
        sequences.append((batch.tokens[[sequence]], batch.positions[mine] % 8, batch.targets[mine]))
    sequences.append((batch.tokens[[4]], batch.positions[-1:] % 8, batch.targets[-1:]))
    sequences = [each for each in sequences if len(each[1])]
    for layer in range(2):
        for head in range(3):
            slopes = []
            for tokens, positions, targets in sequences:
                losses = []
                for gate in (1 + step, 1 - step):
                    gates = gates_without(model, [])
                    gates[layer][head] = gate
                    with gated(model, gates):
                        losses.append(loss(model(tokens, positions), targets).item())
                slopes.append(abs(losses[0] - losses[1]) / (2 * step))
            assert found[layer][head].item() == pytest.approx(sum(slopes) / len(batch.targets), rel=1e-5)


@pytest.mark.parametrize("score", [by_gradient, by_relevance])
def test_importance_orders_the_heads_as_removing_each_alone_does(bert_of, batch, score):
    model = bert_of("multi_head", layers=1, heads=4)
    size = [3.0, 0.0, 0.05, 0.6]
    with torch.no_grad():
        model.layers[0].attention.output.weight.unflatten(1, (4, 4)).mul_(torch.tensor(size).view(1, 4, 1))
    whole = loss_with_gates(model, [batch], gates_without(model, []))
    harm = [abs(loss_with_gates(model, [batch], gates_without(model, [(0, head)])) - whole) for head in range(4)]
    by_force = sorted(range(4), key=lambda head: harm[head])
    assert [head for _, head in removal_order(score(model, [batch]))] == by_force == [1, 2, 3, 0]


def test_the_l2_norm_of_a_layer_is_one():
    scaled = normalized_by_layer([torch.tensor([3.0, 4.0]), torch.zeros(2)])
    assert scaled[0].tolist() == pytest.approx([0.6, 0.8]) and scaled[1].tolist() == [0, 0]


@pytest.mark.parametrize("norm", ["pre", "post", "sandwich"])
@pytest.mark.parametrize("norm_kind", ["layer", "rms"])
def test_holding_activations_and_norms_changes_no_output(bert_of, batch, norm, norm_kind):
    model = bert_of("multi_head", norm=norm, norm_kind=norm_kind, head_transform=True)
    expected = model(batch.tokens)
    with linearized(model):
        torch.testing.assert_close(model(batch.tokens), expected)
    torch.testing.assert_close(model(batch.tokens), expected)
    assert all("forward" not in module.__dict__ for module in model.modules())


@pytest.mark.parametrize("variant", options("variant"))
def test_relevance_goes_to_the_heads_as_their_share_of_the_logit(bert_of, batch, variant):
    """With everything else fixed, the logit is a linear function of the outputs of the last layer's heads."""
    model = bert_of(variant, norm="pre", linear_bias=False)
    alone = first_predictions(batch)
    relevance = head_relevance(model, alone)
    assert [each.shape for each in relevance] == [(len(alone.positions), 3)] * 2
    # without the feed-forward and with the final norm's scale as it was, the logit is a sum over heads
    layer = model.layers[-1]
    with torch.no_grad():
        layer.feed_forward.outer.weight.zero_()
    relevance = head_relevance(model, alone)[-1]
    top = model(alone.tokens, alone.positions).argmax(-1)
    outputs = read_stages(model, alone.tokens, "outputs")[-1]["outputs"].clone()
    hidden, called = {}, {}
    layer.attention.register_forward_pre_hook(lambda _, *call: called.setdefault("call", call), with_kwargs=True)
    model.encoder.norm.register_forward_pre_hook(lambda _, x: hidden.setdefault("x", x[0]))
    model(alone.tokens, alone.positions)
    arguments, keywords = called["call"]

    @torch.no_grad()
    def embedded(heads):
        """What the layer adds to the stream for these outputs of its heads."""
        layer.attention.hook = lambda stage, tensor: heads if stage == "outputs" else tensor
        return layer.attention(*arguments, **keywords)

    scale = hidden["x"].std(-1, correction=0)
    for head in range(3):
        only = torch.zeros_like(outputs)
        only[:, :, head] = outputs[:, :, head]
        part = embedded(only).flatten(0, 1)[alone.positions]
        part = (part - part.mean(-1, keepdim=True)) / scale[:, None]
        expected = (part * model.embedding.token.weight[top]).sum(-1)
        torch.testing.assert_close(relevance[:, head], expected)


@pytest.mark.parametrize("with_gate", [False, True])
@pytest.mark.parametrize("variant", options("variant"))
def test_relevance_is_conserved(bert_of, batch, variant, with_gate):
    """Without biases, what reaches the embeddings is the logit that is explained."""
    model = bert_of(variant, gated=with_gate, linear_bias=False, head_bias=False, norm_kind="rms")
    alone, embedded = first_predictions(batch), []
    model.embedding.register_forward_hook(lambda _, __, x: embedded.append(x))
    with linearized(model), hooked(model, lambda _, stage, x: x.detach() if stage == "mixed_weights" else x):
        top = model(**alone.inputs, positions=alone.positions).amax(-1)
    (gradient,) = torch.autograd.grad(top.sum(), embedded)
    torch.testing.assert_close((embedded[0] * gradient).sum((1, 2)), top)


def test_shares_of_relevance_sum_to_one_in_a_layer(bert_of, batch):
    for layer in by_relevance(bert_of("talking_heads"), [batch, batch]):
        assert layer.sum().item() == pytest.approx(1) and layer.min() >= 0


def test_one_prediction_a_sequence(batch):
    alone = first_predictions(batch)
    assert alone.positions.tolist() == [1, 8 + 2, 16 + 3, 24 + 1]
    assert alone.targets.tolist() == batch.targets[[0, 2, 4, 6]].tolist()
    torch.testing.assert_close(alone.tokens, batch.tokens[[0, 1, 2, 4]])


@pytest.mark.parametrize("variant", options("variant"))
def test_the_model_without_heads_has_the_logits_of_the_masked_one(bert_of, batch, variant):
    model, smaller = bert_of(variant), bert_of(variant)
    removed = [(0, 1), (1, 0), (1, 1), (1, 2)]
    if not model.layers[0].attention.prunable:
        with pytest.raises(Mistake, match="heads of this variant can be neither removed nor copied"):
            remove_heads(smaller, removed)
        return
    kept = remove_heads(smaller, removed)
    assert kept == [[0, 2], []] and value_heads(smaller) == [2, 0]
    with gated(model, gates_without(model, removed)):
        expected = model(batch.tokens)
    torch.testing.assert_close(smaller(batch.tokens), expected)
    assert smaller.parameter_counts()["total"] < model.parameter_counts()["total"]


def test_heads_whose_position_bias_is_shared_cannot_be_taken_out(bert_of):
    for position in ("relative", "alibi"):
        with pytest.raises(Mistake, match=r"\(model\.position\) have a bias for every head of the softmax"):
            remove_heads(bert_of("multi_head", position=position), [(0, 1)])
        assert remove_heads(bert_of("multi_head", position=position), []) == 2 * [[0, 1, 2]]
    assert remove_heads(bert_of("talking_heads", position="relative"), [(0, 1)]) == [[0, 2], [0, 1, 2]]


@pytest.mark.parametrize("is_idle", [True, False])
def test_that_heads_do_nothing_yet_is_said(bert_of, trained_run_of, batch, monkeypatch, is_idle):
    monkeypatch.setattr(TrainedRun, "masked_batches", lambda run: [batch])
    bert = bert_of("multi_head")
    if is_idle:
        with torch.no_grad():
            for attention in bert.attentions:
                attention.output.weight.zero_()
    section = importance_section.make(trained_run_of(bert), HeadsOptions())
    assert ("these heads do nothing yet" in section.text) == is_idle == ("heads left (by gradient)" not in section.text)
    # whose loss it is
    assert "With all heads the loss of these 6 sequences is" in section.text
    increases = [row["increase"] for row in section.tables["ablation"]]
    assert len(increases) == 6 and (max(map(abs, increases)) < 1e-12) == is_idle


def test_the_importance_of_a_runs_heads_by_gradient_is_computed_once(bert_of, trained_run_of, batch, monkeypatch):
    asked = []
    monkeypatch.setattr(TrainedRun, "masked_batches", lambda run: [batch])
    monkeypatch.setattr(importance, "by_gradient", lambda *of: asked.append(of) or by_gradient(*of))
    run, other = (trained_run_of(bert_of("multi_head", heads=heads)) for heads in (2, 3))
    section = importance_section.make(run, HeadsOptions())
    found = of_run_by_gradient(run)
    assert len(asked) == 1 and all(map(torch.equal, found, by_gradient(run.model, [batch])))
    assert [row["gradient"] for row in section.tables["importance"]] == torch.cat(found).tolist()
    assert all(map(torch.equal, of_run_by_gradient(other), by_gradient(other.model, [batch])))


def test_parts_of_a_batch_without_a_position_to_predict_are_left_out(bert_of, trained_run_of, batch, monkeypatch):
    """Where sequences have labels, a part without such a position is still a part of a step."""
    run = trained_run_of(bert_of("multi_head"))
    expected = by_relevance(run.model, [batch])
    labelled = batch._replace(labels=torch.zeros(5, dtype=torch.long))
    monkeypatch.setattr(trained_run, "evaluation_batches", lambda *arguments: [labelled])
    monkeypatch.setattr(trained_run, "TOKENS_AT_ONCE", batch.length)
    parts = list(run.masked_batches())
    assert [len(part.targets) for part in parts] == [2, 2, 2, 1]
    torch.testing.assert_close(by_relevance(run.model, parts), expected)


def test_a_head_is_removed_alone(bert_of, batch):
    model = bert_of("talking_heads")
    whole = loss_with_gates(model, [batch], gates_without(model, []))
    with torch.no_grad():
        # the second head of the second layer passes nothing on
        model.attentions[1].output.weight[:, 4:8] = 0
    idle = loss_with_gates(model, [batch], gates_without(model, []))
    losses = [loss_without_each(model, [batch], layer) for layer in (0, 1)]
    assert idle != whole and losses[1][1] == pytest.approx(idle, abs=1e-12)
    assert len({idle, losses[1][0], losses[1][2], *losses[0]}) == 6
    assert losses[0][2] == loss_with_gates(model, [batch], [torch.tensor([1.0, 1, 0]).double(), torch.ones(3).double()])
