"""Several processes of one run, forked from the process of the test, which costs nothing."""

from __future__ import annotations

import multiprocessing
import pickle
import time
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from experiments.record.folder import RunFolder
from experiments.tasks.pretraining import Pretraining
from experiments.training.checkpoints import tensors
from experiments.training.distributed.group import Member, joined
from experiments.training.step.learner import learner_of
from experiments.training.train import validate

PARTS = {"trainer__micro_batch": 2}  # four parts a batch


class Raised(NamedTuple):
    """An exception that ended the work of a process."""

    kind: str
    text: str


class Processes:
    """`work(group)` in each of several forked processes; `end` returns what each returned, or raised."""

    def __init__(self, folder, size, work, kind):
        context = multiprocessing.get_context("fork")
        self._ends = []
        self.processes = []
        for rank in range(size):
            ours, theirs = context.Pipe(duplex=False)
            arguments = (str(folder / f"store{time.monotonic_ns()}" if rank == 0 else self._store), rank, size, kind)
            self._store = arguments[0]
            process = context.Process(target=self._run, args=(*arguments, work, theirs))
            process.start()
            theirs.close()
            self._ends.append(ours)
            self.processes.append(process)

    @staticmethod
    def _run(store, rank, size, kind, work, pipe):
        torch.set_num_threads(1)
        try:
            with joined(Member(rank, size, rank), dist.FileStore(store, size), on_gpu=False, kind=kind) as group:
                returned = work(group)
        except BaseException as error:
            returned = Raised(type(error).__name__, str(error))
        pipe.send_bytes(pickle.dumps(returned))

    def end(self):
        """By rank; None of a process that was killed."""
        returned = []
        for process, pipe in zip(self.processes, self._ends, strict=True):
            try:
                returned.append(pickle.loads(pipe.recv_bytes()))
            except EOFError:
                returned.append(None)
            process.join(60)
            assert process.exitcode is not None
        return returned


def losses(folder: RunFolder) -> list[float]:
    return [line["loss"] for line in folder.metrics.read() if "loss" in line]


def learn(settings, world) -> dict[str, object]:
    """Five steps in float64 with dropout, and an evaluation before and after them."""
    task = Pretraining(settings)
    dataset = task.prepare(lambda *_: None)
    model = task.build_initialized_model(dataset.tokenizer.vocabulary_size).double()
    world.place(model, torch.device("cpu"))
    objective = task.objective(dataset.tokenizer)
    learner = learner_of(
        settings, model, objective, dataset.train, device=torch.device("cpu"), precision="fp32", world=world
    )
    before = validate(learner, dataset, 100, 0)
    taken = [learner.take(step, 1e-2) for step in range(1, 6)]
    return {
        "evaluation before": before.numbers(),
        "evaluation": list(validate(learner, dataset, 100, 5).numbers().values()),
        "losses": [float(each.sums.tokens) for each in taken],
        "norms": [each.gradient_norm for each in taken],
        "batches": [each.batch.tokens.tolist() for each in taken],
        "tensors": {name: tensor.tolist() for name, tensor in world.whole(tensors(learner)).items()},
    }


def check_close(one: dict[str, object], other: dict[str, object]) -> None:
    """What two calls of `learn` returned agrees to 1e-12."""
    for name in ("evaluation", "losses", "norms"):
        np.testing.assert_allclose(one[name], other[name], rtol=1e-12, atol=1e-13)
    assert one["tensors"].keys() == other["tensors"].keys()
    for name, tensor in one["tensors"].items():
        np.testing.assert_allclose(tensor, other["tensors"][name], rtol=1e-12, atol=1e-13, err_msg=name)
