"""Measure how much a second process speeds up training on this machine, and the share of time that goes into sums.

python scripts/scaling.py model=mini length=128 batch_size=32

Rounds of one process and of two alternate, so that other work on the machine disturbs both equally.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from experiments.config.compose import compose
from experiments.measure.hardware import resolve_precision
from experiments.settings.run import Settings
from experiments.tasks.choose import task_of
from experiments.training.distributed.group import Member, joined
from experiments.training.set_up import build_learner
from experiments.training.step.world import ALONE, World

ROUNDS, STEPS, WARMUP = 5, 8, 3
ROUNDS_FILE = "rounds.json"
TIMED = ("all_reduce", "broadcast_object_list")


class Clock:
    """Seconds that this process spends in torch.distributed, including those in which it waits for the other."""

    def __init__(self) -> None:
        self.seconds = 0.0
        for name in TIMED:
            setattr(dist, name, self._timed(getattr(dist, name)))

    def _timed(self, call):
        def timed(*arguments, **options):
            began = time.perf_counter()
            call(*arguments, **options)
            self.seconds += time.perf_counter() - began

        return timed


def measure(settings: Settings, world: World, clock: Clock) -> tuple[float, float, int]:
    """The median seconds of a step, the median seconds of it that are spent in sums, and the number of parameters."""
    torch.set_num_threads(1)
    task = task_of(settings)
    dataset = task.prepare(lambda *_: None)
    device = torch.device("cpu")
    precision = resolve_precision(settings.trainer.precision, device)
    learner = build_learner(settings, task, dataset, device, precision, world)
    steps, sums = [], []
    for step in range(1, WARMUP + STEPS + 1):
        began, before = time.perf_counter(), clock.seconds
        learner.take(step, 1e-4)
        steps.append(time.perf_counter() - began)
        sums.append(clock.seconds - before)
    parameters = sum(parameter.numel() for parameter in learner.model.parameters())
    return statistics.median(steps[WARMUP:]), statistics.median(sums[WARMUP:]), parameters


def work(rank: int, settings: Settings, folder: Path) -> None:
    """Measure in rounds, as one of two processes; the first one writes what was measured into the folder.

    A round is (seconds of a step alone, of a step of both, of the sums in it, of a sum of all gradients; their bytes).
    """
    clock = Clock()
    with joined(Member(rank, 2, rank), dist.FileStore(str(folder / "store"), 2), on_gpu=False) as group:
        rounds = []
        for _ in range(ROUNDS):
            dist.barrier()
            alone = measure(settings, ALONE, clock)[0] if rank == 0 else 0.0
            dist.barrier()
            *together, count = measure(settings, group, clock)
            dist.barrier()
            gradient = torch.zeros(count)
            began = time.perf_counter()
            group.sum([gradient])
            rounds.append((alone, *together, time.perf_counter() - began, 4 * count))
        if rank == 0:
            (folder / ROUNDS_FILE).write_text(json.dumps(rounds), encoding="utf-8")


def main() -> None:
    """Start both processes, and print the medians of their rounds."""
    settings = compose([*sys.argv[1:], "trainer.device=cpu", "trainer.compile=false"])
    task_of(settings).prepare(lambda *_: None)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # an error in one of them ends both, and is raised here
        multiprocessing.spawn(work, (settings, folder), nprocs=2)
        rounds = json.loads((folder / ROUNDS_FILE).read_text(encoding="utf-8"))
    alone, together, sums, reduced, size = (statistics.median(column) for column in zip(*rounds, strict=True))
    ratios = sorted(one / (2 * two) for one, two, *_ in rounds)
    precision = resolve_precision(settings.trainer.precision, torch.device("cpu"))
    sizes = f"batch {settings.batch_size} x {settings.length}, {size / 4:,.0f} parameters"
    print(f"{precision}, {sizes}, load {os.getloadavg()[0]:.1f}")
    print(f"a step: {1000 * alone:.0f} ms with one process, {1000 * together:.0f} ms with two")
    print(f"efficiency: {ratios[len(ratios) // 2]:.0%} ({ratios[0]:.0%} to {ratios[-1]:.0%} in {ROUNDS} rounds)")
    print(f"in sums, including waiting: {sums / together:.0%} of a step with two processes")
    print(f"only summing {size / 1e6:.0f} MB of gradients: {1000 * reduced:.0f} ms, {size / reduced / 1e9:.2f} GB/s")


if __name__ == "__main__":
    main()
