"""The launchers of Hydra whose jobs need more than Hydra does for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass

from experiments.launch.submitit_jobs import check_slurm, every_job_awaited, saved_before_requeue

Block = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class Launcher:
    """What a launcher needs; by default nothing."""

    check: Callable[[], None] = lambda: None  # raises Mistake if this machine cannot start its jobs
    around_sweep: Block = nullcontext
    around_cell: Block = nullcontext  # in the job
    shares_machine: bool = False  # whether each of its jobs sees every core and GPU, and must reserve its own
    reads: tuple[str, ...] = ()  # settings of Hydra's, besides hydra.launcher


@contextmanager
def killed_workers_endured() -> Iterator[None]:
    """A block in which Hydra's joblib launcher ends without an error if one of its workers has been killed.

    joblib then kills the other workers and their cells too, and starts no further cell.
    """
    from joblib.externals.loky import BrokenProcessPool

    with suppress(BrokenProcessPool):
        yield


OF_SUBMITIT = ("hydra.job.name", "hydra.sweep.mode")
LAUNCHERS = {
    "joblib": Launcher(around_sweep=killed_workers_endured, shares_machine=True),
    "submitit_local": Launcher(
        around_sweep=every_job_awaited, around_cell=saved_before_requeue, shares_machine=True, reads=OF_SUBMITIT
    ),
    "submitit_slurm": Launcher(check_slurm, every_job_awaited, saved_before_requeue, reads=OF_SUBMITIT),
}


def launcher(name: str) -> Launcher:
    """The launcher of that name."""
    return LAUNCHERS.get(name, Launcher())
