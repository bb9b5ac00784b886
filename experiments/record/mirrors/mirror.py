"""The interface of a mirror of the run folder. W&B, TensorBoard and trackio each have one file beside this one."""

from __future__ import annotations

from typing import Any, Protocol

from experiments.record.folder import RunFolder
from experiments.record.result import Result


class Mirror(Protocol):
    """Another place where a run can be watched. The run folder remains the reference.

    Any method may raise; the mirror is then given up, and `Mirrors` lets the run continue. No method may wait for a
    network longer than a few seconds.
    """

    name: str  # its name in the run's log

    def __init__(self, folder: RunFolder, settings: dict[str, Any]) -> None:
        """Begin to mirror `folder`, whose metrics.jsonl has been truncated to the step from which the run continues.

        Earlier mirrored data is replaced, so a run that is continued has every step once. A failure releases all
        resources.
        """

    def log(self, step: int, metrics: dict[str, Any]) -> None:
        """Mirror a line of metrics.jsonl, that of `step`."""

    def finish(self, result: Result) -> None:
        """Mirror the result, write everything that is left, and release all resources."""

    def give_up(self) -> None:
        """Release all resources after a failure, without a message."""
