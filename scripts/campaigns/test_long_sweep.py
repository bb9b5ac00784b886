"""A long sweep in small: one trouble follows the other, and the cells end as those of an undisturbed sweep."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from pathlib import Path

from scripts.campaigns.harness import WAIT, interrupted_runs_in, kill_all, left_in
from scripts.campaigns.nursery import Child, Nursery
from scripts.campaigns.test_damage import damages

FULL = 60  # a disk is full after fewer writes of the sweep's process
CODES = {signal.SIGHUP: 129, signal.SIGINT: 130, signal.SIGTERM: 143}
TROUBLES = ("killed", "full", "damaged", "suspended", "read", *(each.name for each in CODES))


def test_of_troubles(spoiled, training, tmp_path, chance, tries, say):
    """Whenever a sweep has ended in spite of all troubles, another one begins in a new folder."""
    cells, troubles = tries(2, 12), tries(6, 300)
    words = [training[0], "-m", *training[1:], f"seed=range(0,{cells})", "--workers", "2"]
    whole = tmp_path / "whole"
    whole.mkdir()
    begun = time.monotonic()
    code, said = spoiled.run(*words, cwd=whole)
    life, expected, names = time.monotonic() - begun, interrupted_runs_in(whole), left_in(whole, interrupted=True)
    assert code == 0 and len(expected) == cells, said
    happened: Counter[str] = Counter()
    sweeps = 0
    while happened.total() < troubles:
        folder = tmp_path / f"sweep{sweeps}"
        folder.mkdir()
        ended = False
        while not ended and happened.total() < troubles:
            trouble = TROUBLES[happened.total() % len(TROUBLES)]
            happened[trouble] += 1
            room = chance.randrange(FULL) if trouble == "full" else -1
            child = spoiled.start(*words, cwd=folder, spoil=(room, 1))
            time.sleep(chance.uniform(0, life))
            ended = cause(trouble, child, folder, chance, spoiled) == 0
        code, said = finished(spoiled, words, folder)
        assert code == 0 and "Traceback" not in said, (code, said)
        assert interrupted_runs_in(folder) == expected, folder
        assert {
            name for name in left_in(folder, interrupted=True) if "dashboard" not in name and ".index" not in name
        } == names, folder
        code, said = spoiled.run("compare", "--format", "csv", cwd=folder)
        assert code == 0 and said.count(",done,") == cells and "changed" not in said, said
        sweeps += 1
    say(f"{sweeps} sweeps of {cells} cells: " + ", ".join(f"{count} {name}" for name, count in happened.items()))


def cause(trouble: str, child: Child, folder: Path, chance: random.Random, spoiled: Nursery) -> int:
    """Let a trouble happen to a sweep that runs; returns the exit code with which it ended."""
    allowed = {0}
    match trouble:
        case "killed" | "damaged":
            allowed = {0, -signal.SIGKILL}
            kill_all(child)
        case "full":
            allowed = {0, 1, 2, 3}
        case "suspended":
            child.kill(signal.SIGSTOP)
            time.sleep(0.5)
            child.kill(signal.SIGCONT)
        case "read":
            for command in ("compare", "dashboard"):
                code, said = spoiled.run(command, cwd=folder)
                # before the first run has ended, or begun
                assert code in (0, 2) and "Traceback" not in said, (command, code, said)
        case name:
            allowed = {0, CODES[signal.Signals[name]], -signal.Signals[name]}
            child.kill(signal.Signals[name])
    code = child.wait()
    assert code in allowed and "Traceback" not in child.output, (trouble, code, child.output)
    if trouble == "damaged":
        time.sleep(1)
        for path in folder.glob("runs/*/checkpoint/step-*.safetensors"):
            if not (path.parents[1] / "result.json").exists():
                ((_, content),) = damages(path.read_bytes(), chance, 1)
                path.write_bytes(content)
    return code


def finished(spoiled: Nursery, words: list[str], folder: Path) -> tuple[int, str]:
    """Repeat a sweep that nobody disturbs. Cells of a killed one may still save and end."""
    until = time.monotonic() + WAIT
    while True:
        code, said = spoiled.run(*words, cwd=folder)
        if code == 0 or "trains in it" not in said or time.monotonic() > until:
            return code, said
        time.sleep(1)
