"""A trained run: its model with the weights of a checkpoint, and the tokenizer of its folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.data.tokenizer import Tokenizer
from experiments.record.folder import RunFolder
from experiments.settings.finetuning import FinetuningSettings
from experiments.settings.group import WhichCheckpoint
from experiments.settings.run import Settings
from experiments.settings.tokenizer import FileTokenizer
from experiments.tasks.choose import task_of

if TYPE_CHECKING:
    from experiments.model.transformer import Transformer


class Trained(NamedTuple):
    """A trained model, and the checkpoint that its weights are from."""

    model: Transformer  # on the CPU, in float32, in evaluation mode
    step: int
    header: dict[str, Any]  # of the checkpoint


def load_trained(
    folder: RunFolder, settings: Settings, tokenizer: Tokenizer, which: WhichCheckpoint, say: Callable[[str], None]
) -> Trained:
    """The model of a run with the weights of its best or newest good checkpoint.

    tokenizer: the run's own. `say` receives the lines of `load_weights`. Raises Mistake if there is no checkpoint, and
    if it belongs to another model, other settings or another tokenizer.
    """
    from experiments.record.checkpoint_file import load_weights

    model = task_of(settings).build_model(tokenizer.vocabulary_size)
    step, header = load_weights(model, folder, tokenizer.digest, which, say)
    return Trained(model.eval(), step, header)


def with_own_tokenizer(settings: Settings, folder: RunFolder) -> Settings:
    """The settings of a run whose task reads the tokenizer of the folder. Raises RunFolderError if it has none."""
    file = folder.tokenizer_file()
    if isinstance(settings, FinetuningSettings):
        # whose task reads the tokenizer of the pretrained run, of which the folder has a copy
        return settings.model_copy(update={"pretrained": str(folder.path)})
    return settings.model_copy(update={"tokenizer": FileTokenizer(kind="file", path=str(file))})
