"""`attn train`, whole: the words are planned, then one run trains here, or each cell of a sweep in its own process."""

from __future__ import annotations

import hashlib
from pathlib import Path

from experiments.config.command_line import hydra_main, only_asks, split_arguments
from experiments.launch.plan import Plan, in_sweep, plan
from experiments.settings.mistake import ExitCode, Mistake
from experiments.settings.run import Settings

DRY_RUN = "--dry-run"


def launch(arguments: list[str], name: str = "config") -> ExitCode:
    """Do what the words after `attn train` say; the exit code. Raises Mistake before anything is changed.

    name: of the file of `conf/` that they are about, where it is another command's.
    """
    dry_run = DRY_RUN in arguments
    overrides, flags = split_arguments([argument for argument in arguments if argument != DRY_RUN])
    if only_asks(flags):
        hydra_main(_nothing, overrides, flags, name)
        return ExitCode.DONE
    planned = plan(overrides, flags, name)
    if dry_run:
        return _dry_run(planned)
    if not planned.is_sweep:
        from experiments.launch.cell import execute

        return execute(planned.cells[0])
    from experiments.launch.plan import check_data
    from experiments.launch.report import check_buildable

    check_data(planned.cells)
    check_buildable(planned.cells)
    if planned.runs_here:
        return _sweep_here([in_sweep(cell, sweep_name(overrides)) for cell in planned.cells])
    return _sweep_elsewhere(planned, overrides, flags, name)


def sweep_name(overrides: list[str]) -> str:
    """The same words, in any order, have the same sweep."""
    relevant = sorted(word for word in overrides if not word.startswith(("hydra.", "hydra/")))
    return "sweep-" + hashlib.sha256("\n".join(relevant).encode()).hexdigest()[:8]


def _nothing(config: object) -> None:
    """The task of a command that only asks."""


def _dry_run(planned: Plan) -> ExitCode:
    if not planned.cells:
        raise Mistake(f"--dry-run: the cells of the {planned.sweeper} sweeper are known only while it runs")
    from rich.console import Console

    from experiments.launch.report import print_cells

    print_cells(planned.cells, Console())
    return ExitCode.DONE


def _sweep_here(cells: list[Settings]) -> ExitCode:
    from rich.console import Console

    from experiments.launch.local import train_cells
    from experiments.launch.report import print_outcomes
    from experiments.training.interruption import Interrupted

    console = Console()
    try:
        outcomes = train_cells(cells, console)
    except Interrupted as interrupted:
        console.print(f"{interrupted}; the same command goes on from here")
        return interrupted.exit_code
    print_outcomes(outcomes, console)
    return ExitCode.DONE if all(outcome.done for outcome in outcomes) else ExitCode.SWEEP_FAILED


def _sweep_elsewhere(planned: Plan, overrides: list[str], flags: list[str], name: str) -> ExitCode:
    """Hydra's own launcher or sweeper; each job still trains in a process of its own."""
    from rich.console import Console

    from experiments.launch.hydra_job import LEDGER, job, read_ledger
    from experiments.launch.report import print_outcomes
    from experiments.launch.worker import outcome_of
    from experiments.record.folder import RunFolder

    runs = Path(planned.runs)
    folder = runs / "sweeps" / sweep_name(overrides)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / LEDGER).unlink(missing_ok=True)
    hydra_main(job, [*overrides, f"hydra.sweep.dir={folder}"], flags, name)
    became = read_ledger(folder)
    outcomes = [outcome_of(RunFolder(runs / cell), state) for cell, state in became.items()]
    print_outcomes(outcomes, Console())
    return ExitCode.DONE if all(outcome.done for outcome in outcomes) else ExitCode.SWEEP_FAILED
