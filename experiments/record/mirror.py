"""What a mirror of the run folder is: W&B, TensorBoard and trackio are each one file beside this one."""

from __future__ import annotations

from typing import Any, Protocol

from experiments.record.folder import RunFolder
from experiments.record.result import Result


class Mirror(Protocol):
    """Another place where a run can be watched. The run folder decides what is true.

    Any method may raise, and then the mirror is given up: `Mirrors` sees to it that the run goes on. None may wait
    for a network longer than a few seconds.
    """

    name: str  # as the run's log names it

    def start(self, folder: RunFolder, settings: dict[str, Any], group: str | None = None) -> None:
        """Begin to mirror `folder`, whose metrics.jsonl has been truncated to the step from which the run goes on.

        What was mirrored before is replaced, so that a run which goes on has every step once.
        group: the sweep's name; settings["logger"]["group"] wins over it.
        """

    def log(self, step: int, metrics: dict[str, Any]) -> None:
        """Mirror a line of metrics.jsonl, that of `step`."""

    def finish(self, result: Result) -> None:
        """Mirror the result, write what is not written yet, and let go of everything."""

    def give_up(self) -> None:
        """Let go of everything after a failure, in silence."""
