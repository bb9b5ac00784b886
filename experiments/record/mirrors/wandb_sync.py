"""Uploads to W&B of runs that were recorded offline, from their run folders."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from experiments.failures.failure import Failure
from experiments.record.folder import RunFolder
from experiments.record.mirrors.wandb_mirror import begin, files_of, finish, memory_of, remember, replay, uploadable
from experiments.record.mirrors.wandb_server import connect, in_a_line

FAILURES = 3  # runs in a row, after which an upload of many is given up

Project = tuple[str, str | None]  # project, entity


def sync(
    folders: Sequence[RunFolder], project: Project, say: Callable[[str], None], *, runs_named: bool, project_named: bool
) -> int:
    """Upload runs that were recorded offline, each as one W&B run; returns the number of runs that could not be
    uploaded.

    Only steps that the server lacks are sent, and a run that was uploaded completely is skipped. project: the
    destination, which overrides the run's settings, because these may be somebody else's. say: receives one line for
    each run, with its number among all. runs_named: whether the user named the runs; if not, those with
    `logger.wandb=off` are skipped. project_named: whether the user named the project; if not, a run that was uploaded
    elsewhere is skipped too.

    Raises Mistake if nobody is logged in, and Failure within a few seconds if the server cannot be reached, or later if
    several runs in a row could not be uploaded.
    """
    wandb = connect()
    failed = in_a_row = 0
    for number, folder in enumerate(folders, start=1):
        try:
            outcome, in_a_row = _upload(wandb, folder, project, runs_named, project_named), 0
        except Exception as error:
            outcome, failed, in_a_row = f"not uploaded: {in_a_line(error)}", failed + 1, in_a_row + 1
            # a failed run occupies its id until the service ends
            with suppress(Exception):
                wandb.teardown()
        say(f"[{number}/{len(folders)}] {folder.name}: {outcome}")
        if in_a_row == FAILURES and number < len(folders):
            raise Failure(
                f"{FAILURES} runs in a row could not be uploaded, so {len(folders) - number:,} were not tried; "
                "the same command continues"
            )
    return failed


def _upload(wandb: ModuleType, folder: RunFolder, project: Project, runs_named: bool, project_named: bool) -> str:
    destination = dict(zip(("project", "entity"), project, strict=True))
    result = folder.result()
    # once, because the run may log further lines meanwhile
    lines = folder.metrics.read()
    state = uploadable(lines, destination, result)
    before = memory_of(folder).get("uploaded")
    if before == state or (not project_named and isinstance(before, dict) and {**before, **destination} == state):
        return "uploaded before"
    settings = folder.config()
    own, logger = settings["logger"], {**settings["logger"], **destination}
    if own["wandb"] == "off" and not runs_named:
        return "logged nowhere (logger.wandb=off)"
    holder = folder.holder()
    if holder and not any(path.parent.name.startswith("offline-") for path in files_of(folder)):
        return f"{holder} is uploading it"
    folder.check_files()
    # the upload's own .wandb file need not be kept as a second copy of the run
    with tempfile.TemporaryDirectory() as root:
        run = begin(wandb, folder, {**settings, "logger": logger}, Path(root), online=True)
        count = replay(run, lines)
        finish(run, result)
        remember(folder, uploaded=state)
        other = (
            ""
            if project_named or own == logger
            else f"; its own settings name {_path(own)}; use --project to upload it there"
        )
        return f"{count} steps uploaded to {run.url}{other}"


def _path(logger: dict[str, Any]) -> str:
    """A place in the form of --project."""
    return "/".join(str(part) for part in (logger["entity"], logger["project"]) if part)
