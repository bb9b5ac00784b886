"""Several processes take the steps of one run, which gives the same results for any number of them, and after faults.

Here they are forked from the process of the test, which costs nothing; test_start.py starts them as a user does.
"""

from __future__ import annotations

import os
import signal

import pytest
import torch
import torch.distributed as dist

from experiments.config.compose import compose
from experiments.display.progress import Display
from experiments.measure.cores import Neighbours
from experiments.processes.interruption import Interrupted
from experiments.record.folder import RunFolder
from experiments.settings.devices import largest_part
from experiments.training.distributed.group import DistributedWorld, Member
from experiments.training.step import learner as learner_module
from experiments.training.step.learner import Learner
from experiments.training.step.world import ALONE
from experiments.training.train import train
from tests.fixtures.campaign import in_campaigns
from tests.training.distributed.forked import PARTS, Raised, check_close, learn, losses


@pytest.mark.parametrize("size", [2, *in_campaigns(3, 4)])
@pytest.mark.parametrize("optimizer", ["muon", *in_campaigns("adamw", "lamb")])
def test_any_number_of_processes_take_the_same_steps_to_1e_12(settings, processes, optimizer, size):
    config = settings(**PARTS)
    config = config.model_copy(update={"optimizer": compose([f"optimizer={optimizer}"]).optimizer})
    alone = learn(config, ALONE)
    several = processes(size, lambda group: learn(config, group)).end()
    for one in several:
        assert one["evaluation before"] == alone["evaluation before"]
        assert one["batches"] == alone["batches"]
        check_close(one, alone)
    # they end with the same weights, bit by bit, as they have the same sums
    assert all(one["tensors"] == several[0]["tensors"] for one in several)


def test_a_run_goes_on_in_another_number_of_processes(
    settings, processes, member, reference, stops, tmp_path, change_header
):
    config = settings(**PARTS)
    for size, stop in ((2, 6), (4, 12)):
        stops.append(stop)
        first, *others = processes(size, member(config)).end()
        assert first == Raised("Interrupted", "interrupted by SIGTERM") and others == [None] * (size - 1)
        assert RunFolder(tmp_path / "run").result().devices == size
    stops.clear()
    change_header(RunFolder(tmp_path / "run"), rates=[1e12] * 99)
    with RunFolder(tmp_path / "run") as folder, Display() as display:
        folder.create(config.model_dump())
        result = train(config, folder, display, Neighbours())
    assert losses(folder) == pytest.approx(reference, rel=1e-4)
    assert result.tokens_per_second < 1e11, "the speed of more processes counted"
    assert result.devices == 1 and result.status == "done" and result.micro_batch == 2
    assert result.peak_memory_of_all_bytes <= result.peak_memory_bytes


def test_a_signal_to_any_process_ends_the_run_after_its_step(settings, processes, member, tmp_path, monkeypatch):
    take = Learner.take

    def signalled(learner, step, learning_rate):
        if step == 7 and learner.forward.world.rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return take(learner, step, learning_rate)

    monkeypatch.setattr(Learner, "take", signalled)
    first, other = processes(2, member(settings(**PARTS))).end()
    assert first == Raised("Interrupted", "interrupted by SIGTERM") and other is None
    folder = RunFolder(tmp_path / "run")
    assert folder.result().status == "interrupted" and folder.result().steps in (7, 8)
    assert (folder.checkpoint / f"step-{folder.result().steps:09d}.safetensors").exists()


def test_a_signal_that_comes_while_flags_are_sent_is_sent_with_the_next_ones(monkeypatch):
    group, noted, make = DistributedWorld(Member(0, 2, 0), lambda seconds: ""), [], torch.tensor
    group.when_signalled(noted.append)
    monkeypatch.setattr(dist, "all_reduce", lambda flags, by: None)

    def signalled_after(flags):
        made = make(flags)
        group.signalled(signal.SIGTERM)
        return made

    with monkeypatch.context() as patched:
        patched.setattr(torch, "tensor", signalled_after)
        assert not group.any(False)
    assert group.any(True) and noted == [signal.SIGTERM]


@pytest.mark.parametrize("lost", [0, *in_campaigns(1)])
def test_a_killed_process_ends_the_others_and_the_run_goes_on(
    settings, processes, member, reference, tmp_path, monkeypatch, lost
):
    config, take = settings(**PARTS), Learner.take

    def killed(learner, step, learning_rate):
        if step == 8 and learner.forward.world.rank == lost:
            os.kill(os.getpid(), signal.SIGKILL)
        return take(learner, step, learning_rate)

    monkeypatch.setattr(Learner, "take", killed)
    ends = processes(2, member(config)).end()
    assert ends[lost] is None and ends[1 - lost].kind == "LostProcessError"
    folder = RunFolder(tmp_path / "run")
    assert folder.holder() is None
    if lost == 1:
        assert folder.result().status == "failed" and "process" in folder.result().reason
    monkeypatch.undo()
    result, _ = processes(2, member(config)).end()
    assert result.status == "done" and losses(folder) == pytest.approx(reference, rel=1e-4)


def test_the_precision_of_the_first_process_is_that_of_all(settings, processes, member, monkeypatch):
    config = settings(precision="auto", max_steps=2, **PARTS)
    config = config.model_copy(update={"optimizer": compose(["optimizer=muon"]).optimizer})
    take = Learner.take

    def checked(learner, step, learning_rate):
        assert (learner.forward.precision, learner.optimizers[0].products) == ("bf16", torch.bfloat16)
        return take(learner, step, learning_rate)

    monkeypatch.setattr(Learner, "take", checked)
    monkeypatch.setattr("experiments.measure.hardware.fast_bf16", lambda device: torch.distributed.get_rank() == 0)
    first, other = processes(2, member(config)).end()
    assert other is None and (first.status, first.precision) == ("done", "bf16")


def test_memory_that_runs_out_in_one_process_halves_the_parts_of_all(
    settings, processes, member, tmp_path, monkeypatch
):
    config = settings(max_steps=4, model__dropout=0.0, model__attention_dropout=0.0)
    config = config.model_copy(update={"variant": config.variant | {"dropout": 0.0}})
    backward = learner_module.backward

    def limited(forward, batch, index, micro_batch):
        if forward.world.rank == 1 and micro_batch > 2 and index == 1:
            raise MemoryError("no more")
        return backward(forward, batch, index, micro_batch)

    monkeypatch.setattr(learner_module, "backward", limited)
    result, other = processes(2, member(config)).end()
    assert other is None and result.status == "done" and result.micro_batch == 2
    assert "out of memory at step 2: going on with 2 sequences at once" in (tmp_path / "run" / "log.txt").read_text()


def test_what_is_not_finite_is_passed_over_by_all(settings, processes, member, tmp_path, monkeypatch):
    config = settings(max_steps=6, trainer__guard="skip", **PARTS)
    backward = learner_module.backward

    def broken(forward, batch, index, micro_batch):
        sums = backward(forward, batch, index, micro_batch)
        if forward.world.rank == 1 and index == 2:
            next(forward.model.parameters()).grad[0, 0] = float("nan")
        return sums

    monkeypatch.setattr(learner_module, "backward", broken)
    result, other = processes(2, member(config)).end()
    assert other is None and result.status == "done" and result.skipped_steps == 1


def test_an_error_of_one_process_alone_leaves_none_waiting(settings, processes, member, monkeypatch):
    backward = learner_module.backward

    def buggy(forward, batch, index, micro_batch):
        if forward.world.rank == 0 and index == 2:
            raise KeyError("a bug")
        return backward(forward, batch, index, micro_batch)

    monkeypatch.setattr(learner_module, "backward", buggy)
    first, other = processes(2, member(settings(**PARTS))).end()
    assert first.kind == "KeyError" and other.kind == "LostProcessError"


def test_a_process_that_is_interrupted_while_it_tells_a_task_waits_for_no_other(monkeypatch):
    group = DistributedWorld(Member(0, 2, 0), lambda seconds: "")

    def interrupted(box, source):
        raise Interrupted(signal.SIGINT)

    monkeypatch.setattr(dist, "broadcast_object_list", interrupted)
    with pytest.raises(Interrupted), group.together("take", 1, 1e-2):
        pass
    with group.together("tell_usage"):
        assert group.gather("of this process") == ["of this process"]


def test_other_settings_text_or_code_in_another_process_are_refused_by_name(settings, processes, member):
    here, there = settings(**PARTS), settings(learning_rate=1e-3, **PARTS)
    first, other = processes(2, lambda group: member(there if group.rank else here)(group)).end()
    assert first.kind == "LostProcessError"
    assert other.kind == "Mistake" and other.text.startswith("the settings of process 1 on ")


def test_gradients_of_any_kind_are_summed_and_missing_ones_are_zero(processes, monkeypatch):
    monkeypatch.setattr("experiments.training.distributed.group.BUCKET_BYTES", 40)

    def work(group: DistributedWorld):
        kinds = (torch.float32, torch.float64, torch.float64, torch.float32, torch.float32)
        parameters = [torch.nn.Parameter(torch.zeros(index + 1, 2, dtype=kind)) for index, kind in enumerate(kinds)]
        for index, parameter in enumerate(parameters):
            if index == group.rank or index > 2:
                parameter.grad = torch.full_like(parameter, 10.0**group.rank)
        group.sum_gradients(parameters[:4])
        shared = [torch.full((2, 3), float(group.rank)).T, torch.tensor(7 + group.rank)]
        group.spread(shared)
        sums = [None if each.grad is None else each.grad.unique().tolist() for each in parameters]
        return sums, [each.unique().tolist() for each in shared], group.gather(group.rank), list(group.share("abcde"))

    for rank, (sums, shared, gathered, parts) in enumerate(processes(2, work).end()):
        assert sums == [[1.0], [10.0], None, [11.0], [10.0**rank]]
        assert shared == [[0.0], [7]] and gathered == [0, 1]
        assert parts == [[(0, "a"), (2, "c"), (4, "e")], [(1, "b"), (3, "d")]][rank]


@pytest.mark.parametrize("sequences", [1, 2, 7, 8, 16, 100])
def test_parts_are_as_large_as_they_can_be_for_every_device_to_have_one(sequences):
    for devices in range(1, 20):
        largest = largest_part(sequences, devices)
        if sequences < devices:
            assert largest == 0
        else:
            assert -(-sequences // largest) >= devices
            # a larger one would leave a device idle, or make the slowest slower
            larger = largest + 1
            assert devices == 1 or -(-sequences // larger) < devices or larger * devices > sequences
