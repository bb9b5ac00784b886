"""W&B as a mirror of the run folder: offline unless the user is logged in, silent, and never fatal to a run.

W&B's own folders lie under `<runs>/wandb/`, so `wandb leet` shows all runs. The run folder remains the reference. A run
that is interrupted and continued is mirrored again from its metrics.jsonl, and always has one .wandb file.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from experiments.record.durable import RunFolderError, to_json, write
from experiments.record.folder import LOCATION_KEYS, RunFolder, configuration_digest
from experiments.record.result import Result
from experiments.settings.disk import read_bytes
from experiments.settings.plain import from_json

REACH_SECONDS = 3.0
START_SECONDS = 10.0
FINISH_SECONDS = 30.0
FAILURES = 3  # runs in a row, after which an upload of many is given up

# statistics of each curve in a run's table in W&B, besides its last value
LOWEST = ("loss", "perplexity", "validation_loss", "validation_perplexity", "bits_per_byte")
HIGHEST = ("tokens_per_second", "peak_memory_bytes")


Place = tuple[str, str | None]  # project, entity


class TrackingError(RuntimeError):
    """W&B cannot be used at all. The message is one line with the reason and a remedy."""


class WandbMirror:
    """The mirror of one run in W&B. After a failure, `sync` can still upload everything from the run folder."""

    name = "W&B"

    def __init__(self) -> None:
        self._wandb: ModuleType | None = None
        self._run: Any = None
        self._folder: RunFolder | None = None
        self._logger: dict[str, Any] = {}
        self._online = False
        self._next_step = 0

    def start(self, folder: RunFolder, settings: dict[str, Any], group: str | None = None) -> None:
        """Begin the run, or continue it if it is online."""
        mode = _mode(settings["logger"]["wandb"])
        if mode == "off":
            return
        self._folder, self._logger = folder, settings["logger"]
        group = settings["logger"]["group"] or group
        _remember(folder, group=group)
        self._wandb = _import()
        self._run = self._begin(folder, settings, group, mode)
        self._next_step = _replay(self._run, folder)
        _remove_others(folder, keep=Path(self._run.dir).parent)

    def log(self, step: int, metrics: dict[str, Any]) -> None:
        """Mirror the metrics of one step; a step that the server already has is left out."""
        if self._run is not None and step >= self._next_step:
            _log(self._run, step, metrics)

    def finish(self, result: Result) -> None:
        """Write the summary and end the mirror."""
        if self._run is None:
            return
        _finish(self._run, result)
        if self._online:
            assert self._folder is not None
            _remember(self._folder, uploaded=_uploadable(self._folder, self._logger, result))

    def give_up(self) -> None:
        """End W&B's service, because a broken one prints its traceback when the process ends."""
        if self._wandb is not None:
            self._wandb.teardown()

    def _begin(self, folder: RunFolder, settings: dict[str, Any], group: str | None, mode: str) -> Any:
        assert self._wandb is not None
        root = folder.path.parent
        obstacle = "it was asked for" if mode == "offline" else _obstacle(self._wandb)
        if obstacle is None:
            try:
                run = _init(self._wandb, folder, settings, group, root, online=True)
                self._online = True
                return run
            except Exception as error:
                obstacle = f"the online start failed ({_line(error)})"
                # the failed start occupies the run's id until the service ends
                self._wandb.teardown()
        folder.log(f"W&B is offline, because {obstacle}")
        return _init(self._wandb, folder, settings, group, root, online=False)


def connect() -> ModuleType:
    """The library, if somebody is logged in and the server answers.

    Raises TrackingError within a few seconds otherwise.
    """
    wandb = _import()
    obstacle = _obstacle(wandb)
    if obstacle is not None:
        raise TrackingError(obstacle)
    return wandb


def sync(folders: Sequence[RunFolder], place: Place, named: bool, report: Callable[[str], None]) -> int:
    """Upload runs that were recorded offline, each as one W&B run; returns the number of runs that could not be
    uploaded.

    Only steps that the server lacks are sent, and a run that was uploaded completely is skipped. place: the
    destination, which overrides the run's settings, because these may be somebody else's. named: whether the user named
    the place; if not, a run that was uploaded elsewhere is skipped too. report: takes one line for each run, with its
    number among all. Raises TrackingError within a few seconds if nobody is logged in or the server cannot be reached,
    and later if several runs in a row could not be uploaded.
    """
    try:
        wandb = connect()
    except TrackingError as error:
        raise TrackingError(f"nothing was uploaded, because {error}") from error
    failed = in_a_row = 0
    for number, folder in enumerate(folders, start=1):
        try:
            outcome, in_a_row = _upload(wandb, folder, place, named), 0
        except Exception as error:
            outcome, failed, in_a_row = f"not uploaded: {_line(error)}", failed + 1, in_a_row + 1
            # a failed run occupies its id until the service ends
            with suppress(Exception):
                wandb.teardown()
        report(f"[{number}/{len(folders)}] {folder.name}: {outcome}")
        if in_a_row == FAILURES and number < len(folders):
            raise TrackingError(
                f"{FAILURES} runs in a row could not be uploaded, so {len(folders) - number:,} were not tried; "
                "the same command continues"
            )
    return failed


def _upload(wandb: ModuleType, folder: RunFolder, place: Place, named: bool) -> str:
    where = dict(zip(("project", "entity"), place, strict=True))
    result = folder.result()
    state = _uploadable(folder, where, result)
    memory = _memory(folder)
    before = memory.get("uploaded")
    if before == state or (not named and isinstance(before, dict) and {**before, **where} == state):
        return "uploaded before"
    holder = folder.holder()
    if holder and not any(path.parent.name.startswith("offline-") for path in _files(folder)):
        return f"{holder} is uploading it"
    folder.check_files()
    settings = folder.config()
    own, logger = settings["logger"], {**settings["logger"], **where}
    # the upload's own .wandb file need not be kept as a second copy of the run
    with tempfile.TemporaryDirectory() as root:
        run = _init(wandb, folder, {**settings, "logger": logger}, memory.get("group"), Path(root), online=True)
        first = _replay(run, folder)
        count = sum(metrics["step"] >= first for metrics in folder.metrics.read())
        _finish(run, result)
        _remember(folder, uploaded=state)
        other = (
            "" if named or own == logger else f"; its own settings name {_path(own)}; use --project to upload it there"
        )
        return f"{count} steps uploaded to {run.url}{other}"


def _path(logger: dict[str, Any]) -> str:
    """A place in the form of --project."""
    return "/".join(str(part) for part in (logger["entity"], logger["project"]) if part)


def log_tables(name: str, tables: dict[str, list[dict[str, Any]]], logger: dict[str, Any], root: Path) -> str:
    """Log tables of rows as a W&B run of their own, offline unless somebody is logged in; returns a line about its
    place.

    logger: the settings of that group. root: the folder of the runs. Never raises.
    """
    mode = _mode(logger["wandb"])
    if mode == "off":
        return "W&B off"
    try:
        wandb = _import()
        online = mode != "offline" and _obstacle(wandb) is None
        root.mkdir(parents=True, exist_ok=True)
        run = wandb.init(
            project=logger["project"], entity=logger["entity"], tags=logger["tags"], id=name, name=name, dir=str(root),
            resume="allow" if online else None, settings=_quiet(wandb, online),
        )  # fmt: skip
        for key, rows in tables.items():
            columns = list(rows[0]) if rows else []
            run.log({key: wandb.Table(columns=columns, data=[[row[column] for column in columns] for row in rows])})
        run.finish()
        return f"W&B online: {run.url}" if online else f"W&B offline: {root / 'wandb'}"
    except Exception as error:
        return f"W&B failed; the table is not affected: {_line(error)}"


def _import() -> ModuleType:
    os.environ.setdefault("WANDB_SILENT", "true")
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb

    return wandb


def _mode(setting: str) -> str:
    if setting != "auto":
        return setting
    return {"offline": "offline", "dryrun": "offline", "disabled": "off"}.get(os.environ.get("WANDB_MODE", ""), "auto")


def _obstacle(wandb: ModuleType) -> str | None:
    """The reason why an online run is not possible, or None. Only opens a connection to a server."""
    if not wandb.login(prompt=False, verify=False):
        return "nobody is logged in to W&B (`wandb login`, or WANDB_API_KEY)"
    url = wandb.setup().settings.base_url
    if not _reachable(url):
        return f"{url} can't be reached"
    return None


def _reachable(url: str) -> bool:
    """Whether the host of `url`, or the proxy that leads to it, accepts a connection."""
    target = urlsplit(url)
    if not urllib.request.proxy_bypass(target.netloc):
        target = urlsplit(urllib.request.getproxies().get(target.scheme, url))
    answers = []

    def connect() -> None:
        port = target.port or (443 if target.scheme == "https" else 80)
        with suppress(OSError), socket.create_connection((target.hostname or "", port), REACH_SECONDS):
            answers.append(True)

    # the lookup of a name has no time limit of its own
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(REACH_SECONDS)
    return bool(answers)


def _init(
    wandb: ModuleType, folder: RunFolder, settings: dict[str, Any], group: str | None, root: Path, online: bool
) -> Any:
    logger = settings["logger"]
    config = {key: value for key, value in settings.items() if key not in LOCATION_KEYS}
    run = wandb.init(
        project=logger["project"],
        entity=logger["entity"],
        group=group,
        tags=logger["tags"],
        id=folder.name,
        name=folder.name,
        dir=str(root),
        config={**config, "digest": configuration_digest(settings), "environment": folder.environment()},
        resume="allow" if online else None,
        settings=_quiet(wandb, online),
    )
    run.define_metric("step", hidden=True)
    run.define_metric("*", step_metric="step")
    for names, extreme in ((LOWEST, "min"), (HIGHEST, "max")):
        for name in names:
            run.define_metric(name, step_metric="step", summary=f"{extreme},last")
    return run


def _quiet(wandb: ModuleType, online: bool) -> Any:
    """Settings under which W&B prints nothing, watches nothing, and waits no longer than the limits above."""
    return wandb.Settings(
        mode="online" if online else "offline",
        silent=True,
        console="off",
        disable_git=True,
        disable_code=True,
        reinit="create_new",
        init_timeout=START_SECONDS,
        finish_timeout=FINISH_SECONDS,
        finish_timeout_raises=True,
        x_disable_stats=True,
        x_disable_meta=True,
        x_save_requirements=False,
        x_transaction_log_flush_interval=1.0,
    )


def _replay(run: Any, folder: RunFolder) -> int:
    """Log the lines of metrics.jsonl that the server lacks; returns the first step that it lacks."""
    # run.step is 0 in a resumed run (wandb 0.31)
    first: int = run.starting_step
    for metrics in folder.metrics.read():
        if metrics["step"] >= first:
            _log(run, metrics["step"], metrics)
    return first


def _log(run: Any, step: int, metrics: dict[str, Any]) -> None:
    # committed at once, because an open row would be written after the summary and overwrite it
    run.log({**metrics, "step": step}, step=step, commit=True)


def _finish(run: Any, result: Result | None) -> None:
    if result is not None:
        run.summary.update({key: value for key, value in result.to_dict().items() if key != "config"})
    run.finish(exit_code=0 if result is None or result.status in ("done", "pruned") else 1)


def _files(folder: RunFolder) -> list[Path]:
    """The .wandb files of the run in W&B's folders beside the run folder."""
    files = folder.path.parent.glob(f"wandb/*/run-{folder.name}.wandb")
    return [file for file in files if not file.parent.is_symlink()]


def _remove_others(folder: RunFolder, keep: Path) -> None:
    for file in _files(folder):
        if file.parent.resolve() != keep.resolve():
            shutil.rmtree(file.parent)


def _uploadable(folder: RunFolder, place: dict[str, Any], result: Result | None) -> dict[str, Any]:
    """The data to upload and its destination. While both are unchanged, an upload would change nothing."""
    lines = folder.metrics.read()
    return {
        "project": place["project"],
        "entity": place["entity"],
        "step": lines[-1]["step"] if lines else None,
        "status": result.status if result else None,
    }


def _memory(folder: RunFolder) -> dict[str, Any]:
    """`synced.json`: the group of the run, and a record of the last upload."""
    path = folder.path / "synced.json"
    if not path.exists():
        return {}
    try:
        memory = from_json(read_bytes(path))
    except (OSError, ValueError):
        memory = None
    if not isinstance(memory, dict):
        raise RunFolderError(f"{path}: damaged; remove this file")
    return memory


def _remember(folder: RunFolder, **facts: Any) -> None:
    write(folder.path / "synced.json", to_json({**_memory(folder), **facts}, indent=2) + "\n")


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
