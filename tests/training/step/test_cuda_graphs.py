"""Gradients that are replayed from CUDA graphs, on a real GPU; which runs have graphs, anywhere."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from experiments.config.compose import compose
from experiments.tasks.pretraining import Pretraining
from experiments.training.step.cuda_graphs import MOST_FLOPS, graphs_of
from experiments.training.step.learner import learner_of

STEPS = 12
DEVICE = torch.device("cuda")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


@pytest.fixture
def learner(tiny):
    """A learner of a tiny model on the GPU."""

    def make(*words):
        settings = compose([*tiny, *words])
        task = Pretraining(settings)
        dataset = task.prepare(lambda *_: None)
        model = task.build_initialized_model(dataset.tokenizer.vocabulary_size).to(DEVICE)
        objective = task.objective(dataset.tokenizer)
        precision = settings.trainer.precision
        return learner_of(settings, model, objective, dataset.train, device=DEVICE, precision=precision)

    return make


@needs_gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "words",
    [
        ["variant=multi_head"],
        ["variant=talking_heads"],
        ["model.dropout=0.1", "trainer.label_smoothing=0.1"],
        ["variant=talking_heads", "model.position=relative", "optimizer=muon"],
        ["objective=causal"],
        ["objective=masked_sop"],
    ],
    ids=" ".join,
)
def test_replayed_steps_have_the_bits_of_computed_ones(learner, precision, words):
    replayed, computed = (learner(f"precision={precision}", *words) for _ in range(2))
    computed.graphs = None
    for step in range(1, STEPS + 1):
        one, other = replayed.take(step, 1e-2), computed.take(step, 1e-2)
        assert one.gradient_norm == other.gradient_norm
        assert list(map(float, one.sums)) == list(map(float, other.sums))
    assert all(map(torch.equal, replayed.parameters(), computed.parameters()))
    assert any(replayed.graphs._recordings.values())


@needs_gpu
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_passes_that_cannot_be_recorded_are_computed_and_it_is_said(learner, dropout):
    said: list[str] = []
    before = torch.cuda.current_stream()
    waiting, computed = (learner("precision=fp32", f"model.dropout={dropout}") for _ in range(2))
    computed.graphs, waiting.say = None, said.append
    # reading a number waits for the GPU, which a recording cannot
    waiting.model.register_forward_hook(lambda module, inputs, output: None if float(output.detach().sum()) else output)
    for step in range(1, STEPS + 1):
        assert waiting.take(step, 1e-2).gradient_norm == computed.take(step, 1e-2).gradient_norm
    assert len(said) == 1 and "could not be recorded as a CUDA graph" in said[0]
    assert torch.cuda.current_stream() == before


@needs_gpu
def test_parts_of_a_batch_are_computed(learner):
    whole, parts = learner("precision=fp32"), learner("precision=fp32", "trainer.micro_batch=3")
    for step in (1, 2, 3):
        one, other = whole.take(step, 1e-2), parts.take(step, 1e-2)
        assert one.gradient_norm == pytest.approx(other.gradient_norm, rel=1e-4)
    assert parts.graphs is None


@pytest.mark.parametrize(
    ("words", "batch_size", "lengths_vary"),
    [
        ([], 4 * 10**6, False),
        ([], 4, True),
        (["model.attention_dropout=0.1"], 4, False),
        (["model.norm_kind=batch"], 4, False),
    ],
)
def test_passes_that_gain_nothing_or_change_from_step_to_step_are_not_recorded(tiny, words, batch_size, lengths_vary):
    model = Pretraining(compose([*tiny, *words])).build_initialized_model(100)
    assert 4 * 16 * model.flops_per_token(16, 0.15) < MOST_FLOPS < 4 * 10**6 * 16 * model.flops_per_token(16, 0.15)
    objective = SimpleNamespace(lengths_vary=lengths_vary, predicted_share=0.15)
    assert graphs_of(model, objective, DEVICE, batch_size, 16) is None


def test_a_cpu_has_no_graphs(tiny):
    model = Pretraining(compose(tiny)).build_initialized_model(100)
    objective = SimpleNamespace(lengths_vary=False, predicted_share=0.15)
    assert graphs_of(model, objective, torch.device("cpu"), 4, 16) is None
