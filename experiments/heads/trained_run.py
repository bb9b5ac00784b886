"""The run on the page: its trained model, and held-out text of its own data."""

# B batch, N length

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from experiments.data.packing import Dataset
from experiments.data.tokenizer import Tokenizer
from experiments.display.progress import Display
from experiments.failures.failure import Mistake
from experiments.heads.parts import decoder_layers
from experiments.model.transformer import Transformer
from experiments.objectives.objective import Batch, Objective
from experiments.record.folder import RunFolder
from experiments.settings.group import WhichCheckpoint
from experiments.settings.run import Settings
from experiments.tasks.trained import open_trained
from experiments.training.evaluate import evaluation_batches, token_counts
from experiments.training.step.learner import Learner, learner_of
from experiments.training.step.micro_batches import split

TOKENS_AT_ONCE = 1 << 11  # whose maps are in memory at once


@dataclass(frozen=True, eq=False)
class TrainedRun:
    """A trained model with the data that it was trained on. It equals only itself, so that its numbers can be kept."""

    name: str
    settings: Settings
    model: Transformer  # trained, on the CPU, in float32, in evaluation mode
    objective: Objective
    dataset: Dataset
    sequences: int  # of the validation split, from its start

    @property
    def tokenizer(self) -> Tokenizer:
        """The run's own tokenizer."""
        return self.dataset.tokenizer

    @functools.cached_property
    def token_counts(self) -> dict[str, Tensor]:
        """How often a token occurs in the training text, int64 [vocabulary], by the input of the model that reads it.

        The two inputs of an encoder-decoder differ in this only if they are sides of sentence pairs.
        """
        targets = torch.from_numpy(self.dataset.unigram.copy())
        if not self.settings.data.holds_pairs:
            return {"tokens": targets, "decoder_tokens": targets}
        pairs = self.dataset.train.tokens
        # a row is the source, then the target
        sources = token_counts(pairs[:, : pairs.shape[1] // 2], len(targets))
        return {"tokens": torch.from_numpy(sources), "decoder_tokens": targets}

    @property
    def micro_batch(self) -> int:
        """The number of sequences that go through the model together."""
        return max(1, TOKENS_AT_ONCE // self.settings.length)

    def token_batches(self) -> Iterator[Tensor]:
        """Held-out tokens without masks, int64 [B, N] in each batch."""
        tokens = self.dataset.validation.tokens[: self.sequences]
        for start in range(0, len(tokens), self.micro_batch):
            yield torch.from_numpy(tokens[start : start + self.micro_batch].astype(np.int64))

    @property
    def has_two_sides(self) -> bool:
        """Whether the model is an encoder-decoder."""
        return decoder_layers(self.model) > 0

    def text_batches(self) -> Iterator[dict[str, Tensor]]:
        """The model's inputs for held-out text: tokens without masks; for an encoder-decoder, both sides as in an
        evaluation.
        """
        if self.has_two_sides:
            yield from (batch.inputs for batch in self.masked_batches())
        else:
            yield from ({"tokens": tokens} for tokens in self.token_batches())

    def masked_batches(self) -> Iterator[Batch]:
        """Held-out text with the run's evaluation masks; each batch has a position to predict."""
        for batch in evaluation_batches(self.dataset.validation, self.objective, self.sequences):
            # a part of sequences without such a position may have labels
            yield from (part for part in split(batch, self.micro_batch) if len(part.targets))

    def learner(self, model: Transformer) -> Learner:
        """A learner of `model` on the run's batches and with its optimizer, on the CPU, in the model's own precision.

        Gradients are not clipped, and labels not smoothed.
        """
        settings = self.settings
        changes = {
            "optimizer": settings.optimizer.model_copy(update={"clip": None}),
            "trainer": settings.trainer.model_copy(update={"label_smoothing": 0.0}),
        }
        device = torch.device("cpu")
        changed = settings.model_copy(update=changes)
        return learner_of(changed, model, self.objective, self.dataset.train, device=device, precision="fp32")

    def is_special(self, tokens: Tensor) -> Tensor:
        """Bool, in the shape of `tokens`: special tokens such as [CLS] and [SEP]."""
        return torch.isin(tokens, torch.tensor(sorted(self.tokenizer.special)))

    def token_texts(self, tokens: Tensor) -> list[str]:
        """The texts of the tokens [N] for a reader; for a part of a character, the vocabulary's name."""
        vocabulary_names = self.tokenizer.tokens(tokens.numpy())
        texts = [self.tokenizer.decode([int(token)]) for token in tokens]
        visible_texts = [text.strip() or text.replace("\n", "\u21b5").replace(" ", "\u2423") for text in texts]
        return [
            text if text and "\ufffd" not in text else name
            for text, name in zip(visible_texts, vocabulary_names, strict=True)
        ]


def open_trained_run(
    folder: RunFolder, settings: Settings, checkpoint: WhichCheckpoint, sequences: int, display: Display
) -> TrainedRun:
    """The trained run with its own tokenizer. Raises Mistake, also without a good checkpoint."""
    if (length := settings.model.segment_length) is not None:
        raise Mistake(f"{folder.name}: model.segment_length={length}; maps need a run without segments")
    run = open_trained(folder, settings, checkpoint, display)
    count = min(sequences, len(run.dataset.validation.tokens))
    return TrainedRun(folder.name, settings, run.model, run.objective, run.dataset, count)
