"""Checkpoints: safetensors files with a checksum beside them. If the process is killed at any moment, a good checkpoint
remains.

    checkpoint/step-000000100.safetensors + .sha256     weights, moments, the run's progress; the newest two are kept
    checkpoint/best-000000050.safetensors + .sha256     weights of the lowest validation loss

Reading a checkpoint cannot run code: the file contains numbers, and JSON text in its header.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from experiments.failures.failure import Mistake
from experiments.files.digest import file_digest
from experiments.files.durable import replacing, swept, write
from experiments.record.checkpoint_paths import (
    checkpoint_path,
    checkpoint_paths,
    checksum_path,
    checksums,
    lone_checksums,
    step_of,
)
from experiments.record.code.changed import changed_code
from experiments.record.errors import RunFolderError, disk_errors_as_failures, or_other_runs
from experiments.record.folder import CONFIG, TOKENIZER, RunFolder, configuration_digest
from experiments.record.result import DIVERGED, Result, advice_after_divergence
from experiments.settings.group import WhichCheckpoint
from experiments.settings.position import POSITION_TABLE

MODEL = "model/"
# of a file or its checksum that is gone, of another kind, too large, or on a bad block; others may pass
DAMAGED = {errno.ENOENT, errno.EISDIR, errno.EINVAL, errno.ERANGE, errno.EIO}
KEPT: dict[WhichCheckpoint, int] = {"newest": 2, "best": 1}


class Checkpoint(NamedTuple):
    """A checkpoint that was read: its step and file, its tensors, and the header that was saved with them."""

    step: int
    path: Path
    digest: str  # of the file
    tensors: dict[str, Tensor]  # on the CPU
    header: dict[str, Any]


@or_other_runs()
def save(folder: Path, which: WhichCheckpoint, step: int, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Write a checkpoint and remove outdated ones of its kind. `header` must be JSON.

    Raises RunFolderError if it cannot be written; the earlier checkpoints are then unchanged.
    """
    path = checkpoint_path(folder, which, step)
    swept(folder)
    # of one of the same step, which stays good until the new one has its name
    earlier: list[str] = []
    with suppress(OSError, ValueError):
        earlier = checksums(path)
    with replacing(path) as temporary:
        write_tensors(tensors, temporary, {"header": json.dumps(header)})
        # before the file gets its name: a file without a checksum is not a checkpoint, a checksum alone is ignored
        digest = file_digest(temporary)
        write(checksum_path(path), "\n".join([digest, *earlier]) + "\n")
    if earlier:
        write(checksum_path(path), f"{digest}\n")
    for file in checkpoint_paths(folder, which):
        # later ones were skipped as damaged, or belong to steps that are being repeated
        if file > path:
            _remove(file)
    remove_outdated(path, which)


def remove_outdated(newest: Path, which: WhichCheckpoint) -> None:
    """Remove checkpoints that are no longer kept beside `newest`, and checksums that a killed process left alone."""
    earlier = [file for file in checkpoint_paths(newest.parent, which) if file < newest]
    for file in earlier[KEPT[which] - 1 :]:
        _remove(file)
    for left in lone_checksums(newest.parent, which):
        left.unlink(missing_ok=True)


def load(folder: Path, which: WhichCheckpoint, say: Callable[[str], None]) -> Checkpoint | None:
    """The newest good checkpoint of its kind; None if there is none.

    Damaged ones are skipped, and `say` receives a line about each. Raises RunFolderError for one that may be good, but
    that this process cannot read.
    """
    paths = checkpoint_paths(folder, which)
    for path in paths:
        checkpoint = _read(path, say)
        if checkpoint is not None:
            return checkpoint
    if paths:
        say(f"{folder}: no good checkpoint is left")
    return None


def load_weights(
    model: nn.Module, run: RunFolder, tokenizer: str, which: WhichCheckpoint, say: Callable[[str], None]
) -> tuple[int, dict[str, Any]]:
    """Give `model` the weights of a run's best or newest good checkpoint; returns its step and its header.

    tokenizer: the digest of the tokenizer in the run's folder. `say` receives a line about each damaged checkpoint,
    that of `remark`, and one if the code of the run has changed since.

    The model may be shorter than the run's. Raises Mistake if there is no checkpoint, and if it belongs to another
    model, other settings or another tokenizer than the folder's.
    """
    checkpoint = load(run.checkpoint, which, say)
    if checkpoint is None:
        raise _nothing_to_load(run, which, say)
    check_origin(checkpoint, run, tokenizer)
    # a result that cannot be read says nothing about good weights
    with suppress(RunFolderError):
        result = run.result()
        if line := remark(checkpoint.path, checkpoint.header, which, result):
            say(line)
        if result is not None and result.code_digest and (changed := changed_code(run, run.config(), result)):
            say(f"{changed} has changed since {run.name} was trained")
    live = weights(model)
    stored = {name: tensor for name, tensor in checkpoint.tensors.items() if name.startswith(MODEL)}
    # a model of a shorter length has the first rows of a table of learned positions
    for name in stored.keys() & live.keys():
        if name.endswith(POSITION_TABLE):
            stored[name] = stored[name][: len(live[name])]
    restore(live, stored)
    return checkpoint.step, checkpoint.header


def _nothing_to_load(run: RunFolder, which: WhichCheckpoint, say: Callable[[str], None]) -> Mistake:
    """The mistake of asking for a checkpoint that a run does not have."""
    other: WhichCheckpoint = "newest" if which == "best" else "best"
    if load(run.checkpoint, other, say) is None:
        anew = f"remove {run.path}, and repeat the command that made the run"
        return Mistake(f"{run.checkpoint}: there is no good checkpoint to load", anew)
    lacking, instead = f"there is no good {which} checkpoint to load", f"--checkpoint {other} loads the other"
    with suppress(RunFolderError):
        if (result := run.result()) is not None and result.status == "nan":
            advice = advice_after_divergence(result.steps, result.skipped_steps)
            lacking, instead = f"the run {DIVERGED}, and {lacking}", f"{advice}; {instead}"
    return Mistake(f"{run.checkpoint}: {lacking}", instead)


def write_tensors(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file. Raises OSError, which the library gives in words only: "... (os error 28)"."""
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(tensors, path, metadata)
        # the library's file can be read by its owner alone, whatever the umask says
        path.chmod(mode)
    except SafetensorError as error:
        match = re.search(r"os error (\d+)", str(error))
        if match is None:
            raise
        number = int(match[1])
        raise OSError(number, os.strerror(number), str(path)) from error


def remark(path: Path, header: dict[str, Any], which: WhichCheckpoint, result: Result | None) -> str:
    """A line about a checkpoint of a run that diverged, or that is not the one of a finished run's result; empty for
    any other.
    """
    if result is not None and result.status == "nan":
        return f"{path}: is of a run that {DIVERGED}: {result.reason}"
    if result is None or result.status != "done":
        return ""
    if which == "newest":
        is_final = step_of(path) == result.steps
    else:
        is_final = header.get("validation_loss") == result.best_validation_loss
    if is_final:
        return ""
    return f"{path}: is an earlier checkpoint than the {which} one of the finished run, which is missing or damaged"


def header_of(path: Path) -> dict[str, Any]:
    """The header of a good checkpoint, read without its tensors. Raises RunFolderError if it is gone."""
    with disk_errors_as_failures(path), safe_open(path, framework="pt") as file:
        header: dict[str, Any] = json.loads(file.metadata()["header"])
        return header


def origin(settings: dict[str, Any], tokenizer: str) -> dict[str, str]:
    """The origin of a checkpoint's weights, for its header: digests of settings and tokenizer."""
    return {"configuration": configuration_digest(settings), "tokenizer": tokenizer}


def check_origin(checkpoint: Checkpoint, run: RunFolder, tokenizer: str) -> None:
    """Raises Mistake that names the file, if settings or tokenizer are not those of the weights' training."""
    for name, now in origin(run.config(), tokenizer).items():
        if checkpoint.header.get(name) != now:
            file = run.path / {"configuration": CONFIG, "tokenizer": TOKENIZER}[name]
            raise Mistake(
                f"{file}: is not the one with which {checkpoint.path.name} was trained; restore the original file"
            )


def weights(model: nn.Module) -> dict[str, Tensor]:
    """The model's own live tensors as `model/NAME`, each once; a tied embedding has its first name."""
    unique: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        unique.setdefault(id(tensor), (MODEL + name, tensor.detach()))
    return dict(unique.values())


def restore(live: dict[str, Tensor], stored: dict[str, Tensor]) -> None:
    """Copy the stored tensors into the live ones. Raises Mistake that names a tensor, unless names and shapes agree."""
    check_fits(live, stored)
    for name, tensor in live.items():
        tensor.copy_(stored[name])


def check_fits(live: dict[str, Tensor], stored: dict[str, Tensor]) -> None:
    """Raises Mistake that names a tensor, unless the live tensors have the names and shapes of the stored ones."""
    for name in sorted(live.keys() ^ stored.keys()):
        raise Mistake(f"the checkpoint belongs to another model: it {'lacks' if name in live else 'also has'} {name}")
    for name, tensor in live.items():
        if tensor.shape != stored[name].shape:
            shapes = f"{list(stored[name].shape)}, not {list(tensor.shape)}"
            raise Mistake(f"the checkpoint belongs to another model: {name} is {shapes}")


def _read(path: Path, say: Callable[[str], None]) -> Checkpoint | None:
    """The checkpoint; None, with a line about it, if it has changed since it was written."""
    try:
        if (digest := file_digest(path)) not in checksums(path):
            raise ValueError("its checksum differs")
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, no dict
            header = json.loads((file.metadata() or {}).get("header", "no header"))
        if not isinstance(header, dict):
            raise ValueError("its header is not a mapping")
        return Checkpoint(step_of(path), path, digest, tensors, header)
    except (OSError, SafetensorError, ValueError, RecursionError) as error:
        if isinstance(error, OSError) and error.errno not in DAMAGED:
            # it may be good, and the next checkpoint that is written would remove it
            with disk_errors_as_failures(path):
                raise
        say(f"{path}: damaged ({error}), skipped")
        return None


def _remove(checkpoint: Path) -> None:
    for path in (checkpoint, checksum_path(checkpoint)):
        path.unlink(missing_ok=True)
