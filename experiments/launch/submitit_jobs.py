"""Jobs of submitit of which some may be killed.

Hydra's launcher would give up at the first one, while the others still run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hydra.core.utils import JobReturn, JobStatus


@contextmanager
def every_job_awaited(launcher: str) -> Iterator[None]:
    """A block in which Hydra's submitit launchers wait for every job. A job that was killed has returned nothing."""
    if not launcher.startswith("submitit_"):
        yield
        return
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
