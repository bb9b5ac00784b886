"""Uploads to W&B of runs that were recorded offline, from their run folders."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from experiments.failures.failure import Failure
from experiments.record.folder import RunFolder
from experiments.record.mirrors.wandb_mirror import begin, files_of, finish, memory_of, remember, replay, uploadable
from experiments.record.mirrors.wandb_server import connect, in_a_line
from experiments.record.result import Result

FAILURES = 3  # runs in a row, after which an upload of many is given up

Project = tuple[str, str | None]  # project, entity


class Upload(NamedTuple):
    """What the upload of a run sends."""

    settings: dict[str, Any]
    lines: Sequence[dict[str, Any]]  # of metrics.jsonl
    result: Result | None
    state: dict[str, Any]  # what `synced.json` remembers of it


def sync(
    folders: Sequence[RunFolder], project: Project, say: Callable[[str], None], *, runs_named: bool, project_named: bool
) -> int:
    """Upload runs that were recorded offline, each as one W&B run; returns the number of runs that could not be
    uploaded.

    Only steps that the server lacks are sent, and a run that was uploaded completely is skipped. project: the
    destination, which overrides the run's settings, because these may be somebody else's. say: receives one line for
    each run, with its number among all: first those with a damaged file, and those that are skipped. runs_named:
    whether the user named the runs; if not, those with `logger.wandb=off` are skipped. project_named: whether the user
    named the project; if not, a run that was uploaded elsewhere is skipped too.

    Raises Mistake if runs are to be uploaded and nobody is logged in, and Failure within a few seconds if the server
    cannot be reached, or later if several runs in a row could not be uploaded.
    """

    def read(folder: RunFolder) -> Upload | str:
        return _read(folder, project, runs_named, project_named)

    def tell(number: int, outcome: str) -> None:
        say(f"[{number}/{len(folders)}] {folders[number - 1].name}: {outcome}")

    failed, waiting = 0, []
    for number, folder in enumerate(folders, start=1):
        try:
            found = read(folder)
        except Exception as error:
            failed += 1
            tell(number, _not_uploaded(error))
        else:
            if isinstance(found, str):
                tell(number, found)
            else:
                waiting.append(number)
    if not waiting:
        return failed
    wandb = connect()
    in_a_row = 0
    for tried, number in enumerate(waiting, start=1):
        folder = folders[number - 1]
        try:
            # again, because the run may have logged further lines meanwhile
            found = read(folder)
            outcome = found if isinstance(found, str) else _upload(wandb, folder, found, project_named)
            in_a_row = 0
        except Exception as error:
            outcome, failed, in_a_row = _not_uploaded(error), failed + 1, in_a_row + 1
            # a failed run occupies its id until the service ends
            with suppress(Exception):
                wandb.teardown()
        tell(number, outcome)
        if in_a_row == FAILURES and tried < len(waiting):
            raise Failure(
                f"{FAILURES} runs in a row could not be uploaded, so {len(waiting) - tried:,} were not tried; "
                "the same command continues"
            )
    return failed


def _read(folder: RunFolder, project: Project, runs_named: bool, project_named: bool) -> Upload | str:
    """What is to be uploaded of a run, or in words why nothing is. Raises RunFolderError for a damaged file."""
    destination = dict(zip(("project", "entity"), project, strict=True))
    result = folder.result()
    lines = folder.metrics.read()
    state = uploadable(lines, destination, result)
    before = memory_of(folder).get("uploaded")
    if before == state or (not project_named and isinstance(before, dict) and {**before, **destination} == state):
        return "uploaded before"
    settings = folder.config()
    if settings["logger"]["wandb"] == "off" and not runs_named:
        return "logged nowhere (logger.wandb=off)"
    holder = folder.holder()
    if holder and not any(path.parent.name.startswith("offline-") for path in files_of(folder)):
        return f"{holder} is uploading it"
    folder.environment()
    folder.check_files()
    return Upload(settings, lines, result, state)


def _upload(wandb: ModuleType, folder: RunFolder, upload: Upload, project_named: bool) -> str:
    """Upload a run; returns in words what was done."""
    own = upload.settings["logger"]
    logger = {**own, **{key: upload.state[key] for key in ("project", "entity")}}
    # the upload's own .wandb file need not be kept as a second copy of the run
    with tempfile.TemporaryDirectory() as root:
        run = begin(wandb, folder, {**upload.settings, "logger": logger}, Path(root), online=True)
        count = replay(run, upload.lines)
        finish(run, upload.result)
        remember(folder, uploaded=upload.state)
        other = (
            ""
            if project_named or own == logger
            else f"; its own settings name {_path(own)}; use --project to upload it there"
        )
        return f"{count} steps uploaded to {run.url}{other}"


def _not_uploaded(error: Exception) -> str:
    """Why a run was not uploaded; a damaged file says so itself."""
    return f"not uploaded: {error if isinstance(error, Failure) else in_a_line(error)}"


def _path(logger: dict[str, Any]) -> str:
    """A place in the form of --project."""
    return "/".join(str(part) for part in (logger["entity"], logger["project"]) if part)
