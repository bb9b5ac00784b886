"""Texts that an encoder-decoder generates, scored by its objective."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from experiments.data.packing import Packed
from experiments.data.tokenizer import Tokenizer
from experiments.model.architectures.encoder_decoder import EncoderDecoder
from experiments.objectives.objective import Batch, DecodedObjective, Decoding
from experiments.training.decoding.beam import beam_search
from experiments.training.micro_batches import Forward, fitting
from experiments.training.precision import autocast


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
    """Decode the first `sequences` of a split (None: all), in evaluation mode; the model's mode is then as before.

    A reference is what the tokenizer makes of its target's tokens: the text itself where it keeps all bytes. Where
    memory runs out it goes on with half as many sequences at once; `again` is told how many. Returns fields of a
    result.
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
            texts += [tokenizer.decode(tokens) for tokens in decoded]
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
    """Tokens of the best text of the beam search for each sequence of `inputs`, without [SEP]."""
    assert isinstance(model, EncoderDecoder), "only a decoder writes texts by itself"
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
