"""An experiment: do heads that all start equal stay equal?"""

# B batch, N queries, H value heads, V value size

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from experiments.heads.hooks import heads_have_biases, read_stages
from experiments.heads.trained_run import TrainedRun
from experiments.model.transformer import Transformer
from experiments.tasks.pretraining import Pretraining

ALL_EQUAL, OWN_OUTPUT_MAPS, WITH_DROPOUT, INDEPENDENT = (
    "all equal",
    "all equal but the output map",
    "all equal, with attention dropout 0.1",
    "each its own",
)
EQUAL_SPREAD = 1e-6  # relative spread below which heads are equal up to rounding
SPREAD_SEQUENCES = 8  # sequences on which the spread is measured


def spreads_by_start(run: TrainedRun, steps: int) -> dict[str, list[float]]:
    """The spread at each step, including before the first one, for each way to start."""
    return {
        start: train_and_measure_spread(run, start, steps)
        for start in (ALL_EQUAL, OWN_OUTPUT_MAPS, WITH_DROPOUT, INDEPENDENT)
    }


def conclusion(by_start: dict[str, list[float]]) -> str:
    """Whether the heads stayed equal, in two sentences, from the result of `spreads_by_start`."""
    equal, independent = by_start[ALL_EQUAL][-1], by_start[INDEPENDENT][-1]
    stays = "stay equal" if equal < EQUAL_SPREAD else "do not stay equal"
    separating = [start for start in (OWN_OUTPUT_MAPS, WITH_DROPOUT) if by_start[start][-1] > EQUAL_SPREAD]
    return (
        f"Verdict: heads that start equal {stays}: after {len(by_start[ALL_EQUAL]) - 1} steps their spread is "
        f"{equal:.2g}, that of heads with starts of their own {independent:.2g}. They part when started "
        f"{' or '.join(separating) or 'in no other way'}."
    )


def train_and_measure_spread(run: TrainedRun, start: str, steps: int) -> list[float]:
    """Train with the run's data and optimizer at its peak learning rate, without dropout unless `start` says so.

    Raises NonFiniteError if the training diverges.
    """
    settings = run.settings
    dropout = 0.1 if start == WITH_DROPOUT else 0.0
    model_settings = settings.model.model_copy(update={"dropout": 0.0, "attention_dropout": dropout})
    changed_settings = settings.model_copy(
        update={"model": model_settings, "variant": settings.variant | {"dropout": dropout}}
    )
    model = Pretraining(changed_settings).build_initialized_model(run.tokenizer.vocabulary_size).double()
    if start != INDEPENDENT:
        make_heads_equal(model, output=start != OWN_OUTPUT_MAPS)
    learner, token_batch = run.learner(model), next(run.token_batches())[:SPREAD_SEQUENCES]
    by_step = [head_spread(model, token_batch)]
    for step in range(1, steps + 1):
        learner.take(step, settings.optimizer.learning_rate)
        by_step.append(head_spread(model, token_batch))
    return by_step


def make_heads_equal(model: Transformer, *, output: bool = True) -> None:
    """Make every value head of a layer a copy of the first one, with all parameters that only this head uses, in place.

    If the model's positions have a bias for every head, every head gets that of the first one.

    output: also copy its columns of the output map.
    """
    if heads_have_biases(model):
        positions = model.get_submodule("relative")
        with torch.no_grad():
            for biases in (*positions.parameters(), *positions.buffers()):
                # the last dimension is that of the heads
                biases.copy_(biases[..., :1].clone())
    for layer in model.layers:
        attention: Any = layer.attention
        output_map = attention.output.weight.detach().clone()
        attention.keep_heads(attention.value_heads * [0])
        if not output:
            with torch.no_grad():
                attention.output.weight.copy_(output_map)


def head_spread(model: Transformer, tokens_BN: Tensor) -> float:
    """The largest difference between outputs of two heads of a layer, relative to the largest output; the maximum over
    layers.

    0 if all heads of each layer compute the same.
    """
    model.eval()
    layer_spreads = []
    for stages in read_stages(model, tokens_BN, "outputs"):
        heads = stages["outputs"].movedim(2, 0).flatten(1)
        layer_spreads.append(float((heads.amax(0) - heads.amin(0)).max() / heads.abs().max()))
    model.train()
    return max(layer_spreads)
