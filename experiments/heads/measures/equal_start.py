"""An experiment: do heads that all start equal stay equal?"""

# B batch, N queries, H value heads, V value size

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from experiments.heads.hooks import read
from experiments.heads.trained_run import TrainedRun
from experiments.model.transformer import Transformer
from experiments.tasks.pretraining import Pretraining

EQUAL, PARTED, DROPPED, INDEPENDENT = (
    "all equal",
    "all equal but the output map",
    "all equal, with attention dropout 0.1",
    "each its own",
)
EQUAL_SPREAD = 1e-6  # relative: under it heads are equal, but for rounding
SEQUENCES = 8  # that the spread is measured on


def spreads(run: TrainedRun, steps: int) -> dict[str, list[float]]:
    """The spread at each step, before the first too, for each way to start."""
    return {start: spread_by_step(run, start, steps) for start in (EQUAL, PARTED, DROPPED, INDEPENDENT)}


def conclusion(by_start: dict[str, list[float]]) -> str:
    """Whether the heads stayed equal, in two sentences, from the result of `spreads`."""
    equal, independent = by_start[EQUAL][-1], by_start[INDEPENDENT][-1]
    stays = "stay equal" if equal < EQUAL_SPREAD else "do not stay equal"
    parted = [start for start in (PARTED, DROPPED) if by_start[start][-1] > EQUAL_SPREAD]
    return (
        f"Verdict: heads that start equal {stays}: after {len(by_start[EQUAL]) - 1} steps their spread is {equal:.2g}, "
        f"that of heads with starts of their own {independent:.2g}. They part when started "
        f"{' or '.join(parted) or 'in no other way'}."
    )


def spread_by_step(run: TrainedRun, start: str, steps: int) -> list[float]:
    """Train with the run's data and optimizer at its peak learning rate, without dropout unless `start` says so.

    Raises NonFiniteError where that diverges.
    """
    settings = run.settings
    dropout = 0.1 if start == DROPPED else 0.0
    config = settings.model.model_copy(update={"dropout": 0.0, "attention_dropout": dropout})
    changed = settings.model_copy(update={"model": config, "variant": settings.variant | {"dropout": dropout}})
    model = Pretraining(changed).build_initialized_model(run.tokenizer.vocabulary_size).double()
    if start != INDEPENDENT:
        make_equal(model, output=start != PARTED)
    learner, text = run.learner(model), next(run.text())[:SEQUENCES]
    by_step = [spread(model, text)]
    for step in range(1, steps + 1):
        learner.take(step, settings.optimizer.learning_rate)
        by_step.append(spread(model, text))
    return by_step


def make_equal(model: Transformer, *, output: bool = True) -> None:
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


def spread(model: Transformer, tokens_BN: Tensor) -> float:
    """The largest difference between outputs of two heads of a layer, over the largest output; of all layers the most.

    0 where all heads of each layer compute the same.
    """
    model.eval()
    by_layer = []
    for seen in read(model, tokens_BN, "outputs"):
        heads = seen["outputs"].movedim(2, 0).flatten(1)
        by_layer.append(float((heads.amax(0) - heads.amin(0)).max() / heads.abs().max()))
    model.train()
    return max(by_layer)
