"""W&B as a mirror of the run folder: offline unless the user is logged in, silent, and never fatal to a run.

W&B's own folders lie under `<runs>/wandb/`, so that `wandb leet` shows all runs. The run folder decides what is true:
a run that goes on after a cut is mirrored anew from its metrics.jsonl, and has one .wandb file whatever cut it.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterable
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

# what a run's table in W&B shows of each curve, besides its last value
LOWEST = ("loss", "perplexity", "validation_loss", "validation_perplexity", "bits_per_byte")
HIGHEST = ("tokens_per_second", "peak_memory_bytes")


class TrackingError(RuntimeError):
    """W&B can't be used at all: one line with the reason and what to do."""


class Tracker:
    """The mirror of one run. No method raises, prints, or waits for a network longer than the bounds above.

    The first failure ends the mirroring, not the run; it is noted in the run's log.txt, and `sync` can still upload
    everything from the run folder. `state` says in a few words where the run is mirrored.
    """

    def __init__(self) -> None:
        self.state = "W&B off"
        self._wandb: ModuleType | None = None
        self._run: Any = None
        self._folder: RunFolder | None = None
        self._logger: dict[str, Any] = {}
        self._online = False
        self._next_step = 0

    def start(self, folder: RunFolder, settings: dict[str, Any], group: str | None = None) -> None:
        """Begin to mirror `folder`, whose metrics.jsonl has been truncated to the step from which the run goes on.

        group: the sweep's name; settings["logger"]["group"] wins over it.
        """
        mode = _mode(settings["logger"]["wandb"])
        if mode == "off":
            return
        self._folder, self._logger = folder, settings["logger"]
        group = settings["logger"]["group"] or group
        try:
            _remember(folder, group=group)
            self._wandb = _import()
            self._run = self._begin(folder, settings, group, mode)
            self._next_step = _replay(self._run, folder)
            _remove_others(folder, keep=Path(self._run.dir).parent)
        except Exception as error:
            self._give_up(error)

    def log(self, step: int, metrics: dict[str, Any]) -> None:
        """Mirror the metrics of one step; a step that the server already has is left out."""
        if self._run is None or step < self._next_step:
            return
        try:
            _log(self._run, step, metrics)
        except Exception as error:
            self._give_up(error)

    def finish(self, result: Result) -> None:
        """Write the summary and end the mirror."""
        if self._run is None:
            return
        try:
            _finish(self._run, result)
            if self._online:
                assert self._folder is not None
                _remember(self._folder, uploaded=_uploadable(self._folder, self._logger, result))
        except Exception as error:
            self._give_up(error)
        self._run = None

    def _begin(self, folder: RunFolder, settings: dict[str, Any], group: str | None, mode: str) -> Any:
        assert self._wandb is not None
        root = folder.path.parent
        obstacle = "it was asked for" if mode == "offline" else _obstacle(self._wandb)
        if obstacle is None:
            try:
                run = _init(self._wandb, folder, settings, group, root, online=True)
                self._online = True
                self.state = f"W&B online: {run.url}"
                return run
            except Exception as error:
                obstacle = f"the online start failed ({_line(error)})"
                # the failed start keeps the run's id taken until the service has gone
                self._wandb.teardown()
        folder.log(f"W&B is offline, as {obstacle}")
        self.state = f"W&B offline: {root / 'wandb'}"
        return _init(self._wandb, folder, settings, group, root, online=False)

    def _give_up(self, error: Exception) -> None:
        self._run = None
        self.state = "W&B off after a failure"
        assert self._folder is not None
        self._folder.log(f"W&B failed and is off from here on, the run is not affected: {_line(error)}")
        if self._wandb is not None:
            # without it a broken service prints its traceback when the process ends
            with suppress(Exception):
                self._wandb.teardown()


def connect() -> ModuleType:
    """The library, where somebody is logged in and the server answers. Raises TrackingError, within a few seconds."""
    wandb = _import()
    obstacle = _obstacle(wandb)
    if obstacle is not None:
        raise TrackingError(obstacle)
    return wandb


def sync(folders: Iterable[RunFolder], project: str | None, entity: str | None, report: Callable[[str], None]) -> int:
    """Upload runs that were recorded offline, each as one W&B run; returns how many could not be uploaded.

    Only steps that the server doesn't have are sent, and a run that was uploaded whole is skipped. project, entity:
    None for those of the run's own settings. report: takes one line a run. Raises TrackingError, within a few
    seconds, if nobody is logged in or the server can't be reached.
    """
    try:
        wandb = connect()
    except TrackingError as error:
        raise TrackingError(f"nothing was uploaded, as {error}") from error

    def attempt(folder: RunFolder) -> bool:
        try:
            report(f"{folder.name}: {_upload(wandb, folder, project, entity)}")
        except Exception as error:
            report(f"{folder.name}: not uploaded: {_line(error)}")
            # a run that failed keeps its id taken until the service has gone
            with suppress(Exception):
                wandb.teardown()
            return False
        return True

    return sum(not attempt(folder) for folder in folders)


def _upload(wandb: ModuleType, folder: RunFolder, project: str | None, entity: str | None) -> str:
    settings = folder.config()
    logger = {**settings["logger"]}
    logger |= {"project": project or logger["project"], "entity": entity or logger["entity"]}
    result = folder.result()
    folder.check_files()
    state = _uploadable(folder, logger, result)
    memory = _memory(folder)
    if memory.get("uploaded") == state:
        return "uploaded before"
    holder = folder.holder()
    if holder and not any(path.parent.name.startswith("offline-") for path in _files(folder)):
        return f"{holder} is uploading it"
    # the upload's own .wandb file is no second copy of the run to keep
    with tempfile.TemporaryDirectory() as root:
        run = _init(wandb, folder, {**settings, "logger": logger}, memory.get("group"), Path(root), online=True)
        first = _replay(run, folder)
        count = sum(metrics["step"] >= first for metrics in folder.metrics.read())
        _finish(run, result)
        _remember(folder, uploaded=state)
        return f"{count} steps uploaded to {run.url}"


def log_tables(name: str, tables: dict[str, list[dict[str, Any]]], logger: dict[str, Any], root: Path) -> str:
    """A W&B run of its own that holds tables of rows, offline unless somebody is logged in; says where it is.

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
        return f"W&B failed, the table is not affected: {_line(error)}"


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
    """Why an online run is not possible, or None; asks no server for more than a connection."""
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

    # looking up a name has no time limit of its own
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
    """Settings under which W&B prints nothing, watches nothing, and waits for nobody longer than the bounds above."""
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
    """Log the lines of metrics.jsonl that the server doesn't have; returns the first step that it doesn't have."""
    # run.step is 0 in a resumed run (wandb 0.31)
    first: int = run.starting_step
    for metrics in folder.metrics.read():
        if metrics["step"] >= first:
            _log(run, metrics["step"], metrics)
    return first


def _log(run: Any, step: int, metrics: dict[str, Any]) -> None:
    # committed at once: a row left open would be written after the summary, and over it
    run.log({**metrics, "step": step}, step=step, commit=True)


def _finish(run: Any, result: Result | None) -> None:
    if result is not None:
        run.summary.update({key: value for key, value in result.to_dict().items() if key != "config"})
    run.finish(exit_code=0 if result is None or result.status == "done" else 1)


def _files(folder: RunFolder) -> list[Path]:
    """The .wandb files of the run, in W&B's folders beside the run folder."""
    files = folder.path.parent.glob(f"wandb/*/run-{folder.name}.wandb")
    return [file for file in files if not file.parent.is_symlink()]


def _remove_others(folder: RunFolder, keep: Path) -> None:
    for file in _files(folder):
        if file.parent.resolve() != keep.resolve():
            shutil.rmtree(file.parent)


def _uploadable(folder: RunFolder, logger: dict[str, Any], result: Result | None) -> dict[str, Any]:
    """What there is to upload, and where to: while it is the same, an upload would change nothing."""
    lines = folder.metrics.read()
    return {
        "project": logger["project"],
        "entity": logger["entity"],
        "step": lines[-1]["step"] if lines else None,
        "status": result.status if result else None,
    }


def _memory(folder: RunFolder) -> dict[str, Any]:
    """`synced.json`: the group of the run, and what was last uploaded."""
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
