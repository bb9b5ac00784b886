"""The run folder, the one truth about a run: same configuration, same folder, and one process at a time in it."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from experiments.record.durable import RunFolderError, disk_errors_as_failures, number, to_json, write
from experiments.record.result import Result
from experiments.settings.digest import digest
from experiments.settings.group import WhichCheckpoint

PREFIX: dict[WhichCheckpoint, str] = {"best": "best", "newest": "step"}  # of its file
# settings that say where a run is kept and mirrored, and change no number of it
LOCATION_KEYS = frozenset({"runs", "cache", "logger", "pretrained"})
RENDERED = "tables"  # of the runs' folder: papers' tables as they were last rendered
TAIL_BYTES = 1 << 14  # more than two lines of metrics

# whoever asks for the `holder` takes the lock for an instant
LOCK_SECONDS = 0.5


def configuration_digest(settings: dict[str, Any]) -> str:
    """Eight hex digits of SHA-256 over all the settings that can change a result."""
    deciding = {key: value for key, value in settings.items() if key not in LOCATION_KEYS}
    return digest(deciding)[:8]


def run_name(settings: dict[str, Any]) -> str:
    """Name of the run's folder and its id in W&B: variant, sizes, norm, seed, digest; of letters, digits and `._-`.

    Before that, of a fine-tuned run, the task and the digest of the pretrained weights.
    """
    sizes = "l{layers}-d{hidden_size}-h{heads}-k{key_size}-v{value_size}".format_map(settings)
    name = (
        f"{settings['variant']['name']}-{sizes}-{settings['norm']}-s{settings['seed']}-{configuration_digest(settings)}"
    )
    if "task" in settings:
        name = f"{settings['task']['name']}-from-{settings['origin']['digest'][:8]}-{name}"
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name)


class RunFolder:
    """`runs/<name>/`. Anyone may read it; training in it begins with `create`, which locks it, and ends with `close`.

    Every method raises RunFolderError (a full disk, a folder that can't be written, a damaged file): one line with
    the path, the reason, and what to do.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).absolute()
        self.name = self.path.name
        self.checkpoint = self.path / "checkpoint"
        self._made = False
        self._lock: int | None = None
        self._metrics: int | None = None
        self._last_step = -1

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def create(self, settings: dict[str, Any]) -> None:
        """Make or reopen the folder for `settings` and lock it until `close`.

        A result that is not `done` is removed, as the run goes on. Raises RunFolderError also if another process has
        the folder, or if it holds a run of another configuration.
        """
        self._made = not self.path.exists()
        with disk_errors_as_failures(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        try:
            self._acquire()
            recorded = self.config() if (self.path / "config.yaml").exists() else None
            if recorded is not None and configuration_digest(recorded) != configuration_digest(settings):
                raise RunFolderError(
                    f"{self.path}: holds a run of another configuration (digest {configuration_digest(recorded)}, not"
                    f" {configuration_digest(settings)}); remove it or set runs= to another folder"
                )
            if recorded != settings:
                write(self.path / "config.yaml", yaml.safe_dump(settings, sort_keys=False))
            result = self.result()
            if result is not None and result.status != "done":
                with disk_errors_as_failures(self.path):
                    (self.path / "result.json").unlink()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the folder; harmless when it is not held."""
        self._close_metrics()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def discard(self) -> None:
        """Remove the folder if `create` of this object made it and no checkpoint is in it; else leave it as it is."""
        if self._made and not any(self.checkpoint.glob("*")):
            shutil.rmtree(self.path, ignore_errors=True)

    def holder(self) -> str | None:
        """The process that trains in this folder now, as `process 7 on host since ...`; None if none does."""
        path = self.path / "lock"
        if not path.exists():
            return None
        with disk_errors_as_failures(path), path.open("rb") as file:
            return None if _lock(file.fileno()) else file.read().decode(errors="replace").strip() or "another process"

    def config(self) -> dict[str, Any]:
        """The settings of the run."""
        path = self.path / "config.yaml"
        try:
            config = yaml.safe_load(_read(path))
        except yaml.YAMLError as error:
            raise _damaged(path, f"no YAML: {' '.join(str(error).split())}") from error
        if not isinstance(config, dict):
            raise _damaged(path, "no mapping of settings")
        return config

    def append_metrics(self, metrics: dict[str, Any]) -> None:
        """Add the line of one step; `metrics["step"]` is greater than in every line before. Seen by readers at once."""
        if self._metrics is None:
            self._open_metrics()
        assert self._metrics is not None
        assert metrics["step"] > self._last_step, f"step {metrics['step']} after step {self._last_step}"
        line = (to_json(metrics) + "\n").encode()
        with disk_errors_as_failures(self.path / "metrics.jsonl"):
            size = os.fstat(self._metrics).st_size
            try:
                while line:
                    line = line[os.write(self._metrics, line) :]
            except OSError:
                # a full disk may have taken half of the line
                os.ftruncate(self._metrics, size)
                raise
        self._last_step = metrics["step"]

    def persist_metrics(self) -> None:
        """Wait until all lines so far would survive a power cut; due before a checkpoint that follows them."""
        if self._metrics is not None:
            with disk_errors_as_failures(self.path / "metrics.jsonl"):
                os.fsync(self._metrics)

    def truncate_metrics(self, step: int) -> None:
        """Drop the lines after `step` (-1: all of them) and a line cut short by a kill, all at once."""
        self._close_metrics()
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return
        earlier = [line for line, metrics in self._lines() if metrics["step"] <= step]
        write(path, b"".join(earlier).decode())

    def read_metrics(self) -> list[dict[str, Any]]:
        """Every whole line of metrics.jsonl, in order of `step`."""
        return [metrics for _, metrics in self._lines()]

    def last_step(self) -> int:
        """Step of the newest whole line of metrics.jsonl, from the end of the file; 0 while there is none."""
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return 0
        with disk_errors_as_failures(path), path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            steps = re.findall(rb'"step": (\d+)[^\n]*\n', file.read())
        return int(steps[-1]) if steps else 0

    def write_environment(self, facts: dict[str, Any]) -> None:
        """Record where the run runs. Facts of earlier starts of a run that was cut are kept under `earlier`."""
        before = self.environment()
        earlier = [] if before is None else [*before.pop("earlier"), before]
        write(self.path / "environment.json", to_json({**facts, "earlier": earlier}, indent=2) + "\n")

    def environment(self) -> dict[str, Any] | None:
        """The facts of the newest start, and `earlier`; None before the first."""
        path = self.path / "environment.json"
        if not path.exists():
            return None
        try:
            facts = json.loads(_read(path))
            facts["earlier"]
        except (ValueError, TypeError, KeyError) as error:
            raise _damaged(path, f"not as written: {error}") from error
        return facts

    def write_result(self, result: Result) -> None:
        """The last act of a run: its presence says that the run has ended, and how."""
        write(self.path / "result.json", result.to_json())

    def result(self) -> Result | None:
        """The outcome, or None while there is none."""
        path = self.path / "result.json"
        if not path.exists():
            return None
        try:
            return Result.from_json(_read(path))
        except ValueError as error:
            raise _damaged(path, str(error)) from error

    def log(self, message: str) -> None:
        """Add a line to log.txt. One that can't be written is dropped: a note is no reason to end a run."""
        line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {message}\n"
        with suppress(OSError), (self.path / "log.txt").open("a", encoding="utf-8") as file:
            file.write(line)

    def _acquire(self) -> None:
        path = self.path / "lock"
        deadline = time.monotonic() + LOCK_SECONDS
        with disk_errors_as_failures(path):
            self._lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            while not _lock(self._lock):
                if time.monotonic() > deadline:
                    holder = self.holder() or "another process"
                    self.close()
                    raise RunFolderError(f"{self.path}: {holder} trains in it; wait for it, or stop it")
                time.sleep(0.05)
            os.ftruncate(self._lock, 0)
            holder = f"process {os.getpid()} on {platform.node()} since {time.strftime('%Y-%m-%d %H:%M:%S')}\n"
            os.pwrite(self._lock, holder.encode(), 0)

    def _open_metrics(self) -> None:
        lines = self.read_metrics()
        self._last_step = lines[-1]["step"] if lines else -1
        self.truncate_metrics(self._last_step)
        with disk_errors_as_failures(self.path / "metrics.jsonl"):
            self._metrics = os.open(self.path / "metrics.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)

    def _close_metrics(self) -> None:
        if self._metrics is not None:
            os.close(self._metrics)
            self._metrics = None

    def _lines(self) -> list[tuple[bytes, dict[str, Any]]]:
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return []
        with disk_errors_as_failures(path):
            lines = path.read_bytes().splitlines(keepends=True)
        parsed = [(line, _parse(line)) for line in lines]
        if parsed and parsed[-1][1] is None:
            # cut short by a kill
            parsed.pop()
        for index, (_, metrics) in enumerate(parsed, start=1):
            if metrics is None:
                raise _damaged(path, f"line {index} can't be read", remove=self.path)
        return [(line, metrics) for line, metrics in parsed if metrics is not None]


def _lock(descriptor: int) -> bool:
    """Take the lock if it is free.

    Not by filelock, which the cache uses: the line that names the holder stands in the locked file, which many of its
    versions empty whenever they try, and a reader who may not write in the folder asks for the holder too.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        metrics = json.loads(line)
    except ValueError:
        return None
    if not line.endswith(b"\n") or not isinstance(metrics, dict) or not isinstance(metrics.get("step"), int):
        return None
    return {key: number(value) for key, value in metrics.items()}


def _read(path: Path) -> str:
    try:
        with disk_errors_as_failures(path):
            return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise _damaged(path, "no UTF-8") from error


def _damaged(path: Path, why: str, remove: Path | None = None) -> RunFolderError:
    gone = remove or "this file"
    return RunFolderError(f"{path}: damaged ({why}); remove {gone}; the attn train that made the run makes it again")
