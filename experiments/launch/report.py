"""What a sweep shows: its cells beforehand, its progress, and what became of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from experiments.display.comparison import COLUMNS, table_of, tables_of
from experiments.display.rows import show
from experiments.launch.cell import finished, folder_of
from experiments.launch.worker import Outcome
from experiments.record.folder import RunFolder
from experiments.settings.mistake import Mistake
from experiments.settings.run import Settings
from experiments.tasks.choose import task_of


def check_buildable(cells: list[Settings]) -> list[int]:
    """Parameters of each cell. Raises Mistake that names every cell whose variant refuses its sizes."""
    import torch

    counts, wrong = [], []
    for cell in cells:
        try:
            source = task_of(cell)
            with torch.device("meta"):
                model = source.build_model(source.vocabulary_size())
            counts.append(model.parameter_counts()["total"])
        except Mistake as error:
            wrong.append(f"{folder_of(cell).name}: {error}")
    if wrong:
        raise Mistake("\n".join(wrong), f"{len(wrong)} of {len(cells)} cells are wrong; none was started")
    return counts


def print_cells(cells: list[Settings], console: Console) -> None:
    """The cells with parameters and predicted peak memory."""
    from experiments.training.predicted_memory import predict_peak_bytes

    rows = []
    told_apart = table_of([{"config": cell.model_dump(), "seed": cell.seed} for cell in cells])
    for cell, parameters, settings in zip(cells, check_buildable(cells), told_apart, strict=True):
        folder = folder_of(cell)
        rows.append(
            {
                "cell": folder.name,
                # what the name doesn't tell
                **{key: value for key, value in settings.items() if key not in COLUMNS},
                "parameters": parameters,
                "predicted_peak_bytes": predict_peak_bytes(cell, task_of(cell).vocabulary_size()),
                "state": "done" if finished(cell) else "begun" if folder.path.exists() else "to do",
            }
        )
    show(rows, "table", console=console)


class SweepProgress:
    """Cells done, running and failed, and the time left: a live bar on a terminal, a line a cell elsewhere."""

    def __init__(self, total: int, console: Console) -> None:
        self._console = console
        self._total = total
        self._done = self._failed = self._skipped = 0
        self._started = time.monotonic()
        self._bar = Progress(
            TextColumn("cells"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"),
            TimeElapsedColumn(), TextColumn("{task.fields[left]}"), console=console, disable=not console.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task("", total=total, left="")

    @contextmanager
    def shown(self) -> Iterator[SweepProgress]:
        """Show the bar while the block runs."""
        with self._bar:
            yield self

    def skip(self, outcome: Outcome) -> None:
        """Count a cell that was done before the sweep began."""
        self._skipped += 1
        self._say(f"{outcome.folder.name}: done before")

    def watch(self, folder: RunFolder, planned_steps: int | None) -> None:
        """Show how far the cell of this folder is, and the time that the sweep still takes."""
        step = folder.last_step()
        share = min(step / planned_steps, 1.0) if planned_steps else 0.0
        complete = self._skipped + self._done + self._failed + share
        trained = self._done + self._failed + share
        left = (time.monotonic() - self._started) / trained * (self._total - complete) if trained > 0 else None
        failed = f", {self._failed} failed" if self._failed else ""
        self._bar.update(
            self._task, completed=complete, description=f"{folder.name} step {step}{failed}",
            left=f"{left / 60:.0f} min left" if left is not None else "",
        )  # fmt: skip

    def end(self, outcome: Outcome) -> None:
        """Count a cell that has just ended, done or failed, and print a line about it."""
        if outcome.done:
            self._done += 1
        else:
            self._failed += 1
        loss = f", loss {outcome.result.validation_loss:.4f}" if outcome.done and outcome.result else ""
        self._say(f"{outcome.folder.name}: {outcome.reason or 'done'}{loss}")

    def _say(self, line: str) -> None:
        complete = self._skipped + self._done + self._failed
        self._bar.update(self._task, completed=complete)
        self._console.print(f"[{complete}/{self._total}] {line}", markup=False, highlight=False, soft_wrap=True)


def print_outcomes(outcomes: list[Outcome], console: Console) -> None:
    """The finished cells as `attn compare` shows them, then every failed one with its reason and any log it left."""
    done = [(outcome.folder.name, outcome.result) for outcome in outcomes if outcome.done and outcome.result]
    for rows in tables_of([result.to_dict() | {"run": name} for name, result in done]):
        show(rows, "table", console=console)
    failed = [outcome for outcome in outcomes if not outcome.done]
    for outcome in failed:
        console.print(f"failed: {outcome.folder.name}: {outcome.reason}", markup=False, highlight=False, soft_wrap=True)
        if (output := outcome.folder.path / "output.txt").exists():
            console.print(f"        {output}", markup=False, highlight=False, soft_wrap=True)
    if failed:
        console.print(f"{len(failed)} of {len(outcomes)} cells failed; the same command tries them again")
