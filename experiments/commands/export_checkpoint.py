"""`attn export`: a run's model as a folder that Hugging Face's transformers loads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from experiments.commands.export_custom import CUSTOM, custom_model
from experiments.config.recorded import pretraining
from experiments.failures.failure import Mistake
from experiments.failures.wording import did_you_mean
from experiments.files.disk import why_no_folder, why_no_new_folder
from experiments.files.durable import new_folder, or_elsewhere, to_json
from experiments.record.folder import TOKENIZER, RunFolder
from experiments.results.find import find_run
from experiments.settings.group import WhichCheckpoint
from experiments.settings.run import Settings
from experiments.tasks.trained import load_trained

if TYPE_CHECKING:
    from torch import Tensor

    from experiments.data.tokenizer import Tokenizer
    from experiments.formats.format import Format


class ExportedModel(Protocol):
    """A model as a folder stores it that transformers loads."""

    @property
    def format(self) -> Format:
        """The format whose special tokens are those of the model."""

    @property
    def config(self) -> dict[str, Any]:
        """The content of config.json."""

    def weights(self, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of our state dict under the names that transformers expects."""

    def write_code(self, folder: Path) -> None:
        """Write the code of the model that transformers lacks. Raises Mistake for code that cannot be copied."""

    def description(self, run: str) -> str:
        """A line or two about the folder."""


class FormatModel(NamedTuple):
    """A model as a format stores it, whose code transformers has."""

    settings: Settings
    format: Format
    config: dict[str, Any]  # config.json

    def weights(self, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors under the names of the format, each stored once."""
        return _without_shared(self.format.to_theirs(ours, self.settings, self.config))

    def write_code(self, folder: Path) -> None:
        """Write nothing, because transformers has it."""

    def description(self, run: str) -> str:
        """The class and the run, and a second line if the format has a note."""
        note = self.format.note(self.settings)
        return f"{self.config['architectures'][0]} of {run}" + (f"\n{note}" if note else "")


def export_run(name: str, target: Path, runs: Path, checkpoint: WhichCheckpoint, format: str | None) -> None:
    """Write a run's checkpoint as a folder that transformers loads.

    format: a model_type, whose code transformers has; or CUSTOM, with the code of the model, for any variant; None:
    the first model_type that fits. Raises Mistake.
    """
    from experiments.data.tokenizer import load
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
        exported = _fitting(settings, size, special, format, imported)
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


def _fitting(
    settings: Settings,
    vocabulary_size: int,
    special: Mapping[str, int],
    model_type: str | None,
    imported: Mapping[str, Any],
) -> FormatModel:
    """The model in the format that can hold it. Raises Mistake if none can, and says what a named one cannot.

    For an imported model, the format of its source comes first, with the other keys of the source's config.json.
    """
    from experiments.formats.format import formats

    known, source = formats(), imported.get("model_type")
    if model_type is not None and model_type not in known:
        allowed = [*known, CUSTOM]
        meant = did_you_mean(model_type, allowed)
        raise Mistake(f"--format {model_type}: must be one of {', '.join(allowed)}{meant}")
    candidates = [*known.values()] if model_type is None else [known[model_type]]
    refusal = ""
    for format in sorted(candidates, key=lambda format: format.model_type != source):
        try:
            config = format.config(settings, vocabulary_size)
        except Mistake as error:
            refusal = f"--format {format.model_type} cannot express this run: {error}"
            continue
        config = format.with_tokens(config, special) | {"dtype": "float32"}
        rest = imported.get("config", {}) if format.model_type == source else {}
        others = {key: value for key, value in rest.items() if key != "torch_dtype"}
        return FormatModel(settings, format, others | config)
    of_none = (
        "no format of transformers can express this run; with --format NAME, this message says why that one cannot"
    )
    raise Mistake(refusal if model_type else of_none, f"--format {CUSTOM} exports the model of any run")


def _token_ids(tokenizer: Tokenizer) -> dict[str, int]:
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
