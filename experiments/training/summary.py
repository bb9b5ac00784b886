"""The result of a run: its numbers, how they were measured, and their conditions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from experiments.measure.hardware import device_name
from experiments.measure.mfu import mfu
from experiments.objectives.objective import DecodedObjective
from experiments.record.code.digests import code_digest
from experiments.record.result import Result, Status
from experiments.settings.run import Settings
from experiments.training.run import Run
from experiments.training.step.compiling import eager

# numbers of an evaluation that a result has under the same name
OF_EVALUATION = (
    "unigram_loss", "perplexity", "bits_per_byte", "unknown_share", "order_loss", "order_accuracy", "scores",
)  # fmt: skip


def summarize(run: Run | None, settings: Settings, status: Status, reason: str | None) -> Result:
    """The result as far as it is known; `run` is None if its setup failed."""
    nothing = {"steps": 0, "skipped_steps": 0, "tokens": 0, "epochs": 0.0, "wall_seconds": 0.0}
    fields = nothing if run is None else of_run(run)
    if run is not None and status == "done":
        # last, because its time and memory are not those of the training
        fields |= decoded(run)
    fields |= {"seed": settings.seed, "config": settings.model_dump()}
    if status == "done":
        return Result(status=status, reason=None, **fields)
    assert reason
    return Result.unfinished(status, reason, **fields)


def of_run(run: Run) -> dict[str, Any]:
    """The numbers of a run so far, and their conditions."""
    return extent(run) | quality(run) | speed_and_memory(run) | conditions(run) | asdict(run.usage())


def extent(run: Run) -> dict[str, Any]:
    """The length of the run in steps, tokens and epochs."""
    progress = run.progress
    return {
        "steps": progress.step,
        "skipped_steps": len(progress.skipped),
        "tokens": progress.tokens,
        "epochs": progress.step * run.settings.trainer.batch_size / len(run.dataset.train.tokens),
    }


def late_gain(evaluations: Sequence[tuple[int, float]], steps: int) -> float | None:
    """The gain in nats from the last evaluation in the first nine tenths of the steps to that after the last step.

    evaluations: step and validation loss. steps: those that were taken, which the clock may have ended before the
    planned ones. None if there is not one of each.
    """
    before = [loss for step, loss in evaluations if 10 * step <= 9 * steps]
    after = [loss for step, loss in evaluations if step == steps]
    return before[-1] - after[-1] if before and after else None


def quality(run: Run) -> dict[str, Any]:
    """Losses of the final weights. An evaluation of earlier weights does not count."""
    progress = run.progress
    measured = (progress.evaluation if progress.evaluated_at == progress.step else None) or {}
    return {
        "validation_loss": measured.get("loss"),
        "best_validation_loss": progress.best_loss,
        "late_gain": late_gain(progress.evaluations, progress.step),
        "training_loss": progress.training_loss,
        **{name: measured.get(name) for name in OF_EVALUATION},
    }


def decoded(run: Run) -> dict[str, Any]:
    """Scores of texts generated with the final weights; none if the objective generates no texts."""
    objective = run.objective
    if not isinstance(objective, DecodedObjective) or (sequences := objective.decoding().sequences) == 0:
        return {}
    from experiments.training.decoding import texts

    with run.world.together("make_whole"):
        run.world.make_whole(run.model)
    with eager(run.model):
        return texts.score(
            run.model, run.forward, run.dataset.validation, run.dataset.tokenizer, objective,
            sequences=sequences, batch_size=run.learner.micro_batch, report=run.display.stage,
            again=lambda size: run.say(f"out of memory: {size} sequences at once"),
        )  # fmt: skip


def speed_and_memory(run: Run) -> dict[str, Any]:
    """The time and memory of a step, and the computation in it."""
    speed, flops = run.throughput.steady(), flops_per_token(run)
    rate = speed.tokens_per_second
    return {
        "tokens_per_second": rate,
        "tokens_per_second_spread": speed.spread,
        "throughput_meaning": speed.meaning,
        "peak_memory_of_all_bytes": sum(each.peak_bytes for each in run.usage_by_process()),
        "peak_memory_meaning": run.memory.meaning,
        "parameters": run.model.parameter_counts(),
        "flops_per_token": flops,
        "mfu": None if rate is None else mfu(rate / run.world.size, flops, run.forward.device, run.forward.precision),
    }


def conditions(run: Run) -> dict[str, Any]:
    """The parts of the run and the machine that it ran on."""
    return {
        "backend": run.backend,
        "precision": run.forward.precision,
        "compiled": run.progress.compiled,
        "device": device_name(run.forward.device),
        "devices": run.world.size,
        "sharded": run.world.sharded,
        "micro_batch": run.learner.micro_batch,
        "corpus": run.dataset.identity["corpus"],
        "sequences": run.dataset.sequences,
        "tokenizer_digest": run.dataset.tokenizer.digest,
        "code_digest": code_digest(run.settings.model_dump(), run.backend),
    }


def flops_per_token(run: Run) -> float:
    """Floating-point operations of the forward and backward pass, for each token of a sequence of the full length."""
    return run.model.flops_per_token(run.settings.length, run.objective.predicted_share)
