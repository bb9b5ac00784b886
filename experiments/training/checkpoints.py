"""The checkpoints of a run: how one is written, which one a run continues from, and how it returns there."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from experiments.data.cache import other_tokens
from experiments.data.packing import Dataset
from experiments.failures.failure import Mistake
from experiments.files.digest import digest
from experiments.measure.hardware import device_name
from experiments.record.checkpoint_file import Checkpoint, check_fits, load, origin, remove_outdated, save, weights
from experiments.record.code.digests import code_digests, differing
from experiments.record.folder import RunFolder, configuration_digest
from experiments.settings.devices import largest_part
from experiments.settings.group import WhichCheckpoint
from experiments.settings.run import Settings
from experiments.training.checkpoint_header import Header
from experiments.training.run import Run
from experiments.training.step.learner import Learner
from experiments.training.step.optimizers.build_optimizers import optimizer_state


def newest_checkpoint(
    settings: Settings, folder: RunFolder, dataset: Dataset, say: Callable[[str], None]
) -> Checkpoint | None:
    """The newest good checkpoint of a run, or None. `say` receives a line about each damaged one.

    Raises Mistake if it has other settings, another text or other code.
    """
    checkpoint = load(folder.checkpoint, "newest", say)
    if checkpoint is None:
        return None
    header = Header.of(checkpoint)
    written_by, now = header.configuration, configuration_digest(settings.model_dump())
    if written_by != now:
        raise Mistake(
            f"{checkpoint.path} belongs to another configuration ({written_by}, not {now}); set runs= to another folder"
        )
    anew = f"{folder.path} was begun; restore it, or start again in another folder with runs=FOLDER"
    if header.dataset != digest(dataset.identity):
        raise Mistake(f"the text or the tokenizer has changed since {anew}")
    if header.sequences not in (None, dataset.sequences):
        raise Mistake(
            f"{other_tokens(folder.path, settings.cache)}; restore them, or start again in another folder with "
            "runs=FOLDER"
        )
    before, backend = header.code, header.backend
    if before != (code := code_digests(settings.model_dump(), backend)):
        raise Mistake(f"{differing(before, code)} has changed since {anew}")
    return checkpoint


def resume_from(run: Run, checkpoint: Checkpoint) -> None:
    """Restore weights, moments, progress and metrics to their state when the checkpoint was written."""
    header = Header.of(checkpoint)
    live = tensors(run.learner)
    check_fits(live, checkpoint.tensors)
    with run.world.together("restore"):
        run.world.restore(live, checkpoint.tensors)
    run.progress = header.progress
    run.learner.micro_batch = min(header.micro_batch, largest_part(run.learner.batch_size, run.world.size))
    run.learner.evaluation_batch = header.evaluation_batch
    run.folder.metrics.return_to(header.metrics, run.say)
    # the process that wrote the checkpoint may have been killed before it did this
    remove_outdated(checkpoint.path, "newest")


def write_checkpoint(run: Run) -> None:
    """Write the checkpoint from which the run can continue."""
    run.folder.metrics.persist()
    settings = run.settings.model_dump()
    header = Header(
        progress=run.progress,
        metrics=run.folder.metrics.held(),
        micro_batch=run.learner.micro_batch,
        evaluation_batch=run.learner.evaluation_batch,
        precision=run.forward.precision,
        **origin(settings, run.dataset.tokenizer.digest),
        dataset=digest(run.dataset.identity),
        code=code_digests(settings, run.backend),
        backend=run.backend,
        usage=run.usage(),
        rates=list(run.throughput.rates),
        device=device_name(run.forward.device),
        devices=run.world.size,
        sharded=run.world.sharded,
        sequences=run.dataset.sequences,
    )
    save(run.folder.checkpoint, "newest", run.progress.step, whole_tensors(run, "newest"), header.to_dict())


def whole_tensors(run: Run, which: WhichCheckpoint) -> dict[str, Tensor]:
    """The tensors that a checkpoint holds, as they are on one device."""
    with run.world.together("gather", which):
        return run.world.whole(tensors(run.learner, which))


def tensors(learner: Learner, which: WhichCheckpoint = "newest") -> dict[str, Tensor]:
    """The live tensors that a checkpoint holds. The best one has no moments, because no run continues from it."""
    live = weights(learner.model)
    if which == "newest":
        state = optimizer_state(learner.model, learner.optimizers)
        live |= {f"optimizer/{name}": tensor for name, tensor in state.items()}
    return live
