"""Kills a command at some moment, repeats it until it ends, and compares its files with those of an unkilled one."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from experiments.files.digest import file_digest
from experiments.record.checkpoint_paths import PREFIX
from experiments.record.folder import RunFolder
from scripts.campaigns.nursery import Child
from tests.fixtures.outcome import outcome

TICK = 0.025  # seconds; a campaign that is large enough kills at least once in each tick of a life
POLL = 0.01  # seconds
AGAIN = 5  # the most times that a command is repeated without a kill
TOLD = ("log.txt", "output.txt", "lock")
WAIT = 60  # seconds that children of a killed process have to save and end


@dataclass(frozen=True)
class Subject:
    """A command, and how to read what it leaves."""

    start: Callable[[Path], Child]
    outcome: Callable[[Path], Any]
    done_before: tuple[int, ...] = (0,)  # its exit codes if everything was done already
    interrupts: bool = False  # whether runs are interrupted if it is killed, and save at a step between two intervals


def moments(life: float, chance: random.Random, count: int) -> Iterator[float]:
    """`count` random moments of a life, in seconds and in random order. Each tick has one before any tick has two."""
    ticks = range(max(1, int(life / TICK)))
    while count > 0:
        for tick in chance.sample(ticks, min(count, len(ticks))):
            yield (tick + chance.random()) * TICK
        count -= len(ticks)


def kill_all(child: Child) -> None:
    """Kill a process and then the processes that it has started."""
    with suppress(psutil.NoSuchProcess):
        started = psutil.Process(child.pid).children(recursive=True)
        child.kill()
        for each in started:
            with suppress(psutil.NoSuchProcess):
                each.kill()


def live(seconds: float, child: Child) -> float:
    """Wait until a process ends, but no longer than this time; returns the seconds that it ran."""
    begun, process = time.monotonic(), psutil.Process(child.pid)
    while (lived := time.monotonic() - begun) < seconds and process.status() != psutil.STATUS_ZOMBIE:
        time.sleep(min(POLL, seconds - lived))
    return time.monotonic() - begun


def kill_after(seconds: float, child: Child, kill: Callable[[Child], None]) -> tuple[bool, float]:
    """Kill a process after this time; returns whether that ended it, and the seconds that it ran."""
    lived = live(seconds, child)
    kill(child)
    return child.wait() < 0, lived


def ended(subject: Subject, folder: Path) -> str:
    """Repeat a command until it ends as it should, and return its last output."""
    for _ in range(AGAIN):
        child = subject.start(folder)
        if (code := child.wait()) in subject.done_before:
            break
        # children of a killed process still save and then end
        assert "wait for it" in child.output, (code, child.output)
        time.sleep(WAIT / AGAIN / 4)
    assert code in subject.done_before and "Traceback" not in child.output, (code, child.output)
    return child.output


@dataclass
class Tally:
    """The tries of a campaign so far."""

    life: float = 0.0
    tries: int = 0
    kills: int = 0

    def __str__(self) -> str:
        return f"{self.kills} kills in {self.tries} tries, life {self.life:.2f} s"


def kill_often(
    subject: Subject, folder: Path, chance: random.Random, kills: int, say: Callable[[str], None],
    kill: Callable[[Child], None] = Child.kill,
) -> None:  # fmt: skip
    """Kill a command `kills` times, at moments all over its life.

    Once it is repeated, it must leave the same files as a command that was not killed, and no others. In every other
    try, the repeated command is killed once more, at a random moment.
    """
    tally, whole = Tally(), folder / "whole"
    whole.mkdir(parents=True)
    begun = time.monotonic()
    first = subject.start(whole)
    assert first.wait() == 0, first.output
    tally.life = time.monotonic() - begun
    expected, names = subject.outcome(whole), left_in(whole, interrupted=subject.interrupts)
    assert expected
    while tally.kills < kills and tally.tries < 3 * kills:
        for moment in moments(tally.life, chance, kills - tally.kills):
            if tally.kills >= kills:
                break
            if moment > tally.life:
                continue
            place = folder / f"try{tally.tries}"
            place.mkdir()
            killed, lived = kill_after(moment, subject.start(place), kill)
            if not killed:
                # the first command may have taken longer, because it filled a cache
                tally.life = min(tally.life, lived)
            tally.kills += killed
            if tally.tries % 2:
                killed, _ = kill_after(chance.uniform(0, tally.life), subject.start(place), kill)
                tally.kills += killed
            tally.tries += 1
            ended(subject, place)
            assert subject.outcome(place) == expected, f"{place}: other bytes, after a kill at {moment:.3f} s"
            left = left_in(place, interrupted=subject.interrupts)
            assert left == names, f"{place}: {sorted(left ^ names)}, after a kill at {moment:.3f} s"
    say(str(tally))
    assert tally.kills, "every command ended before it was killed"


def left_in(folder: Path, *, interrupted: bool = False) -> set[str]:
    """The names of all files below a folder, except logs and locks.

    interrupted: leave the steps of checkpoints out, because the one before the last is of the step of an interruption.
    """
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name not in TOLD}
    return {re.sub(r"step-\d+", "step", name) for name in names} if interrupted else names


def runs_in(folder: Path) -> dict[str, Any]:
    """The outcome of every run below a folder."""
    configs = sorted(folder.rglob("config.yaml"))
    return {config.parent.name: outcome(RunFolder(config.parent)) for config in configs}


def interrupted_runs_in(folder: Path) -> dict[str, Any]:
    """The same without the checkpoint before the last, which is of the step of an interruption."""
    runs = {}
    for name, (lines, digests, predictions) in runs_in(folder).items():
        last = max(file for file, _ in digests if file.startswith(PREFIX["newest"]))
        earlier = {file for file, _ in digests if file.startswith(PREFIX["newest"]) and file != last}
        runs[name] = lines, {key: value for key, value in digests.items() if key[0] not in earlier}, predictions
    return runs


def files_in(folder: Path) -> dict[str, str]:
    """The digest of every file below a folder, except locks."""
    paths = (path for path in folder.rglob("*") if path.is_file() and "lock" not in path.name)
    return {str(path.relative_to(folder)): file_digest(path) for path in paths}
