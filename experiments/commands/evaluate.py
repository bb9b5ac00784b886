"""`attn evaluate RUN...`: the scores of runs' checkpoints on any split of any text, with the runs' own tokenizers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.config.pretrained import check_length
from experiments.config.recorded import config_here, override
from experiments.data.corpus import SPLITS
from experiments.data.overlap import has_text_of_training
from experiments.display.lines import warn
from experiments.display.progress import Display
from experiments.display.rows import Row, show
from experiments.failures.exit_code import ExitCode
from experiments.failures.failure import Failure, Mistake
from experiments.failures.unread import unread_settings
from experiments.failures.wording import as_yaml, did_you_mean
from experiments.record.folder import RunFolder
from experiments.results.selection import named_folders, settings_in
from experiments.settings.finetuning import FinetuningSettings
from experiments.settings.group import WhichCheckpoint
from experiments.settings.model import RUNTIME_KEYS
from experiments.settings.run import Settings
from experiments.tasks.trained import open_trained

# what an evaluation reads, or compares with what the run was trained with; a group stands for all of its keys
READ_KEYS = {
    "data", "task", "objective", "model", "variant", "heads", "key_size", "value_size", "hidden_size", "layers", "norm",
    "length", "batch_size", "precision", "backend", "cache", "trainer.device", "trainer.precision",
    "trainer.micro_batch", "trainer.batch_size", "trainer.threads", "trainer.evaluation_sequences",
}  # fmt: skip
TRAINING_KEYS = {"model.dropout", "model.attention_dropout", "variant.dropout"}  # of those groups
MAY_DIFFER = (
    "what may differ from the training: the data, the files of the task, settings of the objective, length, "
    "batch_size, precision, backend, cache, trainer.device, trainer.micro_batch, trainer.threads and "
    "trainer.evaluation_sequences"
)
UNREAD = {"runs": "--runs names the folder of the run", "tokenizer": "a run is scored with its own tokenizer"}


def evaluate_runs(
    selection: list[str], runs: Path, checkpoint: WhichCheckpoint, format: str, generate: bool = False
) -> ExitCode:
    """Print the scores of the checkpoints of runs, and of texts that they generate if requested; returns the exit code.

    selection: the names of runs, or starts of their names, and key=value.

    A run that cannot be scored does not stop the others. Raises Mistake for settings that do not fit a run, and Failure
    if there is only one run and it cannot be scored.
    """
    split, overrides = _take_split(settings_in(selection, runs))
    folders = [*map(RunFolder, named_folders(selection, runs))]
    if not folders:
        raise Mistake("which run?", "attn evaluate RUN; `attn compare` lists the finished ones")
    checked = [(folder, _checked(folder, overrides, split, generate)) for folder in folders]
    rows: list[Row] = []
    failures: list[Failure] = []
    try:
        for folder, settings in checked:
            try:
                rows.append(_scored(folder, settings, split, checkpoint, generate))
            except Failure as failure:
                if len(folders) == 1:
                    raise
                failures.append(failure)
                warn(f"failed: {folder.name}: {failure}")
    finally:
        # also those that were scored before a signal; runs with different objectives have different scores
        columns = dict.fromkeys(column for row in rows for column in row)
        if rows:
            show([{column: row.get(column) for column in columns} for row in rows], format)
    return failures[0].exit_code if failures else ExitCode.DONE


def _checked(folder: RunFolder, overrides: list[str], split: str, generate: bool) -> Settings:
    """The settings of a run with which it is scored. Raises Mistake if it cannot be scored so."""
    config = config_here(folder)
    settings = override(config, [*overrides, *_trained_angles(config, overrides)])
    _check_read(overrides, settings, generate)
    if settings.objective.kind != (trained := config["objective"]["kind"]):
        raise Mistake(f"objective={settings.objective.kind}: {folder.name} was trained for objective={trained} only")
    _check_model(folder.name, config, settings.model_dump(), overrides)
    check_length(settings.length, config)
    if generate:
        if not settings.objective.generation_keys:
            raise Mistake(
                f"--generate: {folder.name} has objective={settings.objective.kind}, which generates no texts"
            )
        settings.objective.check_scorer("--generate")
    else:
        # it need not have the library that scores texts
        settings = settings.model_copy(update={"objective": settings.objective.without_generation()})
    if isinstance(settings, FinetuningSettings):
        if split != "validation":
            raise Mistake(
                f"split={split}: a task is scored on its validation split", "task.validation=FILE gives another one"
            )
        _check_task(folder.name, config["task"], settings.task.model_dump())
    return settings


def _trained_angles(trained: dict[str, Any], overrides: list[str]) -> list[str]:
    """Overrides that keep the angles of rotary positions, whose defaults follow the length."""
    typed = {override.partition("=")[0] for override in overrides}
    bases = {f"model.{key}": trained["model"][key] for key in ("rotary_base", "local_rotary_base")}
    return [f"{key}={base}" for key, base in bases.items() if key not in typed]


def _scored(folder: RunFolder, settings: Settings, split: str, checkpoint: WhichCheckpoint, generate: bool) -> Row:
    """The row of a run. Raises Failure."""
    from experiments.training.score import score

    with Display() as display:
        run = open_trained(folder, settings, checkpoint, display)
        packed = getattr(run.dataset, split)
        if packed is None:
            raise _missing(split, settings)
        if has_text_of_training(run.learned_from, run.dataset.identity["corpus"], split):
            display.message(
                f"{folder.name} was trained on text of this {split} split: the score does not tell how well it "
                "predicts other text"
            )
        scores = score(run, packed, display, generate=generate)
    return {"run": folder.name, "checkpoint": f"{checkpoint}, step {run.step}", "split": split, **scores}


def _missing(split: str, settings: Settings) -> Mistake:
    """The mistake of evaluating on a split that the corpus lacks."""
    place = "SPLIT of the data set" if settings.data.needs_network else "FILE"
    return Mistake(f"split = {split!r}: this corpus does not have it", f"split=validation, or data.test={place}")


def _check_read(overrides: list[str], settings: Settings, generate: bool) -> None:
    """Raises Mistake for a setting that does not affect an evaluation."""
    of_texts = set() if generate else {f"objective.{key}" for key in settings.objective.generation_keys}
    for text, key, group in unread_settings(overrides, READ_KEYS, TRAINING_KEYS | of_texts):
        if key in of_texts:
            raise Mistake(f"{text}: an evaluation does not use {key}", "one with --generate does")
        raise Mistake(f"{text}: an evaluation does not use {key}", UNREAD.get(group, MAY_DIFFER))


def _check_model(name: str, trained: dict[str, Any], requested: dict[str, Any], overrides: list[str]) -> None:
    """Refuse settings, such as heads, that give weights of the same shapes to another model. Raises Mistake."""
    typed = {override.partition("=")[0] for override in overrides} - RUNTIME_KEYS
    for group in ("model", "variant"):
        for key, value in trained[group].items():
            if key not in RUNTIME_KEYS and (other := requested[group].get(key)) != value:
                # one outside of groups also reaches those that refer to it
                reaching = (each for each in typed if (trained.get(each), requested.get(each)) == (value, other))
                named = next(reaching, f"{group}.{key}")
                raise Mistake(
                    f"{named} = {as_yaml(other)}: {name} was trained with {as_yaml(value)}",
                    f"{named}={as_yaml(value)} evaluates it as it was trained",
                )


def _check_task(name: str, trained: dict[str, Any], requested: dict[str, Any]) -> None:
    """Refuse a task whose answers are not those that the run was trained to give. Raises Mistake."""
    for key in ("kind", "labels"):
        if (other := requested.get(key)) != (value := trained.get(key)):
            raise Mistake(
                f"task={requested['name']} has {key} = {other}: {name} was trained with {value}",
                f"task.validation=FILE scores it on other examples of {trained['name']}",
            )


def _take_split(overrides: list[str]) -> tuple[str, list[str]]:
    """Take `split=test`, which names the split to score, out of the overrides."""
    splits = [override.removeprefix("split=") for override in overrides if override.startswith("split=")]
    if len(splits) > 1:
        raise Mistake(f"split is given twice: split={splits[0]} and split={splits[1]}")
    split = splits[0] if splits else "validation"
    if split not in SPLITS:
        raise Mistake(f"split = {split!r}: must be one of {', '.join(SPLITS)}" + did_you_mean(split, SPLITS))
    return split, [override for override in overrides if not override.startswith("split=")]
