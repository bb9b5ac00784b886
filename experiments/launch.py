"""`attn train`, whole: the words are planned, then one run trains here, or each cell of a sweep in its own process."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from rich.console import Console

from experiments.command_line import ASKING_FLAGS, hydra_main, split_words
from experiments.explain import Mistake
from experiments.run import execute
from experiments.settings import Settings
from experiments.sweep.plan import Plan, plan

SWEEP_FAILED = 3


def launch(words: list[str]) -> int:
    """Do what the words after `attn train` say; the exit code. Raises Mistake before anything is changed."""
    dry_run = "--dry-run" in words
    overrides, flags = split_words([word for word in words if word != "--dry-run"])
    if ASKING_FLAGS & {flag.split("=", 1)[0] for flag in flags}:
        hydra_main(_nothing, overrides, flags)
        return 0
    planned = plan(overrides, flags)
    if dry_run:
        return _dry_run(planned)
    if not planned.is_sweep:
        return execute(planned.cells[0])
    name = sweep_name(overrides)
    if planned.runs_here:
        return _sweep_here([_grouped(cell, name) for cell in planned.cells])
    return _sweep_elsewhere(planned, overrides, flags, name)


def sweep_name(overrides: list[str]) -> str:
    """The same words, in any order, have the same sweep."""
    relevant = sorted(word for word in overrides if not word.startswith(("hydra.", "hydra/")))
    return "sweep-" + hashlib.sha256("\n".join(relevant).encode()).hexdigest()[:8]


def _nothing(config: object) -> None:
    """The task of a command that only asks."""


def _grouped(settings: Settings, name: str) -> Settings:
    """The settings with the sweep's name as the group in W&B, unless the user named one."""
    if settings.logger.group is not None:
        return settings
    return settings.model_copy(update={"logger": settings.logger.model_copy(update={"group": name})})


def _dry_run(planned: Plan) -> int:
    if not planned.cells:
        raise Mistake(f"--dry-run: the cells of the {planned.sweeper} sweeper are known only while it runs")
    from experiments.sweep.report import print_cells

    print_cells(planned.cells, Console())
    return 0


def _sweep_here(cells: list[Settings]) -> int:
    from experiments.sweep.report import SweepProgress, check_buildable, print_outcomes
    from experiments.sweep.runner import Interrupted, done_before, run_cell
    from experiments.training.planned import planned_steps

    check_buildable(cells)
    console = Console()
    outcomes = []
    try:
        with SweepProgress(len(cells), console).shown() as progress:
            for cell in cells:
                outcome = done_before(cell)
                if outcome is not None:
                    progress.skip(outcome)
                else:
                    outcome = run_cell(cell, functools.partial(progress.watch, planned_steps=planned_steps(cell)))
                    progress.end(outcome)
                outcomes.append(outcome)
    except Interrupted as interrupted:
        console.print(f"{interrupted}; the same command goes on from here")
        return interrupted.exit_code
    print_outcomes(outcomes, console)
    return 0 if all(outcome.done for outcome in outcomes) else SWEEP_FAILED


def _sweep_elsewhere(planned: Plan, overrides: list[str], flags: list[str], name: str) -> int:
    """Hydra's own launcher or sweeper; each job still trains in a process of its own."""
    from experiments.sweep.job import job, read_ledger

    runs = Path(planned.cells[0].runs if planned.cells else "runs")
    folder = runs / "sweeps" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cells.txt").unlink(missing_ok=True)
    words = [f"hydra.sweep.dir={folder}", *([] if _names_group(overrides) else [f"logger.group={name}"])]
    hydra_main(job, [*overrides, *words], flags)
    became = read_ledger(folder)
    for cell, state in became.items():
        print(f"{cell}: {state}")
    return 0 if all(state == "done" for state in became.values()) else SWEEP_FAILED


def _names_group(overrides: list[str]) -> bool:
    return any(word.startswith("logger.group=") for word in overrides)
