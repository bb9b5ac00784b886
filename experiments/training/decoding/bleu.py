"""BLEU of a model's translations, by sacrebleu (Post 2018, 1804.08771), with the signature that says how."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch

from experiments.data.packing import Packed
from experiments.data.tokenizer import Tokenizer
from experiments.model.encoder_decoder import EncoderDecoder
from experiments.objectives.objective import Batch, Objective
from experiments.settings.objective import Translation
from experiments.training.decoding.beam import beam_search
from experiments.training.micro_batches import Forward, fitting
from experiments.training.precision import autocast


class Bleu(NamedTuple):
    bleu: float  # 0 to 100, of the corpus
    bleu_signature: str  # sacrebleu's
    bleu_pairs: int


def score(
    model: EncoderDecoder,
    forward: Forward,
    packed: Packed,
    tokenizer: Tokenizer,
    objective: Objective,
    *,
    chosen: Translation,
    pairs: int | None,
    batch_size: int,
    report: Callable[[str, int, int | None], None],
    again: Callable[[int], None],
) -> Bleu:
    """Translate the first `pairs` of a split (None: all), in evaluation mode; the model's mode is then as before.

    A reference is what the tokenizer makes of its target's tokens: the text itself where it keeps all bytes. Where
    memory runs out it goes on with half as many sentences at once; `again` is told how many.
    """
    from sacrebleu.metrics import BLEU

    count = len(packed.tokens) if pairs is None else min(pairs, len(packed.tokens))
    hypotheses: list[str] = []
    references: list[str] = []

    def attempt(start: int, size: int) -> tuple[Batch, list[list[int]]]:
        batch = objective.batch(packed.tokens[start : min(start + size, count)], 0, 0)
        return batch, translate(model, forward, batch.inputs, tokenizer, chosen)

    was_training = model.training
    model.eval()
    try:
        while len(hypotheses) < count:
            (batch, found), batch_size = fitting(functools.partial(attempt, len(hypotheses)), batch_size, again)
            hypotheses += [tokenizer.decode(tokens) for tokens in found]
            ends = batch.rows.div(batch.length, rounding_mode="floor").bincount(minlength=len(batch.tokens)).cumsum(0)
            references += [tokenizer.decode(part[:-1].numpy()) for part in batch.targets.tensor_split(ends[:-1])]
            report("translating", len(hypotheses), count)
    finally:
        model.train(was_training)
    metric = BLEU()
    bleu = metric.corpus_score(hypotheses, [references]).score
    return Bleu(bleu, str(metric.get_signature()), count)


def translate(
    model: EncoderDecoder,
    forward: Forward,
    inputs: dict[str, torch.Tensor],
    tokenizer: Tokenizer,
    chosen: Translation,
) -> list[list[int]]:
    """Tokens of the best translations found, without [SEP]."""
    with torch.inference_mode(), autocast(forward.precision, forward.device):
        return beam_search(
            model,
            inputs["tokens"].to(forward.device),
            inputs["mask"].to(forward.device),
            beam=chosen.beam,
            length_penalty=chosen.length_penalty,
            longest=model.length,
            start_id=tokenizer.cls_id,
            end_id=tokenizer.sep_id,
        )
