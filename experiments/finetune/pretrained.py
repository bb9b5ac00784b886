"""The pretrained run that a fine-tuned one goes on from: what it decides, which weights, and how they are read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from experiments.data.tokenizer import NAME as TOKENIZER
from experiments.finetune.scores import LIBRARIES
from experiments.finetune.settings import FineTuning
from experiments.mistake import Mistake, nearest
from experiments.record.durable import RunFolderError
from experiments.record.folder import PREFIX, RunFolder, Which
from experiments.settings import Objective, Settings
from experiments.signature import module_of, source_digest

if TYPE_CHECKING:
    from torch import Tensor

# what `conf/finetune.yaml` has of the settings of a run
OWN = frozenset(
    {"length", "batch_size", "learning_rate", "max_steps", "precision", "backend", "seed", "runs", "cache"}
    | {"optimizer", "schedule", "trainer", "logger"}
)
POSITIONS = "model/embedding.position.weight"
DECIDED = frozenset(Settings.model_fields) - OWN


def inherit(tree: dict[str, Any]) -> dict[str, Any]:
    """The composed `conf/finetune.yaml` with what the pretrained run decides. Raises Mistake."""
    folder = RunFolder(str(tree["pretrained"]))
    return inherited(tree, _read(folder), _origin(folder, tree["checkpoint"]))


def inherited(tree: dict[str, Any], run: dict[str, Any], origin: dict[str, Any]) -> dict[str, Any]:
    """The same of a run by its settings, which may be one still to come. Raises Mistake."""
    _check_encodes(run, origin["run"])
    _check_libraries(tree["task"])
    decided = {key: run[key] for key in DECIDED} | {"backend": tree["backend"]}
    model, variant = dict(run["model"]), dict(run["variant"])
    length = run["length"] if tree["length"] is None else tree["length"]
    _check_length(length, run)
    model["length"] = length
    dropout = tree["dropout"]
    if dropout is not None:
        model |= {"dropout": dropout, "attention_dropout": dropout}
        variant["dropout"] = dropout
    variant["backend"] = tree["backend"]
    own = {key: value for key, value in tree.items() if key != "dropout"}
    return own | decided | {
        "length": length,
        "model": model,
        "variant": variant,
        "origin": origin,
    }  # fmt: skip


def pretraining(folder: RunFolder) -> Settings:
    """What a run was pretrained with. Raises Mistake for a fine-tuned one."""
    from experiments.configuration import from_tree

    settings = from_tree(folder.config())
    if isinstance(settings, FineTuning):
        raise Mistake(f"{folder.name} is fine-tuned", f"name the pretrained run: {settings.origin.run}")
    return settings


def _read(folder: RunFolder) -> dict[str, Any]:
    """The settings of a finished pretraining, or of an imported one. Raises Mistake."""
    try:
        run, result = folder.config(), folder.result()
    except RunFolderError as error:
        raise Mistake(str(error)) from error
    if "task" in run:
        raise Mistake(f"{folder.name} is fine-tuned itself", f"name the pretrained run: {run['origin']['run']}")
    if result is None or result.status not in ("done", "imported"):
        state = "not finished" if result is None else result.status
        raise Mistake(f"{folder.name}: its pretraining is {state}", "the command that began it continues it")
    if result.attention_digest != source_digest(run["variant"]):
        raise Mistake(f"attention/{module_of(run['variant'])}.py is another than {folder.name} was trained with")
    return run


def _check_encodes(run: dict[str, Any], name: str) -> None:
    objective = TypeAdapter[Any](Objective).validate_python(run["objective"])
    if not objective.encodes:
        raise Mistake(
            f"{name}: its objective={objective.kind} trains no encoder; what is fine-tuned attends both ways",
            "those of objective=masked, masked_sop and permutation are",
        )


def _check_libraries(task: dict[str, Any]) -> None:
    """Raises Mistake where a score could not be computed in the end."""
    needed = sorted({LIBRARIES[metric] for metric in task.get("metrics", ()) if metric in LIBRARIES})
    if missing := [library for library in needed if find_spec(library) is None]:
        raise Mistake(
            f"task={task['name']} is scored with {', '.join(missing)}",
            'pip install -c constraints.txt -e ".[finetune]"',
        )


def _check_length(length: Any, run: dict[str, Any]) -> None:
    """Positions that are computed go on; a learned one that was never trained is none. Raises Mistake."""
    if run["model"]["position"] == "learned" and isinstance(length, int) and length > run["length"]:
        raise Mistake(
            f"length = {length!r}: model.position=learned has a table of {run['length']} positions",
            f"use length={run['length']} or less; rotary, relative, sinusoidal and no positions have no such end",
        )


def _origin(folder: RunFolder, checkpoint: Any) -> dict[str, Any]:
    """Which weights they are, by the checksum beside them. Raises Mistake."""
    if checkpoint not in PREFIX:
        raise Mistake(
            f"checkpoint = {checkpoint!r}: must be one of {', '.join(PREFIX)}" + nearest(str(checkpoint), PREFIX)
        )
    path = next(_files(folder, checkpoint), None)
    tokenizer = folder.path / TOKENIZER
    if path is None or not tokenizer.is_file():
        missing = f"{checkpoint} checkpoint" if path is None else TOKENIZER
        raise Mistake(f"{folder.path}: there is no {missing}")
    return {
        "run": folder.name,
        "step": int(path.stem.partition("-")[2]),
        "digest": path.with_suffix(".sha256").read_text(encoding="ascii").strip(),
        "tokenizer": hashlib.sha256(tokenizer.read_bytes()).hexdigest(),
    }


def _files(folder: RunFolder, which: Which) -> Iterator[Path]:
    """The checkpoints of a kind that have a checksum, the newest first."""
    paths = sorted(folder.checkpoint.glob(f"{PREFIX[which]}-*.safetensors"), reverse=True)
    return (path for path in paths if path.with_suffix(".sha256").is_file())


def pretrained_weights(settings: FineTuning) -> dict[str, Tensor]:
    """`model/NAME` of the weights that `settings.origin` names. Raises ValueError where they are no longer there.

    Of a learned position table the rows that windows of `settings.length` have.
    """
    from experiments.training.checkpoint import MODEL, load

    folder, origin = RunFolder(settings.pretrained), settings.origin
    found = load(folder.checkpoint, settings.checkpoint, lambda text: None)
    if found is None or found.path.with_suffix(".sha256").read_text(encoding="ascii").strip() != origin.digest:
        raise ValueError(
            f"{folder.checkpoint}: the {settings.checkpoint} checkpoint is not (or no longer) that of step "
            f"{origin.step} with the digest {origin.digest[:8]}, or is damaged"
        )
    weights = {name: tensor for name, tensor in found.tensors.items() if name.startswith(MODEL)}
    if (table := weights.get(POSITIONS)) is not None:
        weights[POSITIONS] = table[: settings.length]
    return weights
