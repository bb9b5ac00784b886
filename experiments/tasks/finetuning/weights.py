"""The weights that a fine-tuned run starts from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.failures.failure import Mistake
from experiments.record.folder import RunFolder
from experiments.settings.finetuning import FinetuningSettings
from experiments.settings.position import POSITION_TABLE

if TYPE_CHECKING:
    from torch import Tensor

ENCODER_BIAS, BIAS = "model/encoder_relative.", "model/relative."


def pretrained_weights(settings: FinetuningSettings) -> dict[str, Tensor]:
    """`model/NAME` of the weights that `settings.origin` names. Raises Mistake if they no longer exist.

    A learned position table has only the rows for windows of `settings.length`.
    """
    from experiments.record.checkpoint_file import MODEL, check_origin, load

    folder, origin = RunFolder(settings.pretrained), settings.origin
    checkpoint = load(folder.checkpoint, settings.checkpoint, lambda text: None)
    if checkpoint is None or checkpoint.digest != origin.digest:
        raise Mistake(
            f"{folder.checkpoint}: the {settings.checkpoint} checkpoint is not that of step "
            f"{origin.step} with the digest {origin.digest[:8]}, or is damaged"
        )
    check_origin(checkpoint, folder, origin.tokenizer)
    tensors = checkpoint.tensors.items()
    # the encoder of an encoder-decoder has its relative positions under its own name
    weights = {name.replace(ENCODER_BIAS, BIAS): tensor for name, tensor in tensors if name.startswith(MODEL)}
    if (table := weights.get(positions := MODEL + POSITION_TABLE)) is not None:
        weights[positions] = table[: settings.length]
    return weights
