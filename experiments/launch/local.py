"""The cells of a sweep, trained side by side on this machine, with their progress."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console

from experiments.cells.cell import folder_of
from experiments.cells.fork_server import ForkServer, can_fork
from experiments.cells.outcome import Outcome, earlier_outcome
from experiments.cells.prepare import prepare_in_child_process
from experiments.cells.resources import Workers, pool_for
from experiments.cells.runner import run_cells
from experiments.display.lines import say
from experiments.failures.failure import Failure
from experiments.launch.output import SweepProgress
from experiments.processes.interruption import Interruption
from experiments.settings.run import Settings
from experiments.tasks.choose import task_of


def train_cells(
    cells: Sequence[Settings], console: Console, workers: Workers = "auto", per_device: int = 1
) -> list[Outcome]:
    """Train the missing cells, `workers` at once and `per_device` on each GPU; the outcome of every cell in order.

    A cell that fails does not stop the others. Each cell gives the same numbers as alone. Raises Mistake if there is no
    room for so many workers, and Interrupted.
    """
    # several cells may be one run, such as equal rows of a table
    folders = [folder_of(cell).path for cell in cells]
    runs = dict(zip(folders, cells, strict=True))
    earlier = {folder: earlier_outcome(cell) for folder, cell in runs.items()}
    to_train = [cell for folder, cell in runs.items() if earlier[folder] is None]
    pool = pool_for(to_train or cells, workers, per_device)
    prepare_corpora(to_train)
    shown = SweepProgress(len(runs), console).shown([*earlier.values()])
    with shown as progress, fork_server(to_train, console) as server:
        trained = iter(run_cells(to_train, pool, server, progress.watch, progress.end))
    outcomes = {folder: outcome or next(trained) for folder, outcome in earlier.items()}
    return [outcomes[folder] for folder in folders]


def prepare_corpora(cells: Sequence[Settings], *, to_train: bool = True) -> None:
    """Make the missing corpora, each once and on all cores, before cells are limited to their own cores.

    to_train: whether the cells will be trained; if not, their folders are removed again. If a corpus cannot be made,
    each cell that needs it says why. Raises Interrupted.
    """
    distinct = {
        repr([cell.learns_from, cell.tokenizer, cell.objective, cell.row_length, cell.cache]): cell
        for cell in reversed(cells)
    }
    for cell in reversed(distinct.values()):
        folder = folder_of(cell)
        try:
            if task_of(cell).is_ready():
                continue
            with folder, Interruption():
                folder.create(cell.model_dump())
                prepare_in_child_process(cell, folder)
        except Failure:
            folder.discard()
        finally:
            if not to_train:
                folder.discard()


@contextmanager
def fork_server(cells: Sequence[Settings], console: Console) -> Iterator[ForkServer | None]:
    """A fork server if it saves time, which it does for several cells."""
    if not can_fork() or len(cells) < 2:
        yield None
        return
    with ForkServer() as server:
        if server.refusal:
            say(console, f"each cell starts its own interpreter, which takes seconds, because {server.refusal}")
        yield None if server.refusal else server
