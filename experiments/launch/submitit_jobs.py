"""Jobs of submitit, of which some may be killed, and whose time may be shorter than a cell takes."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from hydra.core.utils import JobReturn, JobStatus

from experiments.failures.failure import Mistake
from experiments.processes.interruption import Interrupted

if TYPE_CHECKING:
    from submitit import JobEnvironment

SUBMITIT_LOGS = ".submitit"  # Hydra's launchers make it in the sweep's folder


def check_slurm() -> None:
    """Raises Mistake if this machine lacks the commands of Slurm."""
    if shutil.which("srun") is None:
        raise Mistake(
            "hydra/launcher=submitit_slurm: there is no srun on this machine, so it cannot give jobs to Slurm",
            "hydra/launcher=submitit_local tries the same jobs on this machine",
        )


@contextmanager
def every_job_awaited() -> Iterator[None]:
    """A block in which Hydra's submitit launchers wait for every job. A job that was killed has returned nothing.

    By themselves, they would give up at the first job that was killed, while the others still run.
    """
    from submitit import Job
    from submitit.core.utils import FailedJobError, UncompletedJobError

    results = Job.results

    def results_or_nothing(job: Job[Any]) -> list[Any]:
        try:
            return results(job)
        except (FailedJobError, UncompletedJobError):
            return [JobReturn(status=JobStatus.COMPLETED)]

    Job.results = results_or_nothing  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        Job.results = results  # type: ignore[method-assign]


@contextmanager
def saved_before_requeue() -> Iterator[None]:
    """A block in which a job that is about to lose its cores first ends its cell, and is then requeued by submitit.

    Its time may be over, of which a signal tells it. If submitit requeued it at once, Slurm would kill the cell within
    a second, before it has saved. Or it is preempted with a time of grace, in which SIGTERM ends the cell. Slurm does
    not requeue a job that ends by itself in that time.
    """
    from submitit import JobEnvironment

    number = getattr(signal, f"SIG{JobEnvironment.USR_SIG}")
    requeue = signal.getsignal(number)
    received = False

    def end_cell(number: int, frame: FrameType | None) -> None:
        nonlocal received
        received = True
        signal.raise_signal(signal.SIGTERM)

    signal.signal(number, end_cell)
    try:
        yield
    except Interrupted:
        received = received or _is_preempted(JobEnvironment())
        if not received:
            raise
    finally:
        signal.signal(number, requeue)
    if received:
        signal.raise_signal(number)


def _is_preempted(job: JobEnvironment) -> bool:
    """Whether Slurm wants the cores of this job for another one."""
    if job.name() != "slurm":
        return False
    shown = subprocess.run(["scontrol", "show", "job", job.job_id], capture_output=True, text=True, timeout=60).stdout
    time = re.search(r"\bPreemptTime=(\S+)", shown)
    return time is not None and time[1] != "None"
