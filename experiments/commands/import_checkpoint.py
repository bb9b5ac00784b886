"""`attn import`: make a run folder from a checkpoint of Hugging Face's transformers.

No file that it reads can run code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.config.command_line import check_single
from experiments.config.compose import compose
from experiments.data.tokenizer import Tokenizer
from experiments.failures.failure import Mistake
from experiments.failures.wording import as_yaml
from experiments.files.digest import file_digest
from experiments.files.durable import new_folder
from experiments.formats.custom_model import CUSTOM, MODEL_TYPE
from experiments.formats.source import find_checkpoint, read_config, read_tokenizer, read_weights
from experiments.record.code.digests import code_digest
from experiments.record.dotted import value_at
from experiments.record.environment import describe
from experiments.record.errors import or_other_runs
from experiments.record.folder import CONFIG, RESERVED, TOKENIZER, RunFolder
from experiments.record.result import Result
from experiments.settings.model import RUNTIME_KEYS
from experiments.settings.run import Settings
from experiments.settings.tokenizer import FileTokenizer
from experiments.tasks.pretraining import Pretraining

if TYPE_CHECKING:
    from experiments.formats.format import Format
    from experiments.model.transformer import Transformer

# what the command itself decides
DECIDED = {"runs": "--runs FOLDER names the folder of the run", "tokenizer": "the run has that of the checkpoint"}
# what only a training reads; a group stands for all of its keys
TRAINING_KEYS = {
    "max_steps", "schedule", "trainer.max_steps", "trainer.max_tokens", "trainer.max_minutes", "trainer.log_every",
    "trainer.evaluate_every", "trainer.checkpoint_every", "trainer.guard", "trainer.guard_limit",
}  # fmt: skip


def import_checkpoint(source: str, name: str, runs: Path, overrides: list[str], check: bool = False) -> None:
    """Make `runs`/`name` from a local folder, or a name on the hub, with config.json, weights and a tokenizer.

    `overrides` are further settings, such as the data for evaluations. check: first compare its logits and tokens with
    those of transformers. Raises Mistake, and Failure if the hub does not answer, and then makes nothing.
    """
    from experiments.formats.compare_with_transformers import compare_with_transformers
    from experiments.formats.format import format_of
    from experiments.record.checkpoint_file import MODEL, restore, weights

    _check_no_run(Path(source))
    check_single(overrides)
    _check_used(overrides)
    folder = _free_folder(name, source, runs)
    checkpoint, origin_in_words = find_checkpoint(source)
    config = read_config(checkpoint)
    _check_no_custom_export(config, checkpoint)
    format = format_of(config.get("model_type"))
    tokenizer = _resized(read_tokenizer(checkpoint), config.get("vocab_size"), checkpoint)
    _check_padding(format, config, tokenizer, checkpoint)
    _check_start(config, tokenizer, checkpoint)
    file, state = read_weights(checkpoint)
    completed = format.completed(config, state)
    settings = compose(_overridden(format.overrides(completed), overrides))
    _check_model(format.settings(completed), settings, checkpoint)
    own_tokenizer = FileTokenizer(kind="file", path=str(folder / TOKENIZER))
    settings = settings.model_copy(update={"tokenizer": own_tokenizer, "runs": str(runs)})
    _check_sentinels(settings, tokenizer, checkpoint)
    unused = [key for key in state if re.fullmatch(format.unused, key)]
    ours = format.to_ours({key: value for key, value in state.items() if key not in unused}, config)
    model = Pretraining(settings).build_initialized_model(tokenizer.vocabulary_size)
    restore(weights(model), {MODEL + key: value for key, value in ours.items()})
    agreed = compare_with_transformers(checkpoint, format, settings, model, tokenizer) if check else None
    facts = {"source": origin_in_words, "model_type": format.model_type, "weights": file.name, "config": config}
    facts["weights_digest"] = file_digest(file)
    _write_run(folder, settings, model, tokenizer, facts, f"weights of {file}, not trained here")
    print(f"from {origin_in_words}")
    if unused:
        print(f"left out, because our model has no place for them: {', '.join(unused)}")
    if agreed:
        print(agreed)
    print(f"{folder}: {sum(value.numel() for value in ours.values()):,} parameters, as {settings.variant['name']}")


def _free_folder(name: str, source: str, runs: Path) -> Path:
    """The folder of the new run, with its name or that of its source. Raises Mistake for a name that it cannot have."""
    given, name = name, name or Path(source).resolve().name
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        said = "must consist of letters, digits, '.', '_' and '-'"
        if given:
            raise Mistake(f"--name {name}: {said}")
        raise Mistake(f"{source}: {name!r} cannot be the name of a run, which {said}", "give one with --name NAME")
    if name in RESERVED:
        taken = f"{name} in the folder of the runs is for {RESERVED[name]}"
        raise Mistake(f"--name {name}: {taken}" if given else f"{source}: {taken}", "give another --name")
    if (folder := runs / name).exists():
        raise Mistake(f"{folder} exists already", "give another --name")
    return folder


def _write_run(
    folder: Path, settings: Settings, model: Transformer, tokenizer: Tokenizer, facts: dict[str, Any], reason: str
) -> None:
    """Write the run folder. facts: those of the import, for its record. reason: why it has no numbers of a training."""
    from experiments.record.checkpoint_file import origin, save, weights

    result = Result.unfinished(
        "imported", reason,
        parameters=model.parameter_counts(), steps=0, skipped_steps=0, tokens=0, epochs=0.0, wall_seconds=0.0,
        seed=settings.seed, config=settings.model_dump(), tokenizer_digest=tokenizer.digest,
        code_digest=code_digest(settings.model_dump(), None, trained=False),
    )  # fmt: skip
    with or_other_runs(), new_folder(folder) as partial, RunFolder(partial) as run_folder:
        run_folder.create(settings.model_dump())
        tokenizer.save(run_folder.path / TOKENIZER)
        header = {"step": 0, "imported": facts, **origin(settings.model_dump(), tokenizer.digest)}
        save(run_folder.checkpoint, "best", 0, weights(model), header)
        run_folder.write_environment({**describe({}, settings.seed, None), "imported": facts})
        run_folder.write_result(result)


def _check_no_run(source: Path) -> None:
    """Raises Mistake for a run folder, which needs no import."""
    if (source / CONFIG).is_file() and not (source / "config.json").is_file():
        raise Mistake(f"{source} is a run folder already", "attn evaluate, heads, finetune and export take it as it is")


def _check_used(overrides: list[str]) -> None:
    """Raises Mistake for a setting that neither the command nor any use of its run reads."""
    for text in overrides:
        key = text.partition("=")[0]
        group = key.partition(".")[0]
        hint = DECIDED.get(group)
        if {key, group} & TRAINING_KEYS:
            hint = "the run is not trained; attn finetune takes settings of a training"
        if hint is not None:
            raise Mistake(f"{text}: attn import does not use {key}", hint)


def _check_no_custom_export(config: Mapping[str, Any], checkpoint: Path) -> None:
    """Raises Mistake for what `attn export --format transformers-custom` wrote, which lacks the settings of its run."""
    if config.get("model_type") == MODEL_TYPE:
        raise Mistake(
            f"{checkpoint}: `attn export --format {CUSTOM}` wrote it, and it cannot be imported",
            "use the run that was exported; attn evaluate, heads and finetune take it as it is",
        )


def _resized(tokenizer: Tokenizer, size: object, checkpoint: Path) -> Tokenizer:
    """The tokenizer with as many ids as the model. A published model may have ids that its tokenizer does not use."""
    if not isinstance(size, int) or size < tokenizer.vocabulary_size:
        raise Mistake(
            f"{checkpoint}: vocab_size = {size} of config.json, but the tokenizer has {tokenizer.vocabulary_size} ids"
        )
    return tokenizer if size == tokenizer.vocabulary_size else tokenizer.with_unused(size)


def _check_padding(format: Format, config: Mapping[str, Any], tokenizer: Tokenizer, checkpoint: Path) -> None:
    """A format may count positions from the padding on, which must then be that of the tokenizer. Raises Mistake."""
    if format.first_position(config) != format.first_position({**config, "pad_token_id": tokenizer.pad_id}):
        raise Mistake(
            f"{checkpoint}: pad_token_id = {config.get('pad_token_id')} of config.json, from which positions are "
            f"counted, but {tokenizer.roles['pad']} of the tokenizer is {tokenizer.pad_id}"
        )


def _check_start(config: Mapping[str, Any], tokenizer: Tokenizer, checkpoint: Path) -> None:
    """The decoder's first token must be that with which ours begins. Raises Mistake."""
    start = config.get("decoder_start_token_id")
    if start not in (None, tokenizer.cls_id):
        raise Mistake(
            f"{checkpoint}: decoder_start_token_id = {start} of config.json, but our decoder begins with "
            f"{tokenizer.roles['cls']}, which is {tokenizer.cls_id}"
        )


def _overridden(of_config: list[str], more: list[str]) -> list[str]:
    """The overrides of the config.json, and those of the user, which take precedence."""
    overridden = {override.partition("=")[0] for override in more}
    return [*(override for override in of_config if override.partition("=")[0] not in overridden), *more]


def _check_model(own: Mapping[str, Any], settings: Settings, checkpoint: Path) -> None:
    """The settings must be those of the checkpoint's model, whose weights may fit another one. Raises Mistake."""
    tree = settings.model_dump()
    for key, value in own.items():
        if key.rpartition(".")[2] not in RUNTIME_KEYS and (other := value_at(tree, key)) != value:
            raise Mistake(
                f"{key} = {as_yaml(other)}: the model of {checkpoint} has {as_yaml(value)}",
                "leave it out; `attn train` makes other models",
            )


def _check_sentinels(settings: Settings, tokenizer: Tokenizer, checkpoint: Path) -> None:
    if (sentinels := settings.objective.sentinel_count()) > (available := len(tokenizer.sentinel_ids)):
        raise Mistake(
            f"objective.sentinels={sentinels}: the tokenizer of {checkpoint} has {available}",
            f"add objective.sentinels={available}",
        )
