"""The loss on a split: fixed positions to predict, every predicted token weighing the same, sums in float64."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from experiments.data.packing import Packed
from experiments.measure.quality import bits_per_byte, perplexity
from experiments.objectives.objective import Batch, Objective, Scored
from experiments.training.micro_batches import Forward, split

ROWS = 64  # sequences that make a batch: a constant, so that the positions don't depend on the batch size

NUMBERS = ("loss", "perplexity", "bits_per_byte", "unigram_loss")  # of an evaluation, besides the scores of a task


@dataclass(frozen=True)
class Evaluation:
    loss: float  # nats per predicted token
    perplexity: float | None  # of text, as bits_per_byte is
    bits_per_byte: float | None
    unigram_loss: float | None  # nats, of the training split's single-token frequencies on the same targets
    tokens: int  # predicted
    scores: dict[str, float] | None = None  # of a task
    predictions: dict[str, Any] | None = None  # that were scored

    def numbers(self) -> dict[str, float]:
        """All that is known, by its name."""
        known = {name: getattr(self, name) for name in NUMBERS}
        return {name: value for name, value in known.items() if value is not None} | (self.scores or {})


def evaluate(
    model: nn.Module,
    forward: Forward,
    packed: Packed,
    unigram: npt.NDArray[np.int64],
    objective: Objective,
    *,
    sequences: int | None,
    micro_batch: int,
) -> Evaluation:
    """Score `model` on the first `sequences` of a split (None: all), in evaluation mode; its mode is then as before.

    What is predicted depends on the split and on `objective.evaluation_seed` alone. `unigram` [vocabulary] counts the
    training split's tokens; one is added to each count, so that a token never seen has a finite loss. Empty: none is.
    """
    unigram_nats = -np.log((unigram + 1.0) / (unigram.sum() + len(unigram)))
    logits: list[npt.NDArray[np.floating]] = []
    total, total_unigram, tokens = 0.0, 0.0, 0
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            for batch in evaluation_batches(packed, objective, sequences):
                for part in split(batch, micro_batch):
                    logits_PV, nats = forward.predict(part)
                    total += float(nats)
                    if isinstance(objective, Scored):
                        logits.append(logits_PV.float().cpu().numpy())
                if len(unigram):
                    total_unigram += float(unigram_nats[batch.targets.numpy()].sum())
                tokens += len(batch.targets)
    finally:
        model.train(was_training)
    loss = total / tokens
    unigram_loss = total_unigram / tokens if len(unigram) else None
    if isinstance(objective, Scored):
        return Evaluation(loss, None, None, unigram_loss, tokens, *objective.scores(logits))
    return Evaluation(
        loss=loss,
        perplexity=perplexity(loss),
        bits_per_byte=bits_per_byte(loss, packed.token_count, packed.text_bytes),
        unigram_loss=unigram_loss,
        tokens=tokens,
    )


def evaluation_batches(packed: Packed, objective: Objective, sequences: int | None) -> Iterator[Batch]:
    """The first `sequences` of a split in its own order, each batch a function of (evaluation_seed, its index)."""
    count = len(packed.tokens) if sequences is None else min(sequences, len(packed.tokens))
    for index, start in enumerate(range(0, count, ROWS)):
        yield objective.batch(packed.tokens[start : min(start + ROWS, count)], objective.evaluation_seed, index)
