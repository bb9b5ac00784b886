"""The loss on a split, with fixed positions to predict, equal weights of all predicted tokens, and sums in float64."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from experiments.data.packing import Packed
from experiments.failures.failure import Mistake
from experiments.measure.quality import bits_per_byte, perplexity, unigram_loss
from experiments.objectives.loss import LossSums
from experiments.objectives.objective import Batch, Objective, ScoredObjective, Vocabulary
from experiments.training.step.compiling import eager
from experiments.training.step.micro_batches import Forward, shortage_shared, split

COUNTED = 1 << 12  # sequences whose tokens are counted at once
EVALUATION_BATCH = 64  # sequences that make a batch: a constant, so that the positions don't depend on the batch size


@dataclass(frozen=True)
class Evaluation:
    """The scores of a model on a split."""

    loss: float  # nats per predicted token
    perplexity: float | None  # only for text, like bits_per_byte
    bits_per_byte: float | None  # only where no target is a sentinel, which is no part of the text
    unigram_loss: float | None  # nats per target, predicted from the training split's single-token frequencies
    tokens: int  # number of predicted tokens
    unknown_share: float | None = None  # share of [UNK] in the tokens of the split's text
    order_loss: float | None = None  # nats per sequence, for the order of its segments
    order_accuracy: float | None = None  # share of sequences with the right order; 0.5 by chance
    scores: dict[str, float] | None = None  # the scores of a task
    predictions: dict[str, Any] | None = None  # the predictions that were scored

    def numbers(self) -> dict[str, float]:
        """All known numbers by name, including the scores."""
        known = {name: value for name, value in vars(self).items() if isinstance(value, float)}
        return known | (self.scores or {})


@dataclass
class TargetCounts:
    """How often each id is a target of an evaluation, and the numbers of targets and of labels."""

    targets: npt.NDArray[np.int64]  # [vocabulary]; empty if targets are numbers
    tokens: int = 0
    labels: int = 0

    def add(self, batch: Batch) -> None:
        """Add the counts of a batch."""
        self.tokens += len(batch.targets)
        self.labels += 0 if batch.labels is None else len(batch.labels)
        if len(self.targets):
            self.targets += np.bincount(batch.targets.numpy(), minlength=len(self.targets))


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
    """Score `model` on the first `sequences` sequences of a split (None: all). It is in evaluation mode meanwhile.

    Labels are not smoothed, whatever the training does. The positions to predict depend only on the split and on
    `objective.evaluation_seed`.

    unigram: [vocabulary], the counts of the training split's tokens, or of a task's targets. It is empty if the targets
    are numbers; then there is no unigram loss. Each process takes some parts of the batches, and results are summed in
    the order of the parts. With the same parts, the scores are therefore the same bit by bit for any number of
    processes.

    Raises Mistake if the sequences have nothing to predict.
    """
    forward = replace(forward, label_smoothing=0.0)
    counts = TargetCounts(np.zeros(len(unigram), dtype=np.int64))
    scored: list[tuple[int, list[float], npt.NDArray[np.floating] | None]] = []

    def parts() -> Iterator[Batch]:
        for batch in evaluation_batches(packed, objective, sequences):
            counts.add(batch)
            yield from split(batch, micro_batch)

    was_training = model.training
    model.eval()
    try:
        # uncompiled, as in `attn evaluate`; the last, shorter batch then needs no code of its own
        with shortage_shared(forward.world), torch.no_grad(), eager(model):
            for index, part in forward.world.share(parts()):
                logits_PV, sums = forward.predict(part)
                of_part = logits_PV.float().cpu().numpy() if isinstance(objective, ScoredObjective) else None
                # one copy, because each waits for the device
                scored.append((index, torch.stack(sums).tolist(), of_part))
                # so that they are not in memory together with those of the next part
                del logits_PV
    finally:
        model.train(was_training)
    everywhere = sorted(itertools.chain(*forward.world.gather(scored)), key=lambda part: part[0])
    totals, logits = np.zeros(len(LossSums._fields)), [part for _, _, part in everywhere if part is not None]
    for _, sums_of_part, _ in everywhere:
        totals += sums_of_part
    return _scores(objective, packed, unigram, counts, totals, logits)


def check_targets(packed: Packed, objective: Objective, sequences: int | None) -> None:
    """Raises Mistake if an evaluation would have nothing to predict. It mostly looks at one batch."""
    if not any(len(batch.targets) for batch in evaluation_batches(packed, objective, sequences)):
        raise nothing_to_predict(packed)


def nothing_to_predict(packed: Packed) -> Mistake:
    """The mistake of a split without targets."""
    return Mistake(f"the {packed.split} split has nothing to predict: use a larger length or longer documents")


def _scores(
    objective: Objective,
    packed: Packed,
    unigram: npt.NDArray[np.int64],
    counts: TargetCounts,
    totals: npt.NDArray[np.float64],
    logits: list[npt.NDArray[np.floating]],
) -> Evaluation:
    """The scores of a split from the sums of its losses, `totals`, and the logits [P, C] of its parts in order."""
    if not counts.tokens:
        raise nothing_to_predict(packed)
    nats, _, order_nats, correct = totals.tolist()
    loss = nats / counts.tokens
    if isinstance(objective, ScoredObjective):
        guess = unigram_loss(counts.targets, unigram, frozenset()) if len(unigram) else None
        scores, predictions = objective.scores(logits)
        return Evaluation(loss, None, None, guess, counts.tokens, scores=scores, predictions=predictions)
    only_text = not counts.targets[list(objective.vocabulary.sentinel_ids)].any()
    return Evaluation(
        loss=loss,
        perplexity=perplexity(loss),
        bits_per_byte=bits_per_byte(loss, packed.token_count, packed.text_bytes) if only_text else None,
        unigram_loss=unigram_loss(counts.targets, unigram, objective.vocabulary.special),
        tokens=counts.tokens,
        unknown_share=unknown_share(packed, objective.vocabulary),
        order_loss=order_nats / counts.labels if counts.labels else None,
        order_accuracy=correct / counts.labels if counts.labels else None,
    )


def unknown_share(packed: Packed, vocabulary: Vocabulary) -> float:
    """The share of [UNK] among a split's tokens, without other special tokens; 0 if the tokenizer never needs [UNK]."""
    if vocabulary.unk_id == vocabulary.sep_id:
        return 0.0
    counts = token_counts(packed.tokens, vocabulary.vocabulary_size)
    unknown = counts[vocabulary.unk_id]
    return float(unknown / (counts.sum() - counts[sorted(vocabulary.special)].sum() + unknown))


def token_counts(tokens: np.ndarray, size: int) -> np.ndarray:
    """How often each of `size` tokens occurs in `tokens` [sequences, N], which may be memory-mapped; int64 [size]."""
    counts = np.zeros(size, dtype=np.int64)
    for start in range(0, len(tokens), COUNTED):
        counts += np.bincount(tokens[start : start + COUNTED].reshape(-1), minlength=size)
    return counts


def evaluation_batches(packed: Packed, objective: Objective, sequences: int | None) -> Iterator[Batch]:
    """Batches of the first `sequences` sequences of a split, in order; each depends on (evaluation_seed, its index)."""
    count = len(packed.tokens) if sequences is None else min(sequences, len(packed.tokens))
    for index, start in enumerate(range(0, count, EVALUATION_BATCH)):
        stop = min(start + EVALUATION_BATCH, count)
        yield objective.batch(packed.tokens[start:stop], objective.evaluation_seed, index)
