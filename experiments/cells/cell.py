"""One run: its folder is made or found, locked, and trained in.

`python -m experiments.cells.cell ASSIGNMENT` trains the configuration in the assignment's folder. A sweep starts such
a process for each cell, or forks an equivalent one.
"""

from __future__ import annotations

import signal
import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.cells.assignment import Assignment, pin_to_cores
from experiments.cells.prepare import prepare_in_child_process
from experiments.config.check import from_tree
from experiments.data.cache import Cache, other_tokens
from experiments.data.errors import DataError
from experiments.display.lines import warn
from experiments.display.progress import Display
from experiments.display.summary import print_summary
from experiments.failures.exit_code import ExitCode
from experiments.failures.failure import Failure, Mistake
from experiments.measure.cores import Neighbours
from experiments.processes.child import end_with_parent
from experiments.processes.interruption import Interrupted, Interruption
from experiments.record.code.changed import changed_code
from experiments.record.folder import RunFolder, configuration_digest, run_name
from experiments.record.result import Result
from experiments.settings.run import Settings
from experiments.tasks.choose import task_of
from experiments.training.distributed.start import TorchrunProcess, torchrun_group, with_followers

if TYPE_CHECKING:
    from experiments.training.run import Pruner
    from experiments.training.step.world import World

EXIT_CODE_OF_STATUS = {
    "done": ExitCode.DONE,
    "pruned": ExitCode.DONE,
    "nan": ExitCode.NOT_FINITE,
    "oom": ExitCode.OUT_OF_MEMORY,
}


def folder_of(settings: Settings) -> RunFolder:
    """The run folder of a configuration. The same configuration has the same folder. Nothing is created."""
    return RunFolder(Path(settings.runs) / run_name(settings.model_dump()))


def finished_result(settings: Settings) -> Result | None:
    """The result of a finished run.

    Raises RunFolderError, and DataError as `check_unchanged` does.
    """
    folder = folder_of(settings)
    result = folder.result()
    if result is None or result.status != "done":
        return None
    folder.check_files()
    check_unchanged(settings, folder, result)
    return result


def check_unchanged(settings: Settings, folder: RunFolder, result: Result) -> None:
    """Raises DataError if a result is that of another configuration, as in a folder that was renamed, or was computed
    with other code, another tokenizer, another text or other tokens than the present ones.
    """
    anew = "start again in another folder with runs=FOLDER"
    own, asked = configuration_digest(result.config or {}), configuration_digest(settings.model_dump())
    if own != asked:
        raise DataError(f"{folder.path}: contains a run of another configuration (digest {own}, not {asked}); {anew}")
    if changed := changed_code(folder, settings.model_dump(), result):
        raise DataError(f"{changed} has changed since {folder.path} was trained; {anew}")
    task = task_of(settings)
    if task.tokenizer_digest() not in (None, result.tokenizer_digest):
        raise DataError(f"{folder.path} was trained with another tokenizer than the present one; {anew}")
    if task.identity() not in (None, result.corpus):
        raise DataError(f"{folder.path} was trained on a different text than the present one; {anew}")
    cache = Cache(Path(settings.cache), None)
    if any(cache.contents(name) not in ({}, {name: tokens}) for name, tokens in (result.sequences or {}).items()):
        raise DataError(f"{other_tokens(folder.path, settings.cache)}; {anew}")


def execute(
    settings: Settings, cells_at_once: int = 1, torchrun: TorchrunProcess | None = None, pruner: Pruner | None = None
) -> ExitCode:
    """Train, continue, or find a finished run; returns the exit code, also after a signal. Raises Failure.

    cells_at_once: the number of cells that are trained side by side, including this one.

    torchrun: the identity of this process if torchrun has started several for the run. pruner: that of a search.
    """
    if torchrun is None:
        return _train_as_first_process(settings, cells_at_once, with_followers(settings, folder_of(settings)), pruner)
    with torchrun_group(settings, torchrun) as group:
        if torchrun.rank == 0:
            return _train_as_first_process(settings, cells_at_once, nullcontext(group))
        from experiments.training.distributed.follower import follow

        follow(settings, group)
        return ExitCode.DONE


def _train_as_first_process(
    settings: Settings, cells_at_once: int, processes: AbstractContextManager[World], pruner: Pruner | None = None
) -> ExitCode:
    """Train, continue, or find a finished run, in the process that holds its folder; returns the exit code.

    If a mistake shows only with the data or the sizes, a folder that was made for this run is removed again. processes:
    a block with the processes that share the steps of the run.
    """
    folder = folder_of(settings)
    result = finished = finished_result(settings)
    is_first = not folder.path.parent.exists()
    if result is None:
        neighbours = Neighbours(cells_at_once)
        try:
            with folder, Interruption(), Display() as display:
                # another process may have finished the run before this one had its folder
                result = finished = finished_result(settings)
                if result is None:
                    folder.create(settings.model_dump())
                    prepare_in_child_process(settings, folder)
                    display.stage("starting", 0, None)
                    # torch is imported only here: a mistake in settings or data, or a finished run, does not need it
                    from experiments.training.train import train

                    with processes as world:
                        result = train(settings, folder, display, neighbours, world, pruner)
        except Mistake:
            folder.discard()
            if is_first:
                with suppress(OSError):
                    folder.path.parent.rmdir()
            raise
        except Interrupted as interrupted:
            warn(f"{interrupted.reason}: the same command continues from {folder.path}")
            return interrupted.exit_code
    if finished:
        warn(f"{folder.path}: finished before; nothing is left to train")
    print_summary(result, folder)
    return EXIT_CODE_OF_STATUS[result.status]


def main() -> ExitCode:
    """Train the run of the first argument."""
    return train_assigned(Assignment.from_line(sys.argv[1]))


def train_assigned(assignment: Assignment) -> ExitCode:
    """Train the run in the folder of an assignment, in a child whose parent holds the other end of stdin."""
    pin_to_cores(assignment.cores)
    # which makes the cell save and end
    end_with_parent(signal.SIGTERM)
    try:
        settings = from_tree(RunFolder(assignment.folder).config())
        return execute(settings, assignment.cells_at_once, pruner=assignment.pruner)
    except Failure as failure:
        warn(str(failure))
        return failure.exit_code


if __name__ == "__main__":
    sys.exit(main())
