"""`attn export`: a run's model as a folder that Hugging Face's transformers loads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.config.recorded import pretraining
from experiments.failures.failure import Mistake
from experiments.files.disk import why_no_folder, why_no_new_folder
from experiments.files.durable import new_folder, or_elsewhere, to_json
from experiments.formats.custom_model import CUSTOM, custom_model
from experiments.record.folder import TOKENIZER, RunFolder
from experiments.results.find import find_run
from experiments.settings.group import WhichCheckpoint
from experiments.settings.run import Settings
from experiments.tasks.trained import load_trained

if TYPE_CHECKING:
    from torch import Tensor

    from experiments.data.tokenizer import Tokenizer
    from experiments.formats.exported_model import ExportedModel


def export_run(name: str, target: Path, runs: Path, checkpoint: WhichCheckpoint, format: str | None) -> None:
    """Write a run's checkpoint as a folder that transformers loads.

    format: a model_type, whose code transformers has; or CUSTOM, with the code of the model, for any variant; None:
    the first model_type that fits. Raises Mistake.
    """
    from experiments.data.tokenizer import load
    from experiments.formats.exported_model import fitting
    from experiments.record.checkpoint_file import MODEL, weights

    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise Mistake(f"{target} exists already", "name a folder that is new or empty")
    if target.exists() and target.samefile("."):
        # a shell would go on in the folder that was replaced
        raise Mistake(f"{target} is the current folder, which an export would replace", "name another folder")
    if (reason := why_no_folder(target) or why_no_new_folder(target.absolute().parent)) is not None:
        raise Mistake(f"{target}: {reason}", "name another folder")
    run = RunFolder(find_run(name, runs))
    settings = pretraining(run)
    tokenizer = load(run.tokenizer_file())
    size, special = tokenizer.vocabulary_size, _token_ids(tokenizer)
    exported: ExportedModel
    if format == CUSTOM:
        exported = custom_model(settings, size, special)
    else:
        imported = (run.environment() or {}).get("imported", {})
        exported = fitting(settings, size, special, format, imported)
    model, _, _ = load_trained(run, settings, tokenizer, checkpoint, print)
    stored = exported.weights({key.removeprefix(MODEL): value for key, value in weights(model).items()})
    framed = tokenizer.with_frame(*exported.format.frame)
    with or_elsewhere("name another FOLDER"), new_folder(target) as partial:
        _write_files(partial, stored, exported.config, framed, settings)
        exported.write_code(partial)
    print(f"{target}: {exported.description(run.name)}")


def _write_files(
    folder: Path, tensors: dict[str, Tensor], config: dict[str, Any], tokenizer: Tokenizer, settings: Settings
) -> None:
    """Write what transformers reads: the weights, their configuration, and the tokenizer. Raises OSError."""
    from experiments.record.checkpoint_file import write_tensors

    write_tensors(tensors, folder / "model.safetensors", {"format": "pt"})
    tokenizer.save(folder / TOKENIZER)
    for name, tree in (("config.json", config), ("tokenizer_config.json", _tokenizer_config(tokenizer, settings))):
        (folder / name).write_text(to_json(tree, indent=2) + "\n", encoding="utf-8")


def _token_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """The ids of the special tokens by transformers' names."""
    return {"pad_token_id": tokenizer.pad_id, "bos_token_id": tokenizer.cls_id, "eos_token_id": tokenizer.sep_id}


def _tokenizer_config(tokenizer: Tokenizer, settings: Settings) -> dict[str, Any]:
    """The special tokens of the tokenizer by transformers' names; T5's has none before a text."""
    special = {f"{role}_token": name for role, name in tokenizer.roles.items()}
    special |= {"bos_token": special["cls_token"], "eos_token": special["sep_token"]}
    if special["cls_token"] == special["pad_token"] != special["sep_token"]:
        del special["cls_token"], special["bos_token"]
    names = ["input_ids", *(["token_type_ids"] if settings.model.token_types > 1 else []), "attention_mask"]
    tree = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": settings.length, **special}
    return {**tree, "model_input_names": names}
