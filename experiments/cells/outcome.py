"""The outcome of a cell, as its run folder has it, or as a ledger says."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.cells.cell import finished_result, folder_of
from experiments.failures.failure import Failure
from experiments.record.folder import RESULT, RunFolder
from experiments.record.result import Result
from experiments.settings.run import Settings


@dataclass(frozen=True)
class Outcome:
    """The outcome of a cell: its result, or the reason why there is none."""

    folder: RunFolder
    result: Result | None
    reason: str  # empty when done
    refused: bool = False  # by its process, for its settings or its text

    @property
    def finished_result(self) -> Result | None:
        """The result of a cell that is done, else None."""
        return self.result if self.result is not None and self.result.status == "done" else None

    @property
    def done(self) -> bool:
        """Whether the cell has a result and its status is `done`."""
        return self.finished_result is not None

    @property
    def pruned(self) -> bool:
        """Whether a search has ended the cell early, which is not a failure."""
        return self.result is not None and self.result.status == "pruned"

    @property
    def failed(self) -> bool:
        """Whether the cell is neither done nor pruned."""
        return not self.done and not self.pruned


def earlier_outcome(settings: Settings) -> Outcome | None:
    """The outcome of a cell that needs no training, or cannot be trained."""
    try:
        result = finished_result(settings)
    except Failure as error:
        return Outcome(folder_of(settings), None, str(error))
    return Outcome(folder_of(settings), result, "") if result else None


def outcome_of(folder: RunFolder, state: str) -> Outcome:
    """The outcome that a ledger records: `done`, or the reason for another end."""
    if state != "done":
        return Outcome(folder, None, state)
    result = folder.result()
    # a network file system may show it to this host only some time later
    return Outcome(folder, result, "" if result else f"its job is done, but {folder.path / RESULT} is not to be seen")
