"""The pretrained run of a fine-tuned one: the settings that it decides, and its weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from experiments.config.groups import options
from experiments.config.validation_messages import sentence
from experiments.failures.failure import Mistake
from experiments.failures.missing_extra import check_installed
from experiments.failures.wording import closest, did_you_mean
from experiments.files.digest import file_digest
from experiments.record.checkpoint_paths import checkpoint_paths, checksums, step_of
from experiments.record.code.changed import changed_code
from experiments.record.code.plugin_files import check_plugins
from experiments.record.errors import RunFolderError
from experiments.record.folder import TOKENIZER, RunFolder
from experiments.settings.finetuning import LIBRARIES
from experiments.settings.group import Fraction, WhichCheckpoint, known_checkpoint
from experiments.settings.position import POSITION_KINDS
from experiments.settings.run import Settings

# what `conf/finetune.yaml` has of the settings of a run
FINETUNING_SETTINGS = frozenset(
    {"length", "batch_size", "learning_rate", "max_steps", "precision", "backend", "seed", "runs", "cache"}
    | {"optimizer", "schedule", "trainer", "logger"}
)
PRETRAINED_SETTINGS = frozenset(Settings.model_fields) - FINETUNING_SETTINGS
# what `inherit` reads besides the pretrained run
READ_TO_INHERIT = frozenset({"pretrained", "checkpoint", "task", "backend", "length", "dropout", "origin"})


def inherit(tree: dict[str, Any]) -> dict[str, Any]:
    """The composed `conf/finetune.yaml` with the settings that the pretrained run decides. Raises Mistake."""
    folder = RunFolder(str(tree["pretrained"]))
    return inherited(tree, _read(folder), _origin(folder, tree["checkpoint"]))


def inherited(tree: dict[str, Any], run: dict[str, Any], origin: dict[str, Any]) -> dict[str, Any]:
    """The composed `conf/finetune.yaml` with what the settings of a pretrained run decide; the run need not exist yet.

    Raises Mistake.
    """
    _check_libraries(tree.get("task"))
    decided = {key: run[key] for key in PRETRAINED_SETTINGS} | {"backend": tree["backend"]}
    model, variant = dict(run["model"]), dict(run["variant"])
    length = run["length"] if tree["length"] is None else tree["length"]
    check_length(length, run)
    # an example is read whole
    model |= {"length": length, "segment_length": None}
    dropout = tree["dropout"]
    if dropout is not None:
        _check_dropout(dropout)
        model |= {"dropout": dropout, "attention_dropout": dropout}
        variant["dropout"] = dropout
    variant["backend"] = tree["backend"]
    without_dropout = {key: value for key, value in tree.items() if key != "dropout"}
    return without_dropout | decided | {
        "length": length,
        "model": model,
        "variant": variant,
        "origin": origin,
    }  # fmt: skip


def check_keys(overrides: list[str]) -> None:
    """Raises Mistake for keys that the pretrained run decides, and for a missing task."""
    keys = {override.partition("=")[0]: override for override in overrides}
    for key, override in keys.items():
        if key.split(".")[0] in PRETRAINED_SETTINGS:
            raise Mistake(f"{override}: the pretrained run decides {key}", "attn finetune --help lists what can be set")
        if key in ("pretrained", "origin"):
            raise Mistake(f"{override}: give the run without a key", "attn finetune RUN task=NAME")
    if "task" not in keys:
        known = options("task")
        wrong = next((key for key in keys if closest(key, ["task"])), "")
        raise Mistake(
            "which task?" + (did_you_mean(wrong, ["task"]) if wrong else ""),
            f"task=NAME; there are: {', '.join(known)}",
        )


def _read(folder: RunFolder) -> dict[str, Any]:
    """The settings of a finished pretraining, or of an imported one. Raises Mistake."""
    check_plugins(folder)
    try:
        run, result = folder.config(), folder.result()
        folder.check_files()
    except RunFolderError as error:
        raise Mistake(str(error)) from error
    if "task" in run:
        raise Mistake(f"{folder.name} is itself a fine-tuned run", f"name the pretrained run: {run['origin']['run']}")
    if result is None or result.status not in ("done", "imported"):
        state = "not finished" if result is None else result.status
        raise Mistake(f"{folder.name}: its pretraining is {state}", "the command that began the run continues it")
    try:
        changed = changed_code(folder, run, result)
    except (LookupError, TypeError) as error:
        raise Mistake(
            f"{folder.name} was trained with code that attn does not have here: {error}",
            "plugins=FOLDER adds files of yours",
        ) from error
    if changed:
        raise Mistake(f"{changed} has changed since {folder.name} was trained")
    return run


def _check_libraries(task: Any) -> None:
    """Raises Mistake if a library is missing that the score needs at the end."""
    # not checked yet: a file of the user's may lack any of it
    if not isinstance(task, dict):
        return
    metrics = task.get("metrics")
    scores = [*(metrics if isinstance(metrics, list) else ()), task.get("scores_of")]
    needed = sorted({library for score, library in LIBRARIES.items() if score in scores})
    check_installed("finetune", f"the score of task={task.get('name')}", *needed)


def _check_dropout(dropout: object) -> None:
    """Raises Mistake for a wrong `dropout`, which would otherwise be named by the places that it goes to."""
    try:
        TypeAdapter(Fraction).validate_python(dropout, strict=True)
    except ValidationError as errors:
        raise Mistake(sentence(errors.errors()[0], ("dropout",), {})) from errors


def check_length(length: Any, run: dict[str, Any]) -> None:
    """Raises Mistake for a length beyond the table of learned positions of a run with these settings.

    Computed positions have no such limit.
    """
    position = run["model"]["position"]
    if POSITION_KINDS[position].trained_to_length and isinstance(length, int) and length > run["length"]:
        endless = [name for name, kind in POSITION_KINDS.items() if not kind.trained_to_length]
        raise Mistake(
            f"length = {length!r}: model.position={position} has a table of {run['length']} positions",
            f"use length={run['length']} or less; model.position={', '.join(endless)} have no such limit",
        )


def _origin(folder: RunFolder, checkpoint: object) -> dict[str, Any]:
    """The identity of the weights, by the checksum beside them. Raises Mistake."""
    which = known_checkpoint(checkpoint, f"checkpoint = {checkpoint!r}")
    tokenizer = folder.path / TOKENIZER
    try:
        good = next(_good(folder, which), None)
        if good is None or not tokenizer.is_file():
            missing = f"good {checkpoint} checkpoint" if good is None else TOKENIZER
            raise Mistake(f"{folder.path}: there is no {missing}")
        path, digest = good
        return {
            "run": folder.name,
            "step": step_of(path),
            "digest": digest,
            "tokenizer": file_digest(tokenizer),
        }
    except (OSError, ValueError) as error:
        raise Mistake(f"{folder.path}: its {checkpoint} checkpoint or {TOKENIZER} can't be read: {error}") from error


def _good(folder: RunFolder, which: WhichCheckpoint) -> Iterator[tuple[Path, str]]:
    """The checkpoints of a kind that are as they were written, newest first, with their digests. Raises OSError."""
    for path in checkpoint_paths(folder.checkpoint, which):
        with suppress(FileNotFoundError, ValueError):
            if (digest := file_digest(path)) in checksums(path):
                yield path, digest
