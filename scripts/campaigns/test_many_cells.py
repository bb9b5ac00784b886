"""A sweep of hundreds of cells: its process doesn't use more and more memory and file descriptors."""

from __future__ import annotations

import time
from pathlib import Path

import psutil

WARM = 10  # cells after which the process has everything that it needs
GROWTH = 1.1  # its memory may grow by this factor


def test_of_a_sweep(nursery, training, tmp_path, tries, say):
    count = tries(16, 500)
    words = [word for word in training[1:] if not word.startswith(("max_steps", "trainer.", "layers"))]
    short = ["max_steps=1", "layers=1", "trainer.device=cpu", "trainer.compile=false", "trainer.evaluation_sequences=1"]
    sweep = nursery.start("train", "-m", *words, *short, f"seed=range(0,{count})", "--workers", "2", cwd=tmp_path)
    seen: dict[int, tuple[int, int]] = {}
    process = psutil.Process(sweep.pid)
    while process.status() != psutil.STATUS_ZOMBIE:
        done = len(list(Path(tmp_path).glob("runs/*/result.json")))
        # including the server that forks the cells, the only child that stays
        parts = [process, *process.children()]
        try:
            seen[done] = (sum(each.memory_info().rss for each in parts), sum(each.num_fds() for each in parts))
        except psutil.Error:
            continue
        time.sleep(0.2)
    assert sweep.wait() == 0, sweep.output
    assert len(list(tmp_path.glob("runs/*/result.json"))) == count
    warm = {done: values for done, values in seen.items() if WARM <= done < count}
    memory, descriptors = zip(*warm.values(), strict=True)
    megabytes = f"{min(memory) / 1e6:.0f} to {max(memory) / 1e6:.0f} MB"
    say(f"{count} cells, {megabytes}, {min(descriptors)} to {max(descriptors)} descriptors")
    assert max(memory) < GROWTH * memory[0] and max(descriptors) <= descriptors[0] + 4
