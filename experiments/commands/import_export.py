"""`attn import`, `attn export`: Hugging Face checkpoints into run folders, and back. Nothing that is read can run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.config.compose import compose
from experiments.config.recorded import pretraining
from experiments.record.code_digest import code_digest
from experiments.record.durable import new_folder, to_json
from experiments.record.environment import describe
from experiments.record.find import find_run
from experiments.record.folder import RunFolder
from experiments.record.result import Result
from experiments.settings.digest import file_digest
from experiments.settings.group import WhichCheckpoint
from experiments.settings.mistake import Mistake, first_line
from experiments.settings.run import Settings
from experiments.settings.tokenizer import FileTokenizer
from experiments.tasks.pretraining import Pretraining

if TYPE_CHECKING:
    from torch import Tensor

    from experiments.data.tokenizer import Tokenizer
    from experiments.formats.format import Format

WEIGHTS = ("model.safetensors", "pytorch_model.bin")


def import_folder(source: Path, name: str, runs: Path, overrides: list[str]) -> None:
    """Make `runs`/`name` of a folder with config.json, weights and a tokenizer. Raises Mistake.

    `overrides` are further settings, such as the data that the run is to be evaluated on.
    """
    from experiments.formats.format import format_of
    from experiments.record.checkpoint import MODEL, origin, restore, save, weights

    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise Mistake(f"--name {name}: must be of letters, digits, '.', '_' and '-'")
    folder = RunFolder(runs / name)
    if folder.path.exists():
        raise Mistake(f"{folder.path} exists already", "give another --name")
    config = _config(source)
    format = format_of(config.get("model_type"))
    tokenizer = _tokenizer(source)
    if tokenizer.vocabulary_size != config.get("vocab_size"):
        raise Mistake(
            f"{source}: vocab_size = {config.get('vocab_size')} of config.json, but the tokenizer has "
            f"{tokenizer.vocabulary_size} ids"
        )
    own_tokenizer = FileTokenizer(kind="file", path=str(folder.path / "tokenizer.json"))
    file, state = _weights(source)
    try:
        overrides_of_config = format.overrides(format.completed(config, state))
    except (TypeError, ZeroDivisionError) as error:
        raise Mistake(f"{source / 'config.json'}: a size is no number, or is 0: {error}") from error
    settings = compose([*overrides_of_config, *overrides])
    settings = settings.model_copy(update={"tokenizer": own_tokenizer, "runs": str(runs)})
    unused = [key for key in state if re.fullmatch(format.unused, key)]
    ours = format.from_hugging_face({key: value for key, value in state.items() if key not in unused})
    if (needed := settings.objective.sentinel_count()) > (there := len(tokenizer.sentinel_ids)):
        raise Mistake(
            f"objective.sentinels={needed}: the tokenizer of {source} has {there}", f"add objective.sentinels={there}"
        )
    model = Pretraining(settings).build_initialized_model(tokenizer.vocabulary_size)
    restore(weights(model), {MODEL + key: value for key, value in ours.items()})

    facts = {"folder": str(source.resolve()), "model_type": format.model_type, "weights": file.name}
    facts["weights_digest"] = file_digest(file)
    result = Result.unfinished(
        "imported", f"weights of {file}, not trained here",
        parameters=model.parameter_counts(), steps=0, skipped_steps=0, tokens=0, epochs=0.0, wall_seconds=0.0,
        seed=settings.seed, config=settings.model_dump(), tokenizer_digest=tokenizer.digest,
        code_digest=code_digest(settings.model_dump(), None),
    )  # fmt: skip
    with new_folder(folder.path) as partial, RunFolder(partial) as made:
        made.create(settings.model_dump())
        tokenizer.save(made.path / "tokenizer.json")
        header = {"step": 0, "imported": facts, **origin(settings.model_dump(), tokenizer.digest)}
        save(made.checkpoint, "best", 0, weights(model), header)
        made.write_environment({**describe({}, settings.seed, None), "imported": facts})
        made.write_result(result)
    if unused:
        print(f"left out, as our model has no place for them: {', '.join(unused)}")
    print(f"{folder.path}: {sum(value.numel() for value in ours.values()):,} parameters, as {settings.variant['name']}")


def export_run(name: str, target: Path, runs: Path, checkpoint: WhichCheckpoint, model_type: str | None) -> None:
    """Write a run's checkpoint as a folder that transformers loads. Raises Mistake."""
    from safetensors.torch import save_file

    from experiments.data.tokenizer import load
    from experiments.record.checkpoint import MODEL, load_weights, weights

    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise Mistake(f"{target} exists already", "name a folder that is new or empty")
    run = RunFolder(find_run(name, runs))
    settings = pretraining(run)
    tokenizer = load(run.path / "tokenizer.json")
    format, config = _expressing(settings, tokenizer.vocabulary_size, model_type)
    model = Pretraining(settings).build_initialized_model(tokenizer.vocabulary_size)
    load_weights(model, run, tokenizer.digest, checkpoint, print)
    ours = {key.removeprefix(MODEL): value for key, value in weights(model).items()}
    theirs = _each_once(format.to_hugging_face(ours, settings))

    with new_folder(target) as partial:
        save_file(theirs, partial / "model.safetensors", {"format": "pt"})
        (partial / "config.json").write_text(to_json(config, indent=2) + "\n", encoding="utf-8")
        tokenizer.save(partial / "tokenizer.json")
        (partial / "tokenizer_config.json").write_text(_tokenizer_config(tokenizer, settings), encoding="utf-8")
    print(f"{target}: {config['architectures'][0]} of {run.name}")
    if note := format.note(settings):
        print(note)


def _expressing(settings: Settings, vocabulary_size: int, model_type: str | None) -> tuple[Format, dict[str, Any]]:
    """The format that can hold a model, and its config.json. Raises Mistake that says why none can."""
    from experiments.formats.format import format_of, formats

    refusals = []
    for each in formats().values() if model_type is None else [format_of(model_type)]:
        try:
            return each, each.config(settings, vocabulary_size)
        except Mistake as error:
            refusals.append(f"{each.model_type}: {error}")
    raise Mistake("no format can express this run:\n  " + "\n  ".join(refusals))


def _each_once(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Keep the first of several names of one tensor: safetensors holds no other, and transformers ties them again."""
    firsts: dict[int, str] = {}
    contiguous = {name: value.contiguous() for name, value in state.items()}
    return {name: value for name, value in contiguous.items() if firsts.setdefault(value.data_ptr(), name) == name}


def _config(source: Path) -> dict[str, Any]:
    path = source / "config.json"
    if not path.is_file():
        raise Mistake(f"{source}: there is no config.json", "name a folder that transformers has saved")
    return _mapping(path)


def _mapping(path: Path) -> dict[str, Any]:
    try:
        mapping = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Mistake(f"{path}: no JSON: {error}") from error
    if not isinstance(mapping, dict):
        raise Mistake(f"{path}: no mapping")
    return mapping


def _weights(source: Path) -> tuple[Path, Mapping[str, Tensor]]:
    """The file and its tensors. Neither kind of file can run code: a .bin is unpickled to tensors alone."""
    import torch
    from safetensors.torch import load_file

    files = [source / name for name in WEIGHTS if (source / name).is_file()]
    if not files:
        sharded = any(source.glob("*.index.json"))
        reason = "its weights are in several files, which is not supported" if sharded else f"no {' or '.join(WEIGHTS)}"
        raise Mistake(f"{source}: {reason}", "transformers' save_pretrained(FOLDER, max_shard_size='100GB') writes one")
    file = files[0]
    try:
        if file.suffix == ".safetensors":
            return file, load_file(file)
        state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        # what torch's unpickler raises depends on the bytes: KeyError, IndexError, struct.error, ...
        raise Mistake(f"{file}: can't be read as tensors alone: {first_line(error)}") from error
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise Mistake(f"{file}: is no state dict")
    return file, state


def _tokenizer(source: Path) -> Tokenizer:
    """Read tokenizer.json, or WordPiece from vocab.txt: lower-cased unless tokenizer_config.json says otherwise."""
    from experiments.data.tokenizer import from_vocabulary, load

    if (source / "tokenizer.json").is_file():
        return load(source / "tokenizer.json")
    if not (source / "vocab.txt").is_file():
        raise Mistake(f"{source}: there is neither tokenizer.json nor vocab.txt")
    path = source / "tokenizer_config.json"
    tokenizer_config = _mapping(path) if path.is_file() else {}
    return from_vocabulary(source / "vocab.txt", lowercase=bool(tokenizer_config.get("do_lower_case", True)))


def _tokenizer_config(tokenizer: Tokenizer, settings: Settings) -> str:
    from experiments.data.tokenizer import SPECIAL

    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    special = dict(zip(names, SPECIAL, strict=True))
    tree = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": settings.length, **special}
    return to_json(tree, indent=2) + "\n"
