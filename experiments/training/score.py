"""The scores of a trained run on a split, computed as in its training."""

from __future__ import annotations

from typing import Any

import torch

from experiments.data.packing import Packed
from experiments.display.progress import Display
from experiments.measure.hardware import resolve_device, resolve_precision
from experiments.model.kernel_availability import why_slower
from experiments.objectives.objective import DecodedObjective
from experiments.tasks.trained import Trained
from experiments.training.evaluate import evaluate
from experiments.training.step.micro_batches import Forward, fitting


def score(run: Trained, packed: Packed, display: Display, *, generate: bool) -> dict[str, Any]:
    """The losses on a split of the run's data, by name, and if requested the scores of texts that it generates.

    The precision is that of the training unless the settings name one. While memory runs out, the number of sequences
    at once is halved. Raises OutOfMemoryError if not even one fits.
    """
    settings, objective, trainer = run.settings, run.objective, run.settings.trainer
    # as in training: sums follow their number
    torch.set_num_threads(trainer.threads)
    device = resolve_device(trainer.device)
    if (reason := why_slower(settings, device)) is not None:
        display.message(reason)
    # that of the training, wherever that was; an imported model has none
    precision = run.header.get("precision") if trainer.precision == "auto" else None
    precision = precision or resolve_precision(trainer.precision, device)
    forward = Forward(run.model.to(device), device, precision, settings.seed)

    def again(size: int) -> None:
        display.message(f"out of memory: {size} sequences at once")

    evaluation, size = fitting(
        lambda size: evaluate(
            run.model, forward, packed, run.dataset.unigram, objective,
            sequences=trainer.evaluation_sequences, micro_batch=size,
        ),
        trainer.micro_batch or trainer.batch_size,
        again,
    )  # fmt: skip
    scores: dict[str, Any] = {**evaluation.numbers(), "tokens": evaluation.tokens}
    if generate:
        from experiments.training.decoding import texts

        assert isinstance(objective, DecodedObjective)
        fields = texts.score(
            run.model, forward, packed, run.dataset.tokenizer, objective,
            sequences=objective.decoding().sequences or None, batch_size=size, report=display.stage, again=again,
        )  # fmt: skip
        scores |= fields.pop("text_scores") | fields
    return scores
