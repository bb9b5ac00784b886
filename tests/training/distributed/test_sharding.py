"""Several processes that divide weights, gradients and moments do what one process does, in the same folder."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from experiments.config.compose import compose
from experiments.record.folder import RunFolder
from experiments.tasks.pretraining import Pretraining
from experiments.training.checkpoints import tensors
from experiments.training.distributed.group import DistributedWorld
from experiments.training.distributed.sharding import ShardedWorld, idle
from experiments.training.step import learner as learner_module
from experiments.training.step.learner import learner_of
from experiments.training.step.micro_batches import Forward, split
from experiments.training.step.world import ALONE
from experiments.training.train import validate
from tests.fixtures.campaign import in_campaigns
from tests.training.distributed.forked import PARTS, Raised, check_close, learn, losses


# of four parts, three processes take two each, two of them with nothing to predict
@pytest.mark.parametrize("case", ["muon 3", *in_campaigns("muon 2", "muon 4", "adamw 3", "lamb 3")])
def test_any_number_of_processes_take_the_same_steps_to_1e_12(settings, processes, case):
    optimizer, size = case.split()
    config = settings(**PARTS).model_copy(update={"optimizer": compose([f"optimizer={optimizer}"]).optimizer})
    alone = learn(config, ALONE)
    several = processes(int(size), lambda group: learn(config, group), ShardedWorld).end()
    assert all(one["evaluation before"] == alone["evaluation before"] for one in several)
    assert all(one["losses"] == several[0]["losses"] and one["norms"] == several[0]["norms"] for one in several)
    assert not any(one["tensors"] for one in several[1:])
    check_close(several[0], alone)


@pytest.mark.parametrize(
    "word",
    [
        "variant=value_residual",
        *in_campaigns("model.sharing=all", "objective=masked_sop", "objective=span_corruption"),
    ],
)
def test_layers_that_depend_on_each_other_and_labels_are_as_on_one_device(corpus, tmp_path, processes, word):
    sizes = "heads=2 hidden_size=16 layers=2 length=16 batch_size=5 tokenizer.vocabulary_size=300 precision=fp32"
    text = f"data=text data.documents=blank_line data.train={corpus} cache={corpus.parent / 'cache'} runs={tmp_path}"
    trainer = "trainer.device=cpu trainer.micro_batch=2 trainer.evaluation_sequences=70 model.dropout=0.1"
    config = compose([*sizes.split(), *text.split(), *trainer.split(), "optimizer=adamw", word])
    check_close(processes(2, lambda group: learn(config, group), ShardedWorld).end()[0], learn(config, ALONE))


def learner(config, world):
    task = Pretraining(config)
    dataset = task.prepare(lambda *_: None)
    model = task.build_initialized_model(dataset.tokenizer.vocabulary_size)
    world.place(model, torch.device("cpu"))
    device = torch.device("cpu")
    objective = task.objective(dataset.tokenizer)
    return learner_of(config, model, objective, dataset.train, device=device, precision="fp32", world=world), dataset


def test_a_process_has_its_part_of_every_tensor(settings, processes):
    def held(group):
        ours, _ = learner(settings(**PARTS), group)
        ours.take(1, 1e-2)
        gradients = [each.grad.to_local().numel() for each in ours.model.parameters()]
        there = {name: tensor.to_local().numel() for name, tensor in tensors(ours).items() if tensor.dim()}
        return there, sum(gradients)

    whole = {name: tensor.numel() for name, tensor in tensors(learner(settings(), ALONE)[0]).items() if tensor.dim()}
    parts = processes(3, held, ShardedWorld).end()
    for name, count in whole.items():
        assert sum(part[name] for part, _ in parts) == count
    for part, gradients in parts:
        assert sum(part.values()) == pytest.approx(sum(whole.values()) / 3, rel=0.1)
        assert 3 * gradients == sum(part.values())


def test_a_part_with_nothing_to_predict_has_no_loss_and_no_gradient(settings):
    ours, _ = learner(settings(), ALONE)
    part = idle(next(split(ours.batch(0), 4)))
    logits, sums = ours.forward.predict(part)
    sums.mean(ours.batch(0)).backward()
    assert len(logits) == 0 and torch.stack(sums).tolist() == [0.0] * 4
    assert not any(each.grad.any() for each in ours.model.parameters())


def test_the_first_process_computes_alone_with_whole_weights(settings, processes):
    """As when it generates texts at the end of a run."""
    config = settings(**PARTS)

    def scored(group):
        ours, dataset = learner(config, group)
        ours.take(1, 1e-2)
        together = validate(ours, dataset, 16, 1)
        group.make_whole(ours.model)
        if group.rank == 0:
            ours.forward = replace(ours.forward, world=ALONE)
            assert validate(ours, dataset, 16, 1) == together
        return group.gather(group.rank)

    assert processes(2, scored, ShardedWorld).end() == [[0, 1], [0, 1]]


@pytest.mark.campaign
def test_a_run_goes_on_in_any_number_of_processes_divided_or_not(
    settings, processes, member, go, reference, stops, tmp_path
):
    config, folder, shapes = settings(**PARTS), RunFolder(tmp_path / "run"), []
    for size, kind, stop in ((2, ShardedWorld, 4), (2, DistributedWorld, 8), (4, ShardedWorld, 12)):
        stops.append(stop)
        first, *others = processes(size, member(config), kind).end()
        assert first == Raised("Interrupted", "interrupted by SIGTERM") and others == [None] * (size - 1)
        result = folder.result()
        assert (result.devices, result.sharded) == (size, kind is ShardedWorld)
        checkpoint = load_file(max(folder.checkpoint.glob("step-*.safetensors")))
        shapes.append({name: (tensor.shape, tensor.dtype) for name, tensor in checkpoint.items()})
    stops.clear()
    result, _ = go(config)
    assert result.status == "done" and not result.sharded
    assert losses(folder) == pytest.approx(reference, rel=1e-4)
    assert shapes[0] == shapes[1] == shapes[2]


@pytest.mark.campaign
@pytest.mark.parametrize("lost", [0, 1])
def test_a_killed_process_ends_the_others_and_the_run_goes_on(
    settings, processes, member, reference, tmp_path, monkeypatch, lost
):
    config, backward = settings(**PARTS), Forward.loss

    def killed(forward, part):
        loss = backward(forward, part)
        if forward.world.rank == lost and (tmp_path / "run" / "checkpoint" / "step-000000005.safetensors").exists():
            # between two passes of a step: the other waits for weights
            os.kill(os.getpid(), signal.SIGKILL)
        return loss

    monkeypatch.setattr(Forward, "loss", killed)
    ends = processes(2, member(config), ShardedWorld).end()
    assert ends[lost] is None and ends[1 - lost].kind == "LostProcessError"
    folder = RunFolder(tmp_path / "run")
    assert folder.holder() is None
    if lost == 1:
        assert folder.result().status == "failed" and "process" in folder.result().reason
    monkeypatch.undo()
    result, _ = processes(2, member(config), ShardedWorld).end()
    assert result.status == "done" and losses(folder) == pytest.approx(reference, rel=1e-4)


def test_a_process_that_is_lost_during_the_sum_of_the_norm_is_named_as_lost(settings, processes):
    def norm(group):
        ours, _ = learner(settings(**PARTS), group)
        ours.gradient(ours.batch(0), 0)
        if group.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return float(ours.gradient_norm())

    first, other = processes(2, norm, ShardedWorld).end()
    assert other is None and first.kind == "LostProcessError"


@pytest.mark.parametrize("short", [0, *in_campaigns(1)])
def test_memory_that_runs_out_in_one_process_ends_all(settings, processes, member, tmp_path, monkeypatch, short):
    loss = Forward.loss

    def limited(forward, part):
        if forward.world.rank == short and forward.model.training and torch.is_grad_enabled() and len(part.tokens) > 1:
            raise MemoryError("no more")
        return loss(forward, part)

    monkeypatch.setattr(Forward, "loss", limited)
    ends = processes(2, member(settings(**PARTS)), ShardedWorld).end()
    said = f"out of memory in process {short}: no more; with trainer.sharded=true the sequences at once are not halved"
    if short:
        assert ends[1].kind == "PartOutOfMemoryError" and ends[1].text.startswith(said)
        assert "trainer.micro_batch" in ends[1].text and ends[0].kind == "LostProcessError"
    else:
        assert ends[0].status == "oom" and ends[0].reason.startswith(said) and ends[1].kind == "LostProcessError"


@pytest.mark.parametrize("guard", ["skip", *in_campaigns("reload")])
def test_what_is_not_finite_is_passed_over_by_all(settings, processes, member, tmp_path, monkeypatch, guard):
    config = settings(max_steps=7, trainer__guard=guard, **PARTS)
    backward = learner_module.backward

    def broken(forward, batch, index, micro_batch):
        sums = backward(forward, batch, index, micro_batch)
        if forward.world.rank == 1 and index == 5:
            next(forward.model.parameters()).grad.to_local().fill_(float("nan"))
        return sums

    monkeypatch.setattr(learner_module, "backward", broken)
    result, other = processes(2, member(config), ShardedWorld).end()
    assert other is None and result.status == "done" and result.skipped_steps == 1
    assert "whose gradient is not is embedding.token.weight" in (tmp_path / "run" / "log.txt").read_text()
