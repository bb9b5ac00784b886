"""A trained run: its model with the weights of a checkpoint, the tokenizer of its folder, and its data."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.config.check import from_tree
from experiments.config.recorded import config_here
from experiments.data.overlap import other_version
from experiments.data.packing import Dataset
from experiments.data.tokenizer import Tokenizer
from experiments.display.progress import Display
from experiments.failures.failure import Mistake
from experiments.model.kernel_availability import set_kernel_cache
from experiments.record.errors import RunFolderError
from experiments.record.folder import RunFolder
from experiments.settings.finetuning import FinetuningSettings
from experiments.settings.group import WhichCheckpoint
from experiments.settings.run import Settings
from experiments.settings.tokenizer import FileTokenizer
from experiments.tasks.choose import task_of

if TYPE_CHECKING:
    from experiments.model.transformer import Transformer
    from experiments.objectives.objective import Objective


class Trained(NamedTuple):
    """A trained run with the data of its settings, which may be other data than those of its training."""

    settings: Settings
    model: Transformer  # on the CPU, in float32, in evaluation mode
    step: int  # of the checkpoint that its weights are from
    header: dict[str, Any]  # of the same
    objective: Objective
    dataset: Dataset
    learned_from: dict[str, Any]  # identity of the text or the examples of its training; empty if it is not known


def open_trained(folder: RunFolder, settings: Settings, which: WhichCheckpoint, display: Display) -> Trained:
    """A trained run with its own tokenizer and the data of the settings, prepared if the cache lacks them.

    `display` shows a line if the settings name the data of the training and these have changed since, and the lines of
    `load_weights`. Raises Mistake as `load_trained` does, DataError, and RunFolderError if there is no tokenizer.
    """
    set_kernel_cache(settings, display.message)
    task = task_of(_with_own_tokenizer(settings, folder))
    dataset = task.prepare(display.stage)
    recorded = from_tree(config_here(folder))
    learned_from, present = _learned_from(folder, recorded), dataset.identity["corpus"]
    if settings.learns_from == recorded.learns_from and (line := other_version(folder.name, learned_from, present)):
        display.message(line)
    model, step, header = load_trained(folder, settings, dataset.tokenizer, which, display.message)
    return Trained(settings, model, step, header, task.objective(dataset.tokenizer), dataset, learned_from)


def load_trained(
    folder: RunFolder, settings: Settings, tokenizer: Tokenizer, which: WhichCheckpoint, say: Callable[[str], None]
) -> tuple[Transformer, int, dict[str, Any]]:
    """The model of a run with the weights of its best or newest good checkpoint, whose step and header come with it.

    The model is on the CPU, in float32, in evaluation mode. tokenizer: the run's own. `say` receives the lines of
    `load_weights`. Raises Mistake if there is no checkpoint, and if it belongs to another model, other settings or
    another tokenizer.
    """
    from experiments.record.checkpoint_file import load_weights

    model = task_of(settings).build_model(tokenizer.vocabulary_size)
    return model.eval(), *load_weights(model, folder, tokenizer.digest, which, say)


def _with_own_tokenizer(settings: Settings, folder: RunFolder) -> Settings:
    """The settings of a run whose task reads the tokenizer of the folder. Raises RunFolderError if it has none."""
    file = folder.tokenizer_file()
    if isinstance(settings, FinetuningSettings):
        # whose task reads the tokenizer of the pretrained run, of which the folder has a copy
        return settings.model_copy(update={"pretrained": str(folder.path)})
    return settings.model_copy(update={"tokenizer": FileTokenizer(kind="file", path=str(file))})


def _learned_from(folder: RunFolder, settings: Settings) -> dict[str, Any]:
    """The identity of the text or the examples that the run was trained on; empty if it is not known."""
    with suppress(RunFolderError):
        if (result := folder.result()) is not None:
            return result.corpus or {}
    # it has not ended yet, or its result cannot be read
    with suppress(Mistake):
        return task_of(settings).identity() or {}
    return {}
