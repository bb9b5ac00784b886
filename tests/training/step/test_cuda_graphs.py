"""Gradients that are replayed: from CUDA graphs on a real GPU, and by a stand-in anywhere."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from experiments.config.compose import compose
from experiments.tasks.pretraining import Pretraining
from experiments.training.step import cuda_graphs
from experiments.training.step.cuda_graphs import MOST_FLOPS, CudaGraphs, graphs_of
from experiments.training.step.learner import learner_of
from experiments.training.step.non_finite import NonFiniteError
from experiments.training.train import validate

STEPS = 12
CLIP = 0.01
GPU = torch.device("cuda")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


class StandIn:
    """Records on any device: a replay does the passes again, and writes over what they returned the first time."""

    def __init__(self):
        self.calls: list[str] = []

    def prepare(self, passes):
        self.calls.append("prepare")
        return passes()

    def record(self, passes):
        self.calls.append("record")
        losses, gradients = passes()

        def replay():
            self.calls.append("replay")
            for parameter, _ in gradients:
                parameter.grad = None
            new_losses, new_gradients = passes()
            losses.copy_(new_losses)
            for (parameter, gradient), (_, new) in zip(gradients, new_gradients, strict=True):
                gradient.copy_(new)
                parameter.grad = None

        return (losses, gradients), replay


@pytest.fixture
def learners(tiny):
    """learners(device, *words): two alike of a tiny model, of which one has graphs, and their dataset."""

    def make(device, *words):
        settings = compose([*tiny, f"optimizer.clip={CLIP}", *words])
        task = Pretraining(settings)
        dataset = task.prepare(lambda *_: None)

        def learner():
            model = task.build_initialized_model(dataset.tokenizer.vocabulary_size).to(device)
            objective, precision = task.objective(dataset.tokenizer), settings.trainer.precision
            return learner_of(settings, model, objective, dataset.train, device=device, precision=precision)

        replayed, computed = learner(), learner()
        computed.graphs = None
        return replayed, computed, dataset

    return make


@pytest.fixture
def with_stand_in(learners):
    """with_stand_in(*words): the same on a CPU, and the stand-in that records."""

    def make(*words):
        replayed, computed, dataset = learners(torch.device("cpu"), "precision=fp32", *words)
        stand_in = StandIn()
        replayed.graphs = CudaGraphs(stand_in)
        return replayed, computed, dataset, stand_in

    return make


def check_alike(replayed, computed, dataset):
    """Both take the same steps, with what a run does between them: evaluations, other rates, and a step to skip."""
    for step in range(1, STEPS + 1):
        one, other = (each.take(step, 1e-2 / step) for each in (replayed, computed))
        assert one.gradient_norm == other.gradient_norm > CLIP
        assert list(map(float, one.sums)) == list(map(float, other.sums))
        if step % 5 == 0:
            assert validate(replayed, dataset, 16, step) == validate(computed, dataset, 16, step)
        if step == 7:
            for each in (replayed, computed):
                check_not_finite(each, step)
    assert all(map(torch.equal, replayed.parameters(), computed.parameters()))


def check_not_finite(learner, step):
    weight = learner.parameters()[0].detach()
    before = weight.clone()
    weight.fill_(float("nan"))
    with pytest.raises(NonFiniteError):
        learner.take(step, 1e-2)
    weight.copy_(before)


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
def test_replayed_steps_have_the_bits_of_computed_ones(learners, precision, words):
    replayed, computed, dataset = learners(GPU, f"precision={precision}", *words)
    check_alike(replayed, computed, dataset)
    assert any(replayed.graphs._recordings.values())


@pytest.mark.parametrize(
    "words", [["model.dropout=0.1", "trainer.label_smoothing=0.1"], ["objective=masked_sop"]], ids=" ".join
)
def test_steps_that_a_stand_in_replays_have_the_bits_of_computed_ones(with_stand_in, words):
    replayed, computed, dataset, stand_in = with_stand_in(*words)
    check_alike(replayed, computed, dataset)
    assert {"prepare", "record", "replay"} == {*stand_in.calls}


def test_the_first_batch_of_a_shape_is_computed_and_the_second_recorded(with_stand_in):
    replayed, *_, stand_in = with_stand_in()
    for expected in ("prepare", "record replay", "replay", "replay"):
        stand_in.calls.clear()
        replayed.gradient(replayed.batch(0), 0)
        assert " ".join(stand_in.calls) == expected


def test_more_shapes_and_parts_of_a_batch_are_computed_and_so_are_compiled_layers(with_stand_in, monkeypatch):
    replayed, computed, _, stand_in = with_stand_in()
    monkeypatch.setattr(cuda_graphs, "MOST_SHAPES", 1)
    batch, index = replayed.batch(0), 0
    few = len(batch.targets) // 2
    shorter = batch._replace(positions=batch.positions[:few], targets=batch.targets[:few])
    with monkeypatch.context() as patched:
        patched.setattr(cuda_graphs, "is_compiled", lambda model: True)
        replayed.gradient(batch, index)
    replayed.micro_batch = 3
    replayed.gradient(batch, index)
    assert stand_in.calls == []
    replayed.micro_batch = computed.micro_batch
    for each in (batch, shorter, shorter, batch):
        replayed.gradient(each, index)
        computed.gradient(each, index)
        assert replayed.gradient_norm() == computed.gradient_norm()
    assert stand_in.calls == ["prepare", "record", "replay"]


def test_passes_that_cannot_be_recorded_are_computed_ever_after_and_it_is_said(with_stand_in, monkeypatch):
    replayed, computed, _, stand_in = with_stand_in("model.dropout=0.1")
    said: list[str] = []
    replayed.say = said.append

    def record(passes):
        stand_in.calls.append("record")
        for _, gradient in passes()[1]:
            # which a graph that is only half recorded never computes
            gradient.fill_(1.0)
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setattr(stand_in, "record", record)
    for step in range(1, STEPS + 1):
        one, other = (each.take(step, 1e-2) for each in (replayed, computed))
        assert one.gradient_norm == other.gradient_norm
    assert stand_in.calls.count("record") == 1 and stand_in.calls[-1] == "record"
    assert said == [
        "steps take longer, because their passes could not be recorded as a CUDA graph: operation not permitted when "
        "stream is capturing"
    ]


@needs_gpu
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_passes_that_a_gpu_cannot_record_are_computed_and_it_is_said(learners, dropout):
    said: list[str] = []
    before = torch.cuda.current_stream()
    waiting, computed, _ = learners(GPU, "precision=fp32", f"model.dropout={dropout}")
    waiting.say = said.append
    # reading a number waits for the GPU, which a recording cannot
    waiting.model.register_forward_hook(lambda module, inputs, output: None if float(output.detach().sum()) else output)
    for step in range(1, STEPS + 1):
        assert waiting.take(step, 1e-2).gradient_norm == computed.take(step, 1e-2).gradient_norm
    assert len(said) == 1 and "could not be recorded as a CUDA graph" in said[0]
    assert torch.cuda.current_stream() == before


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
    assert graphs_of(model, objective, GPU, batch_size, 16) is None


def test_a_cpu_has_no_graphs(tiny):
    model = Pretraining(compose(tiny)).build_initialized_model(100)
    objective = SimpleNamespace(lengths_vary=False, predicted_share=0.15)
    assert graphs_of(model, objective, torch.device("cpu"), 4, 16) is None
