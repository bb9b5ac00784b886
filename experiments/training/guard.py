"""The guard of a run: what follows a loss or a gradient that is not finite, by `trainer.guard`."""

from __future__ import annotations

from experiments.training.checkpoints import newest_checkpoint, resume_from, write_checkpoint
from experiments.training.run import Run
from experiments.training.set_up import align
from experiments.training.step.non_finite import NonFiniteError


def handle_non_finite(run: Run, fault: NonFiniteError) -> None:
    """Mark the step to be skipped; `reload` goes back to the newest checkpoint. Raises the fault at the limit."""
    _check_limit(run, fault)
    if run.settings.trainer.guard == "skip":
        run.progress.skipped = [*run.progress.skipped, fault.step]
        run.say(f"{fault}; skipped")
    else:
        _go_back(run, fault, fault.step)


def handle_non_finite_evaluation(run: Run, fault: NonFiniteError) -> None:
    """Continue after a validation loss that isn't finite.

    With `skip`, the evaluation is ignored, unless it is the last one of the run. With `reload`, the run goes back to
    the newest checkpoint and skips the last step before the evaluation. If the evaluation at this step fails again, it
    also skips the step before that one. Raises the fault at the limit, and if no step is left to skip.
    """
    _check_limit(run, fault)
    progress = run.progress
    if run.settings.trainer.guard == "skip":
        if progress.ended:
            raise fault
        progress.skipped_evaluations = [*progress.skipped_evaluations, fault.step]
        run.say(f"{fault}; skipped")
    else:
        applied = (step for step in range(fault.step, 0, -1) if step not in progress.skipped)
        _go_back(run, fault, next(applied, 0))


def _check_limit(run: Run, fault: NonFiniteError) -> None:
    trainer, progress = run.settings.trainer, run.progress
    if trainer.guard == "stop":
        raise fault
    if len(progress.skipped) + len(progress.skipped_evaluations) >= trainer.guard_limit:
        raise NonFiniteError(
            fault.step, f"{fault}; the limit trainer.guard_limit={trainer.guard_limit} is reached"
        ) from fault


def _go_back(run: Run, fault: NonFiniteError, step: int) -> None:
    """Return to the newest checkpoint, and continue from there without this step."""
    skipped = [*run.progress.skipped, step]
    checkpoint = newest_checkpoint(run.settings, run.folder, run.dataset, run.say)
    if checkpoint is None or checkpoint.header["progress"]["step"] >= step:
        # every checkpoint is damaged or was written after the step, so there is none to return to
        raise fault
    resume_from(run, checkpoint)
    run.mirrors.start_again()
    align(run)
    run.progress.skipped = skipped
    # so that a start after a kill skips the step, too
    write_checkpoint(run)
    run.say(f"{fault}; back to step {run.progress.step}, to continue without step {step}")
