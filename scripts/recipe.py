"""Train the cells of docs/recipe.csv that have no result, fill in their results, and print the tables of
docs/small_differences.md.

    python scripts/recipe.py                     one cell at a time; it can be interrupted and started again
    python scripts/recipe.py --show              trains nothing
    python scripts/recipe.py data=text data.train=book.txt --cells mine.csv      other cells on another text

A row says how its cell differs from BASE. To try another choice, add a row without results.
"""

from __future__ import annotations

import argparse
import csv
import fcntl
import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from experiments.statistics.evidence import Anytime

REPOSITORY = Path(__file__).resolve().parent.parent
BASE = [
    "experiment=nano_table", "objective.rate=0.4", "optimizer=adamw", "schedule=linear", "model.rotary_base=64",
    "logger.wandb=off",
]  # fmt: skip
COLUMNS = ["question", "overrides", "steps", "seed", "loss_at_90_percent", "loss", "unigram_loss", "processor_seconds"]
PAIRS = [
    ("variant=multi_head heads=24", "variant=multi_head heads=6"),
    ("variant=talking_heads heads=24", "variant=multi_head heads=24"),
]
TO_RESOLVE = 0.02  # nats

Row = dict[str, str]


@contextmanager
def locked(runs: Path) -> Iterator[None]:
    """Hold the lock of the cells' folder, because workers read and write the same file of rows."""
    runs.mkdir(parents=True, exist_ok=True)
    with (runs / "cells.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read(path: Path) -> list[Row]:
    """The rows of the file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, rows: list[Row]) -> None:
    """Replace the file's rows."""
    draft = path.with_suffix(".draft")
    with draft.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    draft.replace(path)


def key(row: Row) -> tuple[str, ...]:
    """What identifies the cell of a row."""
    return row["overrides"], row["steps"], row["seed"]


def train(row: Row, runs: Path, more: list[str]) -> Row:
    """Train the row's cell in a separate process, and return the row with its result."""
    steps = int(row["steps"])
    settings = [f"max_steps={steps}", f"seed={row['seed']}", f"trainer.evaluate_every={steps * 9 // 10}"]
    folder = runs / re.sub(r"[^\w.]+", "-", "-".join(key(row)))
    own = row["overrides"].split()
    base = [override for override in BASE if override.split("=")[0] not in {each.split("=")[0] for each in own}]
    command = [sys.executable, str(REPOSITORY / "cli.py"), "train", *base, *more, *settings, *own]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "output.txt").open("w") as output:
        process = subprocess.Popen([*command, f"runs={folder}"], stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)}: failed, see {folder}/output.txt")
    [result_file] = folder.glob("*/result.json")
    result = json.loads(result_file.read_text())
    metrics = [json.loads(line) for line in (result_file.parent / "metrics.jsonl").read_text().splitlines()]
    evaluated = [each["validation_loss"] for each in metrics if "validation_loss" in each]
    return row | {
        "loss_at_90_percent": f"{evaluated[0]:.4f}",
        "loss": f"{result['validation_loss']:.4f}",
        "unigram_loss": f"{result['unigram_loss']:.4f}",
        "processor_seconds": f"{usage.ru_utime:.0f}",
    }


def work(path: Path, runs: Path, more: list[str], claimed: set[tuple[str, ...]]) -> None:
    """Train the rows without a result, in the order of the file, until none is left."""
    while True:
        with locked(runs):
            waiting = [row for row in read(path) if not row["loss"] and key(row) not in claimed]
            if not waiting:
                return
            claimed.add(key(waiting[0]))
        done = train(waiting[0], runs, more)
        with locked(runs):
            write(path, [done if key(row) == key(done) else row for row in read(path)])


def seeds_to_resolve(difference: float, deviation: float) -> int:
    """The fewest seeds whose interval around the difference excludes 0."""
    return next(count for count in range(2, 10_000) if Anytime().half_width(count, deviation) <= difference)


def mean(rows: list[Row], column: str) -> float:
    """The mean of a column."""
    return statistics.mean(float(row[column]) for row in rows)


def show(rows: list[Row]) -> None:
    """Print a line for each cell, then a line for each pair of cells that share at least two seeds."""
    cells: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["loss"]:
            cells.setdefault((row["overrides"], row["steps"]), []).append(row)
    print("loss   last tenth  seeds  processor s  steps  overrides")
    for (overrides, steps), seeds in cells.items():
        gained = mean(seeds, "loss_at_90_percent") - mean(seeds, "loss")
        print(
            f"{mean(seeds, 'loss'):.3f}  {gained:10.4f}  {len(seeds):5}  {mean(seeds, 'processor_seconds'):11.0f}  "
            f"{steps:5}  {overrides}"
        )
    print(f"\ndifference  deviation  seeds  processor s a pair  seeds to resolve {TO_RESOLVE}  minutes  pair")
    for (overrides, steps), seeds in cells.items():
        for one, other in PAIRS:
            others = {row["seed"]: row for row in cells.get((overrides.replace(one, other), steps), [])}
            both = [(row, others[row["seed"]]) for row in seeds if row["seed"] in others]
            if one not in overrides or len(both) < 2:
                continue
            differences = [float(row["loss"]) - float(base["loss"]) for row, base in both]
            deviation = statistics.stdev(differences)
            seconds = 2 * mean([row for pair in both for row in pair], "processor_seconds")
            needed = seeds_to_resolve(TO_RESOLVE, deviation)
            print(
                f"{statistics.mean(differences):+10.4f}  {deviation:9.4f}  {len(both):5}  {seconds:18.0f}  "
                f"{needed:21}  {needed * seconds / 60:7.0f}  "
                f"{one} less {other}:{overrides.replace(one, '')} {steps} steps"
            )


def main() -> None:
    """Read the arguments, then train or print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=Path, default=REPOSITORY / "docs" / "recipe.csv")
    parser.add_argument("--runs", type=Path, default=Path("runs/recipe"))
    parser.add_argument("--workers", type=int, default=1, help="cells side by side; their times then mean nothing")
    parser.add_argument("--show", action="store_true", help="print what has been trained, and train nothing")
    options, more = parser.parse_known_args()
    if not options.show:
        claimed: set[tuple[str, ...]] = set()
        with ThreadPoolExecutor(options.workers) as pool:
            workers = [pool.submit(work, options.cells, options.runs, more, claimed) for _ in range(options.workers)]
        for worker in workers:
            worker.result()
    show(read(options.cells))


if __name__ == "__main__":
    main()
