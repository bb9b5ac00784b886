"""Training: a run is set up, takes its steps with metrics and checkpoints in between, and ends with a result."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from experiments.data.packing import Dataset
from experiments.display.progress import Display
from experiments.failures.exit_code import ExitCode
from experiments.failures.wording import first_line
from experiments.files.durable import to_json, write
from experiments.measure.cores import Neighbours
from experiments.measure.mfu import mfu
from experiments.measure.quality import bits_per_byte, perplexity
from experiments.objectives.objective import ScoredObjective
from experiments.processes.interruption import Interrupted, Interruption
from experiments.record.checkpoint_file import origin, save
from experiments.record.errors import RunFolderError, or_other_runs
from experiments.record.folder import PREDICTIONS, RESULT, RunFolder
from experiments.record.result import Result, Status
from experiments.settings.run import Settings
from experiments.training.checkpoints import whole_tensors, write_checkpoint
from experiments.training.evaluate import Evaluation, evaluate
from experiments.training.guard import handle_non_finite, handle_non_finite_evaluation
from experiments.training.run import Pruner, Run, TrialPruned
from experiments.training.set_up import set_up
from experiments.training.step.learner import Learner
from experiments.training.step.micro_batches import fitting, is_out_of_memory
from experiments.training.step.non_finite import NonFiniteError
from experiments.training.step.schedule import learning_rate
from experiments.training.step.world import ALONE, World
from experiments.training.summary import flops_per_token, summarize


def train(
    settings: Settings,
    folder: RunFolder,
    display: Display,
    neighbours: Neighbours,
    world: World = ALONE,
    pruner: Pruner | None = None,
) -> Result:
    """Train in `folder` until the first limit is reached, from its newest good checkpoint if there is one.

    Returns the result, which is also written to the folder. Its status is `done`, `nan` (the guard gave up), `oom` (not
    even one sequence fits) or `pruned`. Raises Mistake if the user has to change a setting.

    A signal raises Interrupted when the present step is finished and in a checkpoint. Before that, and before any other
    exception is raised, a result with the reason is written, unless the result of all steps is there. Signals are
    handled only in the main thread.

    world: this process, which is the first, and the others that take the steps with it. pruner: is called after every
    evaluation except the last.
    """
    run: Run | None = None
    # the block includes the handling of what happens in it: a second SIGTERM does not break that off either
    with Interruption() as interruption:
        try:
            world.when_signalled(interruption.note)
            run = set_up(settings, folder, display, neighbours, world)
            run.pruner = pruner
            with interruption.deferred():
                take_steps(run, interruption)
            result = summarize(run, settings, "done", None)
            folder.write_result(result)
        except BaseException as error:
            status, reason = status_and_reason(error)
            folder.log(f"{status}: {reason}")
            if status in ("nan", "oom", "pruned"):
                return conclude(summarize(run, settings, status, reason), folder, run)
            if (folder.path / RESULT).exists():
                # it is that of an earlier start, and this one did not begin; or it is that of all steps
                raise
            # the exception may be about the folder itself
            with suppress(RunFolderError):
                conclude(summarize(run, settings, status, reason), folder, run)
            raise
        run.mirrors.finish(result)
        return result


def take_steps(run: Run, interruption: Interruption) -> None:
    """Take steps until a limit is reached. Raises Interrupted or TrialPruned once the last step is in a checkpoint."""
    trainer = run.settings.trainer
    # a process may have been killed after it was to prune the run
    reason = why_pruned(run)
    while not (run.progress.ended or reason):
        advance(run)
        if not run.mirrors.started:
            # their libraries take a second to import, so the first step comes first
            with run.throughput.paused():
                run.mirrors.start()
        run.progress.ended = run.limit_reached()
        log_and_evaluate(run)
        reason = why_pruned(run)
        # a signal that comes after this waits for the next step, whose checkpoint is written
        pending = interruption.pending
        if run.due(trainer.checkpoint_every) or pending or reason:
            write_checkpoint(run)
        if pending and not (run.progress.ended or reason):
            interruption.check()
    if reason:
        raise TrialPruned(reason)


def why_pruned(run: Run) -> str | None:
    """The reason why a search does not need the rest of the run, after an evaluation; None if it continues."""
    progress = run.progress
    if run.pruner is None or progress.ended or progress.evaluation is None or progress.evaluated_at != progress.step:
        return None
    return run.pruner(progress.step, progress.evaluation["loss"])


def advance(run: Run) -> None:
    """Take the next step, or skip it because it was not finite."""
    while (step := run.progress.step + 1) not in run.progress.skipped:
        try:
            take_step(run, step)
            break
        except NonFiniteError as fault:
            handle_non_finite(run, fault)
    run.progress.step = step


def take_step(run: Run, step: int) -> None:
    """Take the step and count it. Raises NonFiniteError before a weight has changed."""
    progress = run.progress
    with run.throughput.step() as counted:
        with run.world.together("take", step, rate(run, step)):
            batch, sums, progress.gradient_norm = run.learner.take(step, rate(run, step))
        counted.tokens = batch.tokens_read
    progress.tokens += batch.tokens_read
    progress.loss_sum += float(sums.tokens)
    progress.smoothed_sum += float(sums.smoothed)
    progress.positions += len(batch.targets)
    progress.order_sum += float(sums.labels)
    progress.orders += 0 if batch.labels is None else len(batch.labels)


def rate(run: Run, step: int) -> float:
    """The learning rate of a step."""
    return learning_rate(step, run.planned, run.settings.optimizer.learning_rate, run.settings.schedule)


def log_and_evaluate(run: Run) -> None:
    """Log and evaluate if it is time."""
    trainer, progress = run.settings.trainer, run.progress
    metrics: dict[str, Any] = {}
    if run.due(trainer.log_every) and progress.positions:
        metrics |= training_metrics(run)
    if run.due(trainer.evaluate_every):
        metrics |= validation_metrics(run)
    if not metrics:
        return
    metrics = {"step": progress.step, "tokens": progress.tokens, **metrics, "wall_seconds": run.wall_seconds}
    run.folder.metrics.append(metrics)
    run.mirrors.log(progress.step, metrics)
    if "loss" in metrics:
        run.display.update(metrics)
    loss = metrics.get("validation_loss")
    if loss is not None and not math.isfinite(loss):
        fault = NonFiniteError(progress.step, f"step {progress.step}: the validation loss is {loss}")
        handle_non_finite_evaluation(run, fault)


def training_metrics(run: Run) -> dict[str, Any]:
    """The mean loss in nats per predicted token since the last logged step, and norm and rate of the last step.

    With label smoothing, `smoothed_loss` is what was minimized. The loss and the numbers computed from it are without
    smoothing.
    """
    progress, train = run.progress, run.dataset.train
    loss = progress.training_loss = progress.loss_sum / progress.positions
    minimised = {"smoothed_loss": progress.smoothed_sum / progress.positions} if run.forward.label_smoothing else {}
    if progress.orders:
        minimised["order_loss"] = progress.order_sum / progress.orders
    progress.loss_sum = progress.smoothed_sum = progress.order_sum = 0.0
    progress.positions = progress.orders = 0
    speed = run.throughput.recent()
    of_text = {} if isinstance(run.objective, ScoredObjective) else {"perplexity": perplexity(loss)}
    # sentinels are targets too, but no part of the text
    if of_text and not run.settings.objective.sentinel_count():
        of_text["bits_per_byte"] = bits_per_byte(loss, train.token_count, train.text_bytes)
    metrics = {
        "loss": loss,
        **of_text,
        **minimised,
        "learning_rate": rate(run, progress.step),
        "gradient_norm": progress.gradient_norm,
        "tokens_per_second": speed,
        "peak_memory_bytes": run.usage().peak_memory_bytes,
    }
    used = speed and mfu(speed / run.world.size, flops_per_token(run), run.forward.device, run.forward.precision)
    return metrics if used is None else {**metrics, "mfu": used}


def validation_metrics(run: Run) -> dict[str, Any]:
    """Evaluate the present weights, and save them if they are the best so far."""
    progress, settings, dataset = run.progress, run.settings, run.dataset
    with run.world.together("validate", progress.step):
        evaluation = validate(run.learner, dataset, settings.trainer.evaluation_sequences, progress.step)
    metrics = {f"validation_{name}": value for name, value in evaluation.numbers().items()}
    if not math.isfinite(evaluation.loss):
        return metrics
    progress.evaluation, progress.evaluated_at = asdict(replace(evaluation, predictions=None)), progress.step
    progress.evaluations.append((progress.step, evaluation.loss))
    if progress.best_loss is None or evaluation.loss < progress.best_loss:
        progress.best_loss = evaluation.loss
        header = {"step": progress.step, "validation_loss": evaluation.loss, "precision": run.forward.precision}
        header |= origin(settings.model_dump(), dataset.tokenizer.digest)
        run.folder.check_held()
        save(run.folder.checkpoint, "best", progress.step, whole_tensors(run, "best"), header)
    if evaluation.predictions is not None:
        with or_other_runs():
            write(run.folder.path / PREDICTIONS, to_json(evaluation.predictions) + "\n")
    run.display.evaluation(progress.step, **evaluation.numbers())
    return metrics


def validate(learner: Learner, dataset: Dataset, sequences: int | None, step: int) -> Evaluation:
    """Evaluate on the validation split. While memory runs out, the number of sequences at once is halved for good."""

    def attempt(micro_batch: int) -> Evaluation:
        return evaluate(
            learner.model,
            learner.forward,
            dataset.validation,
            dataset.unigram,
            learner.objective,
            sequences=sequences,
            micro_batch=micro_batch,
        )

    def again(micro_batch: int) -> None:
        learner.evaluation_batch = micro_batch
        learner.make_room(
            f"out of memory in the evaluation at step {step}: {micro_batch} sequences are evaluated at once"
        )

    return fitting(attempt, min(learner.evaluation_batch, learner.micro_batch), again)[0]


def status_and_reason(error: BaseException) -> tuple[Status, str]:
    """The status and the reason, in one line, of a run that ends with this exception."""
    reason = first_line(error)
    if isinstance(error, NonFiniteError):
        return "nan", reason
    if getattr(error, "exit_code", None) is ExitCode.OUT_OF_MEMORY or is_out_of_memory(error):
        return "oom", reason
    if isinstance(error, Interrupted | KeyboardInterrupt):
        return "interrupted", reason
    if isinstance(error, TrialPruned):
        return "pruned", reason
    return "failed", reason


def conclude(result: Result, folder: RunFolder, run: Run | None) -> Result:
    """Write the result to the folder, mirror it if the run was set up, and return it."""
    try:
        folder.write_result(result)
    finally:
        if run is not None:
            run.mirrors.finish(result)
    return result
