"""The output of a sweep: its cells beforehand, its progress, and its outcomes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

from experiments.cells.cell import folder_of
from experiments.cells.outcome import Outcome, earlier_outcome
from experiments.cells.runner import RunningCell
from experiments.display.lines import say
from experiments.display.rows import show
from experiments.failures.failure import Mistake
from experiments.launch.check_cells import check_buildable, for_each_size
from experiments.record.errors import RunFolderError
from experiments.record.folder import RunFolder
from experiments.results.columns import COLUMNS, table_of, tables_of, untrained
from experiments.settings.run import Settings
from experiments.tasks.choose import task_of
from experiments.training.run_length import planned_steps


def print_cells(cells: list[Settings], console: Console, *, runs_here: bool) -> None:
    """The cells with parameters and predicted peak memory.

    Nothing is predicted for a cell that is to run on another machine with a kernel that this one lacks.
    """
    from experiments.model.layers.build_attention import wrong_arguments
    from experiments.training.predicted_memory import predict_peak_bytes

    def peak_bytes(cell: Settings) -> int | None:
        try:
            with wrong_arguments(cell.variant):
                return predict_peak_bytes(cell, task_of(cell).vocabulary_size())
        except Mistake:
            if runs_here:
                raise
            return None

    rows = []
    counts, peaks = check_buildable(cells, runs_here=runs_here), for_each_size(cells, peak_bytes)
    told_apart = table_of([untrained(cell) for cell in cells])
    for cell, parameters, peak, row in zip(cells, counts, peaks, told_apart, strict=True):
        rows.append(
            {
                "cell": folder_of(cell).name,
                # parts that the name does not show
                **{key: value for key, value in row.items() if key not in COLUMNS},
                "parameters": parameters,
                "predicted_peak_bytes": peak,
                "state": _state(cell),
            }
        )
    show(rows, "table", console=console)


def _state(cell: Settings) -> str:
    """What a sweep finds of a cell: for one that it cannot train, the reason."""
    if outcome := earlier_outcome(cell):
        return outcome.reason or "done"
    return "begun" if folder_of(cell).path.exists() else "to do"


class SweepProgress:
    """The number of finished, running and failed cells, and the remaining time: live on a terminal, else one line for
    each cell.
    """

    def __init__(self, total: int, console: Console) -> None:
        self._console = console
        self._total = total
        self._done = self._failed = self._skipped = 0
        self._started = time.monotonic()
        name = Column(ratio=1, no_wrap=True, overflow="ellipsis")
        self._bars = Progress(
            TextColumn("{task.description}", table_column=name), BarColumn(bar_width=20),
            TextColumn("{task.fields[count]}", table_column=Column(justify="right", no_wrap=True)),
            TextColumn("{task.fields[left]}", table_column=Column(no_wrap=True)),
            console=console, disable=not console.is_terminal, expand=True,
        )  # fmt: skip
        self._all = self._bars.add_task("cells", total=total, count=f"0/{total}", left="")
        self._running: dict[Path, TaskID] = {}  # by run folder
        self._blocked = False

    @contextmanager
    def shown(self, earlier: Iterable[Outcome | None] = ()) -> Iterator[SweepProgress]:
        """A block during which the bars are shown.

        earlier: the outcomes of the cells before it; None for one that is to be trained.
        """
        with self._bars:
            for outcome in filter(None, earlier):
                if outcome.done:
                    self._skipped += 1
                    self._say(f"{outcome.folder.name}: finished before")
                else:
                    self.end(outcome)
            yield self

    def watch(self, running: Iterable[RunningCell], blocked: bool) -> None:
        """Show the progress of each running cell, and the remaining time of the sweep.

        blocked: none runs, because other processes have what the next one needs, which a line says once.
        """
        if blocked and not self._blocked:
            self._say("the next cell waits, because other sweeps have reserved the GPUs that it could use")
        self._blocked = blocked
        shares = 0.0
        for cell in running:
            path, step, planned = cell.folder.path, _last_step(cell.folder), planned_steps(cell.settings)
            if path not in self._running:
                self._running[path] = self._bars.add_task(cell.folder.name, total=planned, count="", left="")
            count = f"{step}/{planned}" if planned else f"step {step}"
            self._bars.update(self._running[path], completed=step, count=count)
            shares += min(step / planned, 1.0) if planned else 0.0
        trained = self._done + self._failed + shares
        minutes = (time.monotonic() - self._started) / 60
        left = f"{minutes / trained * (self._total - self._skipped - trained):.0f} min left" if trained else ""
        self._show_all(shares, left)

    def end(self, outcome: Outcome) -> None:
        """Count a cell that has just ended, and print a line about it."""
        if outcome.failed:
            self._failed += 1
        else:
            self._done += 1
        if (bar := self._running.pop(outcome.folder.path, None)) is not None:
            self._bars.remove_task(bar)
        loss = f", loss {result.validation_loss:.4f}" if (result := outcome.finished_result) else ""
        self._say(f"{outcome.folder.name}: {outcome.reason or 'done'}{loss}")

    def _show_all(self, shares: float = 0.0, left: str = "") -> None:
        complete = self._skipped + self._done + self._failed
        failed = f", {self._failed} failed" if self._failed else ""
        self._bars.update(self._all, completed=complete + shares, count=f"{complete}/{self._total}{failed}", left=left)

    def _say(self, line: str) -> None:
        self._show_all()
        complete = self._skipped + self._done + self._failed
        say(self._console, f"[{complete}/{self._total}] {line}")


def _last_step(folder: RunFolder) -> int:
    """The last logged step of a cell; 0 if it cannot be read, which may end the cell, but no other one."""
    try:
        return folder.metrics.last_step()
    except RunFolderError:
        return 0


def print_outcomes(outcomes: list[Outcome], console: Console) -> None:
    """Print the finished cells as `attn compare` shows them, then the failed ones."""
    done = ((outcome.folder.name, outcome.finished_result) for outcome in outcomes)
    for rows in tables_of([result.to_dict() | {"run": name} for name, result in done if result]):
        show(rows, "table", console=console)
    print_failed(outcomes, console, "the same command tries them again")


def print_failed(outcomes: list[Outcome], console: Console, hint: str) -> None:
    """Print every failed cell with its reason and its log, if there is one."""
    failed = [outcome for outcome in outcomes if outcome.failed]
    for outcome in failed:
        say(console, f"failed: {outcome.folder.name}: {outcome.reason}")
        if os.path.exists(output := outcome.folder.path / "output.txt"):  # noqa: PTH110, also for a folder without rights
            say(console, f"        {output}")
    if failed:
        say(console, f"{len(failed)} of {len(outcomes)} cells failed; {hint}")
