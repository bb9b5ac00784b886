"""If all heads start equal, do they stay equal? A small experiment, with a verdict."""

# B batch, N queries, H value heads, V value size

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from experiments.data.batches import batch
from experiments.heads.hooks import read
from experiments.heads.trained_run import Subject
from experiments.model.assembly import Assembly
from experiments.model.batch_norm import commit
from experiments.objectives.loss import loss
from experiments.objectives.objective import Batch
from experiments.tasks.pretraining import Pretraining
from experiments.training.optimizer import build_optimizers, step

EQUAL, PARTED, DROPPED, OWN = (
    "all equal",
    "all equal but the output map",
    "all equal, with attention dropout 0.1",
    "each its own",
)
SAME = 1e-6  # relative: under it heads are equal, but for rounding
SEQUENCES = 8  # that the spread is measured on


def spreads(subject: Subject, steps: int) -> dict[str, list[float]]:
    """The spread at each step, before the first too, for each way to start."""
    return {start: spread_by_step(subject, start, steps) for start in (EQUAL, PARTED, DROPPED, OWN)}


def verdict(found: dict[str, list[float]]) -> str:
    equal, own = found[EQUAL][-1], found[OWN][-1]
    stays = "stay equal" if equal < SAME else "do not stay equal"
    parted = [start for start in (PARTED, DROPPED) if found[start][-1] > SAME]
    return (
        f"Verdict: heads that start equal {stays}: after {len(found[EQUAL]) - 1} steps their spread is {equal:.2g}, "
        f"that of heads with starts of their own {own:.2g}. They part when started "
        f"{' or '.join(parted) or 'in no other way'}."
    )


def spread_by_step(subject: Subject, start: str, steps: int) -> list[float]:
    """Train with the run's data and optimizer at its peak learning rate, without dropout unless `start` says so."""
    settings = subject.settings
    dropout = 0.1 if start == DROPPED else 0.0
    config = settings.model.model_copy(update={"dropout": 0.0, "attention_dropout": dropout})
    changed = settings.model_copy(update={"model": config, "variant": settings.variant | {"dropout": dropout}})
    model = Pretraining(changed).start(subject.tokenizer.vocabulary_size).double()
    if start != OWN:
        make_equal(model, output=start != PARTED)
    optimizers = build_optimizers(model, settings.optimizer)
    text = next(subject.text())[:SEQUENCES]
    found = [spread(model, text)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        for number in range(steps):
            masked = training_batch(subject, number)
            model.zero_grad()
            (loss(model(**masked.inputs, rows=masked.rows), masked.targets) / len(masked.targets)).backward()
            step(optimizers)
            commit(model)
            found.append(spread(model, text))
    return found


def make_equal(model: Assembly, *, output: bool = True) -> None:
    """Every value head of a layer, and what only it is computed from, becomes a copy of the first, in place.

    output: so do its columns of the output map.
    """
    for layer in model.layers:
        attention: Any = layer.attention
        own = attention.output.weight.detach().clone()
        attention.keep_heads(attention.value_heads * [0])
        if not output:
            with torch.no_grad():
                attention.output.weight.copy_(own)


def spread(model: Assembly, tokens_BN: Tensor) -> float:
    """The largest difference between outputs of two heads of a layer, over the largest output; of all layers the most.

    0 where all heads of each layer compute the same.
    """
    model.eval()
    found = []
    for seen in read(model, tokens_BN, "outputs"):
        heads = seen["outputs"].movedim(2, 0).flatten(1)
        found.append(float((heads.amax(0) - heads.amin(0)).max() / heads.abs().max()))
    model.train()
    return max(found)


def training_batch(subject: Subject, step: int) -> Batch:
    """The batch of the run's own step, counted from 0."""
    settings = subject.settings
    tokens = batch(subject.dataset.train, settings.seed, step, settings.trainer.batch_size)
    return subject.objective.batch(tokens, settings.seed, step)
