"""Checkpoints: safetensors files with a checksum beside them, so written that a kill at any moment leaves a good one.

    checkpoint/step-000000100.safetensors + .sha256     weights, moments, the run's progress; the newest two are kept
    checkpoint/best-000000050.safetensors + .sha256     weights of the lowest validation loss

Reading one can't run code: the file holds numbers, and a JSON text in its header.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from experiments.record.durable import replacing, swept, write
from experiments.record.folder import CONFIG, PREFIX, TOKENIZER, RunFolder, checksum, configuration_digest
from experiments.settings.digest import file_digest
from experiments.settings.group import WhichCheckpoint
from experiments.settings.mistake import Mistake

MODEL = "model/"
KEPT: dict[WhichCheckpoint, int] = {"newest": 2, "best": 1}


class Checkpoint(NamedTuple):
    """A checkpoint as it was read: its step and file, its tensors, and the header that was saved with them."""

    step: int
    path: Path
    tensors: dict[str, Tensor]  # on the CPU
    header: dict[str, Any]


def save(folder: Path, which: WhichCheckpoint, step: int, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Write a checkpoint and drop those of its kind that it outdates. `header` must be JSON.

    Raises RunFolderError when it can't be written; the earlier checkpoints are then as they were.
    """
    path = folder / f"{PREFIX[which]}-{step:09d}.safetensors"
    swept(folder)
    with replacing(path) as temporary:
        with _as_os_error():
            save_file(tensors, temporary, {"header": json.dumps(header)})
        # the library's own file is for its user alone
        temporary.chmod(0o644)
        # before the file gets its name: one without a checksum is no checkpoint, a checksum without a file is nothing
        write(path.with_suffix(".sha256"), file_digest(temporary) + "\n")
    others = [file for file in _files(folder, which) if file != path]
    newest = [file for file in others if file < path][: KEPT[which] - 1]
    # what is later than this one was passed over as damaged, or belongs to steps that are being repeated
    for file in set(others) - set(newest):
        _remove(file, file.with_suffix(".sha256"))


def load(folder: Path, which: WhichCheckpoint, report: Callable[[str], None]) -> Checkpoint | None:
    """The newest good checkpoint of its kind; None if there is none. Each damaged one is passed over and reported."""
    paths = _files(folder, which)
    for path in paths:
        checkpoint = _read(path, report)
        if checkpoint is not None:
            return checkpoint
    if paths:
        report(f"{folder}: no good checkpoint is left")
    return None


def load_weights(
    model: nn.Module, run: RunFolder, tokenizer: str, which: WhichCheckpoint, report: Callable[[str], None]
) -> tuple[int, dict[str, Any]]:
    """Give `model` the weights of a run's best or newest good checkpoint; returns its step and its header.

    tokenizer: the digest of the one that the run's folder has. Raises Mistake when there is no checkpoint, or when it
    is of another model, of other settings or of another tokenizer than the folder's.
    """
    checkpoint = load(run.checkpoint, which, report)
    if checkpoint is None:
        other = "newest" if which == "best" else "best"
        folder = run.checkpoint
        raise Mistake(f"{folder}: there is no good {which} checkpoint to load; --checkpoint {other} loads the other")
    check_origin(checkpoint, run, tokenizer)
    live = weights(model)
    restore(live, {name: tensor for name, tensor in checkpoint.tensors.items() if name.startswith(MODEL)})
    return checkpoint.step, checkpoint.header


def origin(settings: dict[str, Any], tokenizer: str) -> dict[str, str]:
    """What a checkpoint's header says of where its weights are from: digests of settings and of the tokenizer."""
    return {"configuration": configuration_digest(settings), "tokenizer": tokenizer}


def check_origin(checkpoint: Checkpoint, run: RunFolder, tokenizer: str) -> None:
    """Raise Mistake, naming the file, where settings or tokenizer are not those that the weights were trained with."""
    for name, now in origin(run.config(), tokenizer).items():
        if checkpoint.header.get(name) != now:
            file = run.path / {"configuration": CONFIG, "tokenizer": TOKENIZER}[name]
            raise Mistake(f"{file}: is not the one that {checkpoint.path.name} was trained with; put that back")


def weights(model: nn.Module) -> dict[str, Tensor]:
    """The model's own live tensors as `model/NAME`, each once: a tied embedding bears its first name."""
    unique: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict().items():
        unique.setdefault(tensor.data_ptr(), (MODEL + name, tensor))
    return dict(unique.values())


def restore(live: dict[str, Tensor], stored: dict[str, Tensor]) -> None:
    """Copy the stored tensors into the live ones. Raises Mistake, naming one, unless names and shapes agree."""
    for name in sorted(live.keys() ^ stored.keys()):
        raise Mistake(f"the checkpoint is of another model: it {'lacks' if name in live else 'also has'} {name}")
    for name, tensor in live.items():
        if tensor.shape != stored[name].shape:
            shapes = f"{list(stored[name].shape)}, not {list(tensor.shape)}"
            raise Mistake(f"the checkpoint is of another model: {name} is {shapes}")
        tensor.copy_(stored[name])


def _read(path: Path, report: Callable[[str], None]) -> Checkpoint | None:
    """The checkpoint, or None and a report if it isn't as it was written."""
    try:
        if file_digest(path) != checksum(path):
            raise ValueError("its checksum differs")
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, no dict
            header = json.loads((file.metadata() or {}).get("header", "no header"))
        if not isinstance(header, dict):
            raise ValueError("its header is no mapping")
        return Checkpoint(int(path.stem.partition("-")[2]), path, tensors, header)
    except (OSError, SafetensorError, ValueError, RecursionError) as error:
        report(f"{path}: damaged ({error}), passed over")
        return None


def _files(folder: Path, which: WhichCheckpoint) -> list[Path]:
    return sorted(folder.glob(f"{PREFIX[which]}-*.safetensors"), reverse=True)


@contextmanager
def _as_os_error() -> Iterator[None]:
    """The library tells the system's error in words only: "... (os error 28)"."""
    try:
        yield
    except SafetensorError as error:
        match = re.search(r"os error (\d+)", str(error))
        if match is None:
            raise
        number = int(match[1])
        raise OSError(number, os.strerror(number)) from error


def _remove(*paths: Path) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
