"""`attn export`: a run's model as a folder that Hugging Face's transformers loads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.config.recorded import pretraining
from experiments.failures.failure import Mistake
from experiments.failures.wording import did_you_mean
from experiments.record.durable import new_folder, to_json
from experiments.record.folder import TOKENIZER, RunFolder
from experiments.results.find import find_run
from experiments.settings.group import WhichCheckpoint
from experiments.settings.run import Settings
from experiments.tasks.pretraining import Pretraining

if TYPE_CHECKING:
    from torch import Tensor

    from experiments.data.tokenizer import Tokenizer
    from experiments.formats.format import Format

CUSTOM = "transformers-custom"  # the --format of `export_custom`


def export_run(name: str, target: Path, runs: Path, checkpoint: WhichCheckpoint, model_type: str | None) -> None:
    """Write a run's checkpoint as a folder that transformers loads. Raises Mistake."""
    from experiments.data.tokenizer import load
    from experiments.record.checkpoint_file import MODEL, load_weights, weights

    check_target(target)
    run = RunFolder(find_run(name, runs))
    settings = pretraining(run)
    tokenizer = load(run.tokenizer_file())
    imported = (run.environment() or {}).get("imported", {})
    format, config = _fitting_format(settings, tokenizer, model_type, imported)
    model = Pretraining(settings).build_initialized_model(tokenizer.vocabulary_size)
    load_weights(model, run, tokenizer.digest, checkpoint, print)
    ours = {key.removeprefix(MODEL): value for key, value in weights(model).items()}
    theirs = _without_shared(format.to_theirs(ours, settings, config))
    with new_folder(target) as partial:
        write_files(partial, theirs, config, tokenizer.with_frame(*format.frame), settings)
    print(f"{target}: {config['architectures'][0]} of {run.name}")
    if note := format.note(settings):
        print(note)


def check_target(target: Path) -> None:
    """Raises Mistake unless the folder of an export is new or empty."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise Mistake(f"{target} exists already", "name a folder that is new or empty")


def write_files(
    folder: Path, tensors: dict[str, Tensor], config: dict[str, Any], tokenizer: Tokenizer, settings: Settings
) -> None:
    """Write what transformers reads: the weights, their configuration, and the tokenizer. Raises OSError."""
    from experiments.record.checkpoint_file import write_tensors

    write_tensors(tensors, folder / "model.safetensors", {"format": "pt"})
    tokenizer.save(folder / TOKENIZER)
    for name, tree in (("config.json", config), ("tokenizer_config.json", _tokenizer_config(tokenizer, settings))):
        (folder / name).write_text(to_json(tree, indent=2) + "\n", encoding="utf-8")


def _fitting_format(
    settings: Settings, tokenizer: Tokenizer, model_type: str | None, imported: Mapping[str, Any]
) -> tuple[Format, dict[str, Any]]:
    """The format that can hold a model, and its complete config.json. Raises Mistake that says why none can.

    For an imported model, the format of its source comes first, with the other keys of the source's config.json.
    """
    from experiments.formats.format import formats

    known, source = formats(), imported.get("model_type")
    if model_type is not None and model_type not in known:
        allowed = [*known, CUSTOM]
        meant = did_you_mean(model_type, allowed)
        raise Mistake(f"--format {model_type}: must be one of {', '.join(allowed)}{meant}")
    candidates = [*known.values()] if model_type is None else [known[model_type]]
    refusals = []
    for format in sorted(candidates, key=lambda format: format.model_type != source):
        try:
            config = format.config(settings, tokenizer.vocabulary_size)
        except Mistake as error:
            refusals.append(f"{format.model_type}: {error}")
            continue
        config = format.with_tokens(config, token_ids(tokenizer)) | {"dtype": "float32"}
        rest = imported.get("config", {}) if format.model_type == source else {}
        return format, {key: value for key, value in rest.items() if key != "torch_dtype"} | config
    raise Mistake(
        "\n  ".join(["no format can express this run:", *refusals]), f"--format {CUSTOM} exports the model of any run"
    )


def token_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """The ids of the special tokens by transformers' names."""
    return {"pad_token_id": tokenizer.pad_id, "bos_token_id": tokenizer.cls_id, "eos_token_id": tokenizer.sep_id}


def _without_shared(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Keep the first of several names of one tensor.

    Safetensors stores each tensor once, and transformers ties them again.
    """
    firsts: dict[int, str] = {}
    contiguous = {name: value.contiguous() for name, value in state.items()}
    return {name: value for name, value in contiguous.items() if firsts.setdefault(value.data_ptr(), name) == name}


def _tokenizer_config(tokenizer: Tokenizer, settings: Settings) -> dict[str, Any]:
    """The special tokens of the tokenizer by transformers' names; T5's has none before a text."""
    special = {f"{role}_token": name for role, name in tokenizer.roles.items()}
    special |= {"bos_token": special["cls_token"], "eos_token": special["sep_token"]}
    if special["cls_token"] == special["pad_token"] != special["sep_token"]:
        del special["cls_token"], special["bos_token"]
    names = ["input_ids", *(["token_type_ids"] if settings.model.token_types > 1 else []), "attention_mask"]
    tree = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": settings.length, **special}
    return {**tree, "model_input_names": names}
