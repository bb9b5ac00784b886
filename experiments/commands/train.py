"""`attn train`: reads its arguments and hands on a plan, of one run or of the cells of a sweep."""

from __future__ import annotations

from experiments.config.command_line import hydra_main, only_asks, split_arguments
from experiments.launch.plan import Plan, check_data, plan
from experiments.settings.exit_code import ExitCode
from experiments.settings.mistake import Mistake

DRY_RUN = "--dry-run"


def launch(arguments: list[str], name: str = "config") -> ExitCode:
    """Do what the arguments say and return the exit code. Raises Mistake before anything is changed.

    name: the file of `conf/` that is composed, where the command is another than `attn train`.
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
    from experiments.launch.report import check_buildable
    from experiments.launch.sweep import run_sweep

    check_data(planned.cells)
    check_buildable(planned.cells)
    return run_sweep(planned, overrides, flags, name)


def _nothing(config: object) -> None:
    """The task of a command that only asks."""


def _dry_run(planned: Plan) -> ExitCode:
    if not planned.cells:
        raise Mistake(f"--dry-run: the cells of the {planned.sweeper} sweeper are known only while it runs")
    from rich.console import Console

    from experiments.launch.report import print_cells

    print_cells(planned.cells, Console())
    return ExitCode.DONE
