"""Measure how a tied output embedding changes the scale of the logits, the loss and the number of parameters.

python scripts/tied_embeddings.py

This prints the table of docs/recipe.md, with two more columns, in two to three minutes of one core.

A decoder of two layers is trained on the default text. Every row has two seeds. Tied and untied models see the same
batches.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from experiments.config.compose import compose
from experiments.model.transformer import Transformer
from experiments.settings.run import Settings
from experiments.tasks.choose import task_of
from experiments.training.evaluate import evaluate
from experiments.training.set_up import build_learner
from experiments.training.step.schedule import learning_rate
from experiments.training.step.world import ALONE

SEEDS = (0, 1)
SMALL = (
    "objective=causal", "optimizer=adamw", "hidden_size=64", "heads=2", "layers=2", "max_steps=150",
    "schedule.warmup_steps=30", "precision=fp32", "trainer.device=cpu",
)  # fmt: skip
STARTS = {
    "normal(0, 0.02), norm on the embeddings": ("model.initial_std=0.02",),
    "normal(0, 1/sqrt(d)), embeddings times sqrt(d)": (
        "model.initial_std=0.125", "model.embedding_norm=false", "model.position=sinusoidal",
    ),
    "normal(0, 1), norm on the embeddings": ("model.initial_std=null",),
}  # fmt: skip


class Scale(NamedTuple):
    """The scale of logits, as means over positions."""

    deviation: float  # standard deviation over the vocabulary
    own: float  # logit of the token at the position itself, minus the mean logit of the position


class Measured(NamedTuple):
    """The results of one run."""

    start: Scale
    end: Scale
    first_loss: float  # loss of the first batch, nats per token
    loss: float  # validation loss, nats per token
    parameters: int


def scale(model: Transformer, tokens_BN: Tensor) -> Scale:
    """The scale of the logits on these tokens."""
    with torch.inference_mode():
        logits_BNV = model(tokens_BN)
    centred = logits_BNV - logits_BNV.mean(-1, keepdim=True)
    own = centred.gather(-1, tokens_BN[..., None])
    return Scale(float(centred.square().mean(-1).sqrt().mean()), float(own.mean()))


def train(settings: Settings) -> Measured:
    """Train in memory, with the same steps as a run of `attn train`."""
    torch.set_num_threads(1)
    task, steps = task_of(settings), settings.max_steps
    assert steps is not None
    dataset = task.prepare(lambda *_: None)
    learner = build_learner(settings, task, dataset, torch.device("cpu"), "fp32", ALONE)
    held_out = torch.from_numpy(dataset.validation.tokens[:16].astype("int64"))
    start = scale(learner.model, held_out)
    losses = []
    for step in range(1, steps + 1):
        outcome = learner.take(step, learning_rate(step, steps, settings.learning_rate, settings.schedule))
        losses.append(float(outcome.sums.mean(outcome.batch)))
    score = evaluate(
        learner.model,
        learner.forward,
        dataset.validation,
        dataset.unigram,
        learner.objective,
        sequences=256,
        micro_batch=64,
    )
    parameters = learner.model.parameter_counts()["total"]
    return Measured(start, scale(learner.model, held_out), losses[0], score.loss, parameters)


def row(start: str, tied: bool, outcomes: list[Measured]) -> str:
    """A line of the table: means over the seeds, and the validation loss of each seed."""

    def mean(values: list[float]) -> float:
        return sum(values) / len(values)

    cells = [
        start,
        "tied" if tied else "untied",
        f"{outcomes[0].parameters:,}",
        f"{mean([each.start.deviation for each in outcomes]):.2f}",
        f"{mean([each.start.own for each in outcomes]):.2f}",
        f"{mean([each.first_loss for each in outcomes]):.2f}",
        f"{mean([each.end.deviation for each in outcomes]):.2f}",
        ", ".join(f"{each.loss:.3f}" for each in outcomes),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table in Markdown."""
    print(
        "| start of the embedding | output | parameters | deviation of the logits at the start | own token's logit | "
        "first loss | deviation after training | validation loss, by seed |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for start, settings in STARTS.items():
        for tied in (True, False):
            words = [*SMALL, *settings, f"model.tied={str(tied).lower()}"]
            outcomes = [train(compose([*words, f"seed={seed}"])) for seed in SEEDS]
            print(row(start, tied, outcomes), flush=True)


if __name__ == "__main__":
    main()
