"""A sweep, from its plan to its outcomes: by our own runner, by Ray, or by one of Hydra's launchers or sweepers."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from experiments.cells.cell import folder_of
from experiments.cells.outcome import Outcome, earlier_outcome, outcome_of
from experiments.cells.resources import Workers
from experiments.config.command_line import hydra_main, quoted
from experiments.display.lines import say
from experiments.failures.exit_code import ExitCode
from experiments.files.durable import folder_for
from experiments.launch.hydra_job import job, ledger_size, read_ledger
from experiments.launch.launchers import launcher
from experiments.launch.local import train_cells
from experiments.launch.output import print_outcomes
from experiments.launch.plan import HydraSweep, LocalSweep, OptunaSearch, RaySweep, Sweep, labelled_with_sweep
from experiments.launch.ray_tasks import train_on_ray
from experiments.launch.search import run_search
from experiments.launch.submitit_jobs import SUBMITIT_LOGS
from experiments.processes.interruption import Interrupted
from experiments.record.errors import or_other_runs
from experiments.record.folder import SWEEPS, RunFolder
from experiments.settings.plugins import with_plugins


def run_sweep(planned: Sweep, workers: Workers, per_device: int = 1) -> ExitCode:
    """Train every cell of a plan that is not finished, print the outcomes, and return the exit code.

    workers: the number of cells that our own runner trains side by side. per_device: the number that share a GPU.
    """
    console = Console()
    try:
        match planned:
            case OptunaSearch():
                return run_search(planned, workers, per_device, console)
            case LocalSweep(cells, name):
                outcomes = train_cells(
                    [labelled_with_sweep(cell, name) for cell in cells], console, workers, per_device
                )
            case RaySweep(cells, name, cluster=cluster):
                outcomes = train_on_ray([labelled_with_sweep(cell, name) for cell in cells], cluster, console)
            case HydraSweep():
                outcomes = _train_with_hydra(planned)
    except Interrupted as interrupted:
        say(console, f"{interrupted}; the same command continues")
        return interrupted.exit_code
    print_outcomes(outcomes, console)
    return ExitCode.DONE if all(outcome.done for outcome in outcomes) else ExitCode.SWEEP_FAILED


def _train_with_hydra(planned: HydraSweep) -> list[Outcome]:
    """Let Hydra's launcher or sweeper decide when and where a job runs.

    Each job still trains in a process of its own. Raises Mistake if this machine cannot start jobs.
    """
    its = launcher(planned.chosen.launcher)
    its.check()
    line = planned.command
    folder = Path(planned.runs) / SWEEPS / line.sweep
    with or_other_runs():
        folder_for(folder)
    # an equal sweep, which may run now, has the same ledger
    begun_at = ledger_size(folder)
    with its.around_sweep():
        own = f"hydra.sweep.dir={quoted(str(folder))}"
        hydra_main(with_plugins(job), line._replace(overrides=[*line.overrides, own]))
    logs = folder / SUBMITIT_LOGS
    ended = "its job was ended, or never began" + (f"; the launcher's logs: {logs}" if logs.is_dir() else "")
    # the run folder counts: a job may have finished its cell, and have been ended before it wrote a line
    finished = {folder_of(cell).path: earlier_outcome(cell) for cell in planned.cells}
    states = dict.fromkeys(finished, ended) | read_ledger(folder, begun_at)
    return [finished.get(path) or outcome_of(RunFolder(path), state) for path, state in states.items()]
