"""Texts that an encoder-decoder generates, scored by its objective."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from experiments.data.packing import Packed
from experiments.data.tokenizer import Tokenizer
from experiments.model.architectures import encoder_decoder
from experiments.objectives.objective import Batch, DecodedObjective, Decoding
from experiments.training.decoding.beam import beam_search
from experiments.training.step.micro_batches import Forward, fitting
from experiments.training.step.precision import autocast


def score(
    model: nn.Module,
    forward: Forward,
    packed: Packed,
    tokenizer: Tokenizer,
    objective: DecodedObjective,
    *,
    sequences: int | None,
    batch_size: int,
    report: Callable[[str, int, int | None], None],
    again: Callable[[int], None],
) -> dict[str, Any]:
    """Decode and score the first `sequences` sequences of a split (None: all), and return fields of a result.

    The model is in evaluation mode meanwhile. A reference text is decoded from the target's tokens; it is the original
    text if the tokenizer keeps all bytes. [UNK] is left out of a decoded text. If memory runs out, half as many
    sequences are decoded at once, and `again` is called with their number.
    """
    count = len(packed.tokens) if sequences is None else min(sequences, len(packed.tokens))
    decoding = objective.decoding()
    texts: list[str] = []
    references: list[str] = []

    def attempt(start: int, size: int) -> tuple[Batch, list[list[int]]]:
        batch = objective.batch(packed.tokens[start : min(start + size, count)], 0, 0)
        return batch, decode(model, forward, batch.inputs, tokenizer, decoding)

    was_training = model.training
    model.eval()
    try:
        while len(texts) < count:
            (batch, decoded), batch_size = fitting(functools.partial(attempt, len(texts)), batch_size, again)
            # the characters of [UNK] would match those of an unknown word in the reference
            texts += [tokenizer.decode([i for i in tokens if i != tokenizer.unk_id]) for tokens in decoded]
            ends = (
                batch.positions.div(batch.length, rounding_mode="floor").bincount(minlength=len(batch.tokens)).cumsum(0)
            )
            references += [tokenizer.decode(part[:-1].numpy()) for part in batch.targets.tensor_split(ends[:-1])]
            report("decoding", len(texts), count)
    finally:
        model.train(was_training)
    scored = objective.score_texts(texts, references)
    return {"text_scores": scored.scores, "text_scores_meaning": scored.meaning, "scored_texts": count}


def decode(
    model: nn.Module, forward: Forward, inputs: dict[str, Tensor], tokenizer: Tokenizer, decoding: Decoding
) -> list[list[int]]:
    """The tokens of the best text that the beam search finds for each sequence of `inputs`, without [SEP]."""
    assert isinstance(model, encoder_decoder.Architecture), "only an encoder-decoder generates texts"
    with torch.inference_mode(), autocast(forward.precision, forward.device):
        return beam_search(
            model,
            inputs["tokens"].to(forward.device),
            inputs["mask"].to(forward.device),
            beam=decoding.beam,
            length_penalty=decoding.length_penalty,
            longest=model.length,
            start_id=tokenizer.cls_id,
            end_id=tokenizer.sep_id,
        )
