"""The run folder, which has all facts about a run. The same configuration has the same folder, and one process at a
time works in it.

Everything that a number rests on is covered by a digest: `config.yaml`, `environment.json` and `result.json` contain
their own, `result.json` contains those of the other files, and a checkpoint contains those of settings, tokenizer and
metrics.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from experiments.failures.failure import Mistake
from experiments.files.digest import DIFFERS, bytes_digest, digest, file_digest
from experiments.files.disk import made_folder, read_bytes
from experiments.files.durable import folder_for, read_sealed, write, write_sealed
from experiments.files.plain import LARGEST_YAML, from_yaml
from experiments.record.dotted import leaves
from experiments.record.errors import RunFolderError, disk_errors_as_failures, or_other_runs
from experiments.record.lock import Lock, TakenError
from experiments.record.metrics import Metrics
from experiments.record.result import Result

# settings for where a run is kept and mirrored, which change none of its numbers
LOCATION_KEYS = frozenset({"runs", "cache", "logger", "pretrained"})
# settings for how devices share the work, which change none either
SHARING_KEYS = frozenset({"trainer.devices", "trainer.sharded"})
# what the runs' folder has beside runs, none of which may have such a name
RENDERED, SWEEPS, PAGE = "tables", "sweeps", "dashboard.html"
WANDB, TENSORBOARD, TRACKIO = "wandb", "tensorboard", "trackio"
RESERVED = {
    RENDERED: "tables as last rendered, and plans of seeds",
    SWEEPS: "searches, and logs of launchers",
    PAGE: "the comparison page",
    WANDB: "files of W&B",
    TENSORBOARD: "files of TensorBoard",
    TRACKIO: "the database of trackio",
}
CONFIG, ENVIRONMENT, METRICS, RESULT = "config.yaml", "environment.json", "metrics.jsonl", "result.json"
TOKENIZER = "tokenizer.json"
PREDICTIONS = "predictions.json"  # of a fine-tuned run
MEASURED_HEADS = "heads"  # the folder of what `attn heads` writes
BESIDE = (METRICS, CONFIG, ENVIRONMENT, TOKENIZER, PREDICTIONS)  # what the numbers of a result rest on
SEAL_LINE = b"# sha256 of the lines above: "  # the last line of config.yaml
# key of result.json: the digest of each file that its numbers rest on
FILES = "files"
OTHER_VERSION = "was written by another version of attn"
FINAL = ("done", "imported")  # status of a run that no command continues


def configuration_digest(settings: dict[str, Any]) -> str:
    """Eight hex digits of SHA-256 over all settings that can change a result."""
    return digest(deciding_settings(settings))[:8]


def deciding_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that can change a result.

    The choice of a GPU among several, the number of devices that share the work, and how they share it change none.
    """
    deciding = {key: value for key, value in settings.items() if key not in LOCATION_KEYS}
    if isinstance(trainer := deciding.get("trainer"), dict):
        deciding["trainer"] = {key: value for key, value in trainer.items() if f"trainer.{key}" not in SHARING_KEYS}
        if str(trainer.get("device")).startswith("cuda:"):
            deciding["trainer"]["device"] = "cuda"
    return deciding


def run_name(settings: dict[str, Any]) -> str:
    """The name of the run's folder, also in W&B: variant, sizes, norm, seed, digest; of letters, digits and `._-`.

    The name of a fine-tuned run begins with the task and the digest of the pretrained weights.
    """
    sizes = "l{layers}-d{hidden_size}-h{heads}-k{key_size}-v{value_size}".format_map(settings)
    name = (
        f"{settings['variant']['name']}-{sizes}-{settings['norm']}-s{settings['seed']}-{configuration_digest(settings)}"
    )
    if "task" in settings:
        name = f"{settings['task']['name']}-from-{settings['origin']['digest'][:8]}-{name}"
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name)


def seed_of(name: str) -> int | None:
    """The seed of the run whose folder has this name; None for a name that `run_name` does not give."""
    match = re.search(r"-s(\d+)-[0-9a-f]{8}$", name)
    return int(match[1]) if match else None


def config_text(settings: Mapping[str, Any]) -> str:
    """The content of `config.yaml`: the settings as YAML, with their digest in the last line.

    Raises Mistake for settings that `parse_config` would refuse as too long.
    """
    text = yaml.dump(dict(settings), Dumper=_Dumper, sort_keys=False)
    if len(text) > LARGEST_YAML:
        longest, _ = max(leaves(settings), key=lambda leaf: len(str(leaf[1])))
        lengths = f"with it the settings of the run have {len(text):,} bytes, and may have {LARGEST_YAML:,}"
        raise Mistake(f"{longest}: is too long; {lengths}", "give it a shorter value")
    return text + SEAL_LINE.decode() + bytes_digest([text.encode()]) + "\n"


def parse_config(content: bytes) -> dict[str, Any]:
    """The settings that `config_text` wrote. Raises ValueError, in one line, for any other content."""
    text, seal, stored = content.rpartition(SEAL_LINE)
    if not seal:
        raise ValueError("its last line, with the digest, is missing")
    if stored.decode("ascii", errors="replace") != bytes_digest([text]) + "\n":
        raise ValueError(DIFFERS)
    settings = from_yaml(text)
    if not isinstance(settings, dict) or not isinstance(settings.get("variant"), dict):
        raise ValueError("it is not a mapping of settings")
    if b"${" in text:
        raise ValueError("it has an expression, ${...}, instead of a value")
    return settings


class RunFolder:
    """`runs/<name>/`. Anyone may read it. Training in it begins with `create`, which locks it, and ends with `close`.

    Every method raises RunFolderError for a full disk, a folder that cannot be written, or a damaged file: one line
    with the path, the reason, and a remedy.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).absolute()
        try:
            str(self.path).encode()
        except UnicodeEncodeError:
            # safetensors and the settings take no other paths, so checkpoints could be written but not read
            hint = "rename it, or choose another folder for runs"
            raise Mistake(f"{str(self.path)!a}: the path of a run must be UTF-8", hint) from None
        self.name = self.path.name
        self.checkpoint = self.path / "checkpoint"
        self._lock = Lock(self.path / "lock")
        self.metrics = Metrics(self.path / METRICS, self._lock.check)
        self._made = False

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @or_other_runs()
    def create(self, settings: dict[str, Any]) -> None:
        """Make or reopen the folder for `settings`, and lock it until `close`.

        Raises RunFolderError also if another process holds the folder, or if it contains a run of another
        configuration; and Mistake for settings that are too long.
        """
        text = config_text(settings)
        folder_for(self.path.parent)
        with disk_errors_as_failures(self.path):
            self._made = made_folder(self.path)
        try:
            self._lock.acquire()
            recorded = self.config() if (self.path / CONFIG).exists() else None
            if recorded is not None and configuration_digest(recorded) != configuration_digest(settings):
                raise RunFolderError(
                    f"{self.path}: contains a run of another configuration (digest "
                    f"{configuration_digest(recorded)}, not {configuration_digest(settings)}); "
                    "remove it or set runs= to another folder"
                )
            result = self.result()
            # the digest in the result of a finished run covers the file
            if recorded is None or (recorded != settings and (result is None or result.status != "done")):
                write(self.path / CONFIG, text)
        except TakenError:
            # even if this process made the folder, it is another's, which may have ended by the time of `discard`
            self._made = False
            self.close()
            raise
        except BaseException:
            self.discard()
            raise

    def go_on(self) -> None:
        """Remove the result of an earlier start that did not finish, because the run continues."""
        result = self.result()
        if result is not None and result.status != "done":
            with disk_errors_as_failures(self.path):
                (self.path / RESULT).unlink()

    def close(self) -> None:
        """Release the folder; does nothing if it is not held."""
        self.metrics.close()
        self._lock.release()

    def discard(self) -> None:
        """Release the folder, and remove it if `create` of this object made it, it has no checkpoint, and nobody else
        trains in it.
        """
        with self:
            if self._made and not self._lock.held:
                try:
                    self._lock.acquire()
                except TakenError:
                    return
                except RunFolderError:
                    # nobody can train on a file system without locks
                    pass
            if self._made and not any(self.checkpoint.glob("*")):
                shutil.rmtree(self.path, ignore_errors=True)

    def holder(self) -> str | None:
        """The process that trains in this folder, as `process 7 on host since ...`; None if there is none."""
        return self._lock.holder()

    def config(self) -> dict[str, Any]:
        """The settings of the run."""
        path = self.path / CONFIG
        try:
            with disk_errors_as_failures(path):
                return parse_config(read_bytes(path))
        except ValueError as error:
            raise _damaged(path, error) from error

    def tokenizer_file(self) -> Path:
        """The file of the run's tokenizer, which exists."""
        path = self.path / TOKENIZER
        if not path.is_file():
            way = f"restore it, or remove {RESULT} and repeat the command that made the run"
            there = ", because a folder stands in its place" if path.is_dir() else ""
            raise RunFolderError(f"{path}: the run lacks its tokenizer{there}; {way}")
        return path

    @or_other_runs()
    def write_environment(self, facts: dict[str, Any]) -> None:
        """Record the environment of the run.

        The facts of earlier starts of an interrupted run are kept under `earlier`.
        """
        before = self.environment()
        earlier = [] if before is None else [*before.pop("earlier"), before]
        write_sealed(self.path / ENVIRONMENT, {**facts, "earlier": earlier})

    def environment(self) -> dict[str, Any] | None:
        """The facts of the newest start, and `earlier`; None before the first."""
        facts = self._read(ENVIRONMENT)
        if facts is not None and not isinstance(facts.get("earlier"), list):
            raise _damaged(self.path / ENVIRONMENT, ValueError("it has no list of earlier starts"))
        return facts

    def check_held(self) -> None:
        """Raises RunFolderError if another process trains here too, or if the folder is no longer in its place."""
        self._lock.check()

    @or_other_runs()
    def write_result(self, result: Result) -> None:
        """Write the result, as the last act of a run. Its presence says that the run has ended, and how."""
        self.check_held()
        write_sealed(self.path / RESULT, {**result.to_dict(), FILES: self._digests()})

    def result(self) -> Result | None:
        """The outcome, or None while there is none."""
        content = self._read(RESULT)
        if content is None:
            return None
        try:
            return Result.from_dict({key: value for key, value in content.items() if key != FILES})
        except ValueError as error:
            # its digest is right
            raise RunFolderError(
                f"{self.path / RESULT}: {OTHER_VERSION} ({error}); use that version, or set runs= to another folder"
            ) from error

    def check_files(self) -> None:
        """Raises RunFolderError that names the file, if a file of an ended run has changed since the result was
        written.
        """
        content = self._read(RESULT)
        if content is None or content.get("status") not in FINAL:
            return
        try:
            changed = differing_file(content.get(FILES), self._digests())
        except ValueError as error:
            raise _damaged(self.path / RESULT, error) from error
        if changed is not None:
            path = self.path / changed
            files = "both files" if path.exists() else RESULT
            raise RunFolderError(
                f"{how_it_differs(path)}; restore it, or remove {files} and repeat the command that made the run"
            )

    def log(self, message: str) -> None:
        """Add a line to log.txt. A line that cannot be written is dropped, because a note is no reason to end a run; so
        is one about a folder that this process has lost.
        """
        line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {message}\n"
        with suppress(OSError, RunFolderError):
            self.check_held()
            # does not wait if there is a pipe in its place
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
            descriptor = os.open(self.path / "log.txt", flags, 0o666)
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
                file.write(line)

    def _digests(self) -> dict[str, str]:
        """Hex SHA-256 of each existing file that the numbers rest on."""
        # of the metrics, what this process has written counts
        digests = {METRICS: self.metrics.digest()}
        for name in (name for name in BESIDE if name != METRICS):
            with disk_errors_as_failures(self.path / name):
                digests[name] = file_digest(self.path / name) if (self.path / name).exists() else None
        return {name: digest for name, digest in digests.items() if digest is not None}

    def _read(self, name: str) -> dict[str, Any] | None:
        """The content of a JSON file with its own digest; None if there is no file."""
        path = self.path / name
        try:
            with disk_errors_as_failures(path):
                try:
                    return read_sealed(path)
                except FileNotFoundError:
                    return None
        except ValueError as error:
            raise _damaged(path, error) from error


def differing_file(recorded: Any, digests: Mapping[str, str]) -> str | None:
    """The first file whose digest differs from the recorded one; None if all agree.

    recorded: the value under FILES. Raises ValueError if it is not a mapping.
    """
    if not isinstance(recorded, dict):
        raise ValueError(f"{FILES}: not a mapping of digests")
    # no number rests on predictions that a result does not list
    names = recorded.keys() | (digests.keys() - {PREDICTIONS})
    return next((name for name in sorted(names) if recorded.get(name) != digests.get(name)), None)


def how_it_differs(path: Path) -> str:
    """What a message says of a file whose digest is not the one in the result beside it."""
    how = f"has changed since {RESULT} was written" if path.exists() else f"is missing, but {RESULT} rests on it"
    return f"{path}: {how}"


class _Dumper(yaml.SafeDumper):
    """Writes every value in full, because `parse_config` accepts no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _damaged(path: Path, error: ValueError) -> RunFolderError:
    # a result is refused without the files that it was written with
    files = "this file" if path.name == RESULT or not path.with_name(RESULT).exists() else f"this file and {RESULT}"
    return RunFolderError(f"{path}: damaged ({error}); remove {files}, and repeat the command that made the run")
