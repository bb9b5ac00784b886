"""`attn train`: reads its arguments and passes on the plan of one run or of the cells of a sweep."""

from __future__ import annotations

from typing import NamedTuple

from experiments.cells.resources import Workers, parse_per_device, parse_workers, pool_for
from experiments.config.answer import answer
from experiments.config.command_line import HELP_FLAGS, CommandLine, question, split_arguments
from experiments.display.lines import warn
from experiments.failures.exit_code import ExitCode
from experiments.failures.failure import Mistake, once
from experiments.failures.unread import check_read
from experiments.launch.check_cells import check_buildable, check_data
from experiments.launch.plan import Delegated, HydraSweep, OptunaSearch, Plan, SingleRun, plan
from experiments.settings.run import Settings
from experiments.training.distributed.start import torchrun_process

DRY_RUN, WORKERS, PER_DEVICE = "--dry-run", "--workers", "--per-device"


class Options(NamedTuple):
    """The command's own flags; the others are Hydra's."""

    dry_run: bool = False
    workers: Workers | None = None  # None: not given
    per_device: int | None = None  # cells that share a GPU; None: not given

    @property
    def given(self) -> dict[str, object]:
        """The flags that are given, with their values."""
        values = {DRY_RUN: self.dry_run or None, WORKERS: self.workers, PER_DEVICE: self.per_device}
        return {flag: value for flag, value in values.items() if value is not None}


def launch(arguments: list[str]) -> ExitCode:
    """Carry out the command and return the exit code. Raises Mistake before anything is changed."""
    options, rest = take_options(arguments)
    return launch_with(options, CommandLine(*split_arguments(rest)))


def launch_with(options: Options, line: CommandLine) -> ExitCode:
    """Carry out the command with its own flags and those of Hydra, and return the exit code. Raises Mistake."""
    if asked := question(line.flags):
        if asked not in HELP_FLAGS:
            check_read({asked: "", "a sweep": f"{WORKERS} {PER_DEVICE}"}, options.given, asked)
        answer(line)
        return ExitCode.DONE
    planned = plan(line)
    for note in dict.fromkeys(filter(None, map(uneven_heads, planned.cells))):
        warn(note)
    for flag in (WORKERS, PER_DEVICE):
        if flag in options.given:
            _check_side_by_side(flag, planned)
    if options.dry_run:
        return _dry_run(planned, options)
    if isinstance(planned, SingleRun):
        from experiments.cells.cell import execute, finished_result

        # a finished run needs no model, so torch is not imported for it
        if finished_result(planned.cells[0]) is None:
            check_buildable(planned.cells)
        return execute(planned.cells[0], torchrun=torchrun_process())
    if torchrun_process() is not None:
        raise Mistake("torchrun starts the processes of a single run; start a sweep without it, with trainer.devices=N")
    from experiments.launch.sweep import run_sweep

    check_data(planned.cells)
    check_buildable(planned.cells, runs_here=not isinstance(planned, Delegated))
    return run_sweep(planned, options.workers or "auto", options.per_device or 1)


def uneven_heads(settings: Settings) -> str | None:
    """A line about heads that leave a part of the hidden size over, if they were to share it; None for others."""
    heads, hidden_size, size = settings.heads, settings.hidden_size, settings.key_size
    if hidden_size % heads == 0 or size != hidden_size // heads:
        return None
    return (
        f"heads={heads} does not divide hidden_size={hidden_size}: "
        f"key_size={size}, so all heads together have width {heads * size}"
    )


def take_options(arguments: list[str]) -> tuple[Options, list[str]]:
    """The command's own flags, and the other arguments. Raises Mistake for a wrong value, and for a second one."""
    options, rest, left = Options(), [], [*arguments]
    given: list[tuple[str, str]] = []
    while left:
        flag, equals, value = left.pop(0).partition("=")
        if flag in (WORKERS, PER_DEVICE):
            value = value if equals or not left else left.pop(0)
            given.append((flag, value))
        if flag == DRY_RUN and not equals:
            options = options._replace(dry_run=True)
        elif flag == WORKERS:
            options = options._replace(workers=parse_workers(value))
        elif flag == PER_DEVICE:
            options = options._replace(per_device=parse_per_device(value))
        else:
            rest.append(flag + equals + value)
    once(given)
    return options, rest


def _check_side_by_side(flag: str, planned: Plan) -> None:
    """Raises Mistake for a flag about cells side by side where this command does not decide that."""
    if isinstance(planned, SingleRun):
        raise Mistake(f"{flag}: a single run has no workers", "add -m for a sweep, or set trainer.threads=N")
    if isinstance(planned, Delegated):
        raise Mistake(f"{flag}: {planned.chosen} decides which cells run at once", "leave one of them out")


def _dry_run(planned: Plan, options: Options) -> ExitCode:
    runs_here = not isinstance(planned, Delegated)
    if runs_here:
        # raises Mistake for more than this machine has room for; there is always room for one
        pool_for(planned.cells, options.workers or 1, options.per_device or 1)
    match planned:
        case OptunaSearch():
            from experiments.launch.search import print_search

            print_search(planned)
        case HydraSweep(cells=[]):
            raise Mistake(f"--dry-run: the cells of the {planned.chosen.sweeper} sweeper are known only while it runs")
        case _:
            from rich.console import Console

            from experiments.launch.output import print_cells

            print_cells(planned.cells, Console(), runs_here=runs_here)
    return ExitCode.DONE
