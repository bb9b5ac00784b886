"""Training: a run is set up, takes its steps, is looked at and kept now and then, and ends with a result."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from experiments.display.progress import Display
from experiments.measure.flops import mfu
from experiments.measure.free_cores import Cores
from experiments.measure.memory import give_back_freed_memory
from experiments.measure.quality import bits_per_byte, perplexity
from experiments.model.batch_norm import commit, discard
from experiments.objectives.objective import Batch, Scored, Sums
from experiments.record.checkpoint import save, weights
from experiments.record.durable import RunFolderError, to_json, write
from experiments.record.folder import RunFolder
from experiments.record.result import Result, Status
from experiments.record.wandb_mirror import Tracker
from experiments.settings.run import Settings
from experiments.training import optimizer
from experiments.training.evaluate import evaluate
from experiments.training.guard import NonFiniteError, describe, locate
from experiments.training.interruption import Interrupted, Interruption
from experiments.training.micro_batches import OutOfMemoryError, backward, fitting, is_out_of_memory
from experiments.training.run import Run, keep, restore_newest, set_up, training_batch
from experiments.training.schedule import learning_rate
from experiments.training.summary import flops_per_token, summarize

# the metrics that are measured: all the others are the same, bit by bit, however often a run on a CPU was killed
MEASURED = ("tokens_per_second", "peak_memory_bytes", "wall_seconds", "mfu")


def train(settings: Settings, folder: RunFolder, tracker: Tracker, display: Display, cores: Cores) -> Result:
    """Train in `folder`, from its newest good checkpoint on if there is one, until the first limit is reached.

    Returns the result, which is also in the folder: `done`, `nan` (the guard gave up) or `oom` (not one sequence fits).
    Raises ValueError for what the user has to change, before the first step.
    SIGINT and SIGTERM raise Interrupted when the step under way is finished and kept; before that, and before any other
    exception leaves, a result that says why is written. In a thread other than the main one signals are not handled.
    """
    run: Run | None = None
    try:
        with Interruption() as interruption:
            run = set_up(settings, folder, tracker, display, cores)
            with interruption.deferred():
                take_steps(run, interruption)
            result = summarize(run, settings, "done", None)
        return conclude(result, folder, tracker)
    except BaseException as error:
        status, reason = verdict(error)
        folder.log(f"{status}: {reason}")
        if status in ("nan", "oom"):
            return conclude(summarize(run, settings, status, reason), folder, tracker)
        # the folder may be what failed
        with suppress(RunFolderError):
            conclude(summarize(run, settings, status, reason), folder, tracker)
        if run is not None and isinstance(error, ValueError):
            # a ValueError is the user's to mend; what a step says is not
            raise RuntimeError(f"step {run.progress.step + 1} failed") from error
        raise


def take_steps(run: Run, interruption: Interruption) -> None:
    trainer = run.settings.trainer
    while not run.progress.ended:
        advance(run)
        run.progress.ended = run.limit_reached()
        look(run)
        if run.due(trainer.checkpoint_every) or interruption.pending:
            keep(run)
        if not run.progress.ended:
            interruption.check()


def advance(run: Run) -> None:
    """One step further: taken, or passed over because the guard found it not finite."""
    while (step := run.progress.step + 1) not in run.progress.skipped:
        try:
            take_step(run, step)
            break
        except NonFiniteError as fault:
            overcome(run, fault)
    run.progress.step = step


def take_step(run: Run, step: int) -> None:
    """Batch, gradient, guard, update. Raises NonFiniteError before a weight has changed."""
    progress, clip = run.progress, run.settings.optimizer.clip
    with run.throughput.step() as counted:
        batch = training_batch(run, step)
        counted.tokens = batch.tokens_read
        found = gradient(run, batch, step)
        mean = float(found.mean(batch))
        total_norm = get_total_norm(
            [parameter.grad for parameter in run.model.parameters() if parameter.grad is not None]
        )
        norm = float(total_norm)
        if not math.isfinite(mean + norm):
            where = locate(run.model, lambda: list(run.forward.losses(batch, step, progress.micro_batch)))
            raise NonFiniteError(step, describe(step, batch.tokens, mean, norm, where))
        if clip is not None:
            clip_grads_with_norm_(run.model.parameters(), clip, total_norm)
        optimizer.set_learning_rate(run.optimizers, rate(run, step))
        optimizer.step(run.optimizers)
        commit(run.model)
    progress.tokens += batch.tokens_read
    progress.loss_sum += float(found.tokens)
    progress.positions += len(batch.targets)
    progress.order_sum += float(found.labels)
    progress.orders += 0 if batch.labels is None else len(batch.labels)
    progress.gradient_norm = norm


def gradient(run: Run, batch: Batch, step: int) -> Sums:
    """The gradient of the batch's mean loss, in micro-batches that fit; returns what the batch costs."""

    def attempt(micro_batch: int) -> Sums:
        run.model.zero_grad(set_to_none=True)
        discard(run.model)
        return backward(run.forward, batch, step, micro_batch)

    found, run.progress.micro_batch = fitting(attempt, run.progress.micro_batch, lambda size: make_room(run, size))
    return found


def make_room(run: Run, micro_batch: int) -> None:
    """After an out-of-memory: let go of what is not needed, and say what comes."""
    run.model.zero_grad(set_to_none=True)
    give_back_freed_memory()
    run.say(f"out of memory at step {run.progress.step + 1}: going on with {micro_batch} sequences at once")


def rate(run: Run, step: int) -> float:
    return learning_rate(step, run.planned, run.settings.optimizer.learning_rate, run.settings.schedule)


def overcome(run: Run, fault: NonFiniteError) -> None:
    """Mark the step to be passed over; `reload` goes back to the newest checkpoint. Raises the fault at the limit."""
    trainer, skipped = run.settings.trainer, [*run.progress.skipped, fault.step]
    if trainer.guard == "stop":
        raise fault
    if len(skipped) > trainer.guard_limit:
        raise NonFiniteError(fault.step, f"{fault}; trainer.guard_limit={trainer.guard_limit} is used up") from fault
    if trainer.guard == "skip":
        run.progress.skipped = skipped
        run.say(f"{fault}; skipped")
        return
    restore_newest(run)
    run.progress.skipped = skipped
    # a start after a kill must know of it too
    keep(run)
    run.say(f"{fault}; back to step {run.progress.step}, and past it without that step")


def look(run: Run) -> None:
    """Log and evaluate, when it is time."""
    trainer, progress = run.settings.trainer, run.progress
    metrics: dict[str, Any] = {}
    if run.due(trainer.log_every) and progress.positions:
        metrics |= training_metrics(run)
    if run.due(trainer.evaluate_every):
        metrics |= validation_metrics(run)
    if not metrics:
        return
    metrics = {"step": progress.step, "tokens": progress.tokens, **metrics, "wall_seconds": run.wall_seconds}
    run.folder.append_metrics(metrics)
    run.tracker.log(progress.step, metrics)
    if "loss" in metrics:
        run.display.update(metrics)


def training_metrics(run: Run) -> dict[str, Any]:
    """Of the steps since the last logged one: the mean loss in nats per predicted token; norm and rate of the last."""
    progress, train = run.progress, run.dataset.train
    loss = progress.training_loss = progress.loss_sum / progress.positions
    order = {"order_loss": progress.order_sum / progress.orders} if progress.orders else {}
    progress.loss_sum, progress.positions, progress.order_sum, progress.orders = 0.0, 0, 0.0, 0
    speed = run.throughput.recent()
    of_text = (
        {
            "perplexity": perplexity(loss),
            "bits_per_byte": bits_per_byte(loss, train.token_count, train.text_bytes),
        }
        if not isinstance(run.objective, Scored)
        else {}
    )
    metrics = {
        "loss": loss,
        **of_text,
        **order,
        "learning_rate": rate(run, progress.step),
        "gradient_norm": progress.gradient_norm,
        "tokens_per_second": speed,
        "peak_memory_bytes": run.peak_memory_bytes,
    }
    used = speed and mfu(speed, flops_per_token(run), run.forward.device, run.forward.precision)
    return metrics if used is None else {**metrics, "mfu": used}


def validation_metrics(run: Run) -> dict[str, Any]:
    """Of the weights as they are now; the best so far are kept. Raises NonFiniteError."""
    progress, settings, dataset = run.progress, run.settings, run.dataset

    def attempt(micro_batch: int) -> Any:
        return evaluate(
            run.model,
            run.forward,
            dataset.validation,
            dataset.unigram,
            run.objective,
            sequences=settings.trainer.evaluation_sequences,
            micro_batch=micro_batch,
        )

    evaluation, _ = fitting(attempt, progress.micro_batch, lambda size: make_room(run, size))
    if not math.isfinite(evaluation.loss):
        raise NonFiniteError(progress.step, f"step {progress.step}: the validation loss is {evaluation.loss}")
    progress.evaluation, progress.evaluated_at = asdict(replace(evaluation, predictions=None)), progress.step
    if progress.best_loss is None or evaluation.loss < progress.best_loss:
        progress.best_loss = evaluation.loss
        header = {"step": progress.step, "validation_loss": evaluation.loss, "precision": run.forward.precision}
        save(run.folder.checkpoint, "best", progress.step, weights(run.model), header)
    if evaluation.predictions is not None:
        write(run.folder.path / "predictions.json", to_json(evaluation.predictions) + "\n")
    run.display.evaluation(progress.step, **evaluation.numbers())
    return {f"validation_{name}": value for name, value in evaluation.numbers().items()}


def verdict(error: BaseException) -> tuple[Status, str]:
    """How an exception ends a run, and why, in one line."""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, NonFiniteError):
        return "nan", reason
    if isinstance(error, OutOfMemoryError) or is_out_of_memory(error):
        return "oom", reason
    if isinstance(error, Interrupted | KeyboardInterrupt):
        return "interrupted", reason
    return "failed", reason


def conclude(result: Result, folder: RunFolder, tracker: Tracker) -> Result:
    """The result, written to the folder and mirrored."""
    try:
        folder.write_result(result)
    finally:
        tracker.finish(result)
    return result
