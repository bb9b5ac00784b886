"""`attn sync`: upload runs that were trained offline."""

from __future__ import annotations

from pathlib import Path

from experiments.config.recorded import project_and_entity
from experiments.failures.exit_code import ExitCode
from experiments.failures.failure import Mistake
from experiments.record.folder import CONFIG, RESULT, RunFolder
from experiments.record.mirrors.wandb_sync import sync
from experiments.results.find import NO_RUNS, find_each, folders_in, where


def sync_runs(names: list[str], runs: Path, project: str | None) -> ExitCode:
    """Upload the named runs, or all that were logged; returns the exit code. Raises Failure.

    project: [ENTITY/]PROJECT; None for this machine's, even if a run folder names another one, which may be somebody
    else's.
    """
    destination = project_and_entity(project)
    folders = find_each(names, runs)
    # a run that lost one of these files is named
    folders = folders or [
        path for path in folders_in(runs) if any((path / name).is_file() for name in (CONFIG, RESULT))
    ]
    if not folders:
        raise Mistake(f"there are no runs {where(runs)}", NO_RUNS)
    failures = sync(
        [*map(RunFolder, folders)], destination, print, runs_named=bool(names), project_named=project is not None
    )
    return ExitCode.FAILED if failures else ExitCode.DONE
