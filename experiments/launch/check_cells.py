"""Checks that cells can train, before the first one does, in the order of what they cost: settings, text, model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from experiments.failures.failure import Mistake
from experiments.failures.wording import joined
from experiments.files.disk import why_no_folder
from experiments.measure.cores import check_threads
from experiments.measure.devices import check_devices
from experiments.model.kernel_availability import check_kernel
from experiments.record.folder import run_name
from experiments.record.mirrors.mirrors import check_loggers
from experiments.settings.run import Settings
from experiments.tasks.choose import task_of
from experiments.training.distributed.start import torchrun_process
from experiments.training.run_length import planned_steps

T = TypeVar("T")
MAX_CELLS_NAMED = 10  # lines about wrong cells
# settings that parameters and memory depend on, also in a fine-tuned run
MEMORY_KEYS: dict[str, Any] = {
    **dict.fromkeys(("variant", "model", "objective", "tokenizer", "task", "pretrained", "length", "backend"), True),
    "data": {"kind"},
    "optimizer": {"kind"},
    "trainer": {"batch_size", "micro_batch", "precision", "device"},
}


def check_cell(settings: Settings, *, runs_here: bool) -> None:
    """Raises Mistake for a run without an end.

    If the run is to train here, also for folders that cannot be made, and for a kernel, cores, devices or a logger that
    is missing.
    """
    planned_steps(settings)
    # a launcher of Hydra's may train on other machines
    if runs_here:
        for key in ("runs", "cache"):
            path = getattr(settings, key)
            if (reason := why_no_folder(Path(path))) is not None:
                raise Mistake(f"{key}={path}: {reason}", f"choose another folder: {key}=FOLDER")
        check_threads(settings.trainer.threads)
        check_kernel(settings)
        # torchrun may have started processes on other machines too, and counts them itself
        if torchrun_process() is None:
            check_devices(settings)
        check_loggers(settings.logger)


def check_data(cells: list[Settings]) -> None:
    """Raises DataError for text that is missing. Data sets on the hub are checked only when a cell needs them."""
    distinct = {(repr(cell.learns_from), cell.cache): cell for cell in cells}
    for cell in distinct.values():
        task_of(cell).identity()


def check_buildable(cells: list[Settings], *, runs_here: bool = True) -> list[int]:
    """The number of parameters of each cell.

    Raises Mistake that names every cell whose variant refuses its sizes, or whose kernel refuses its variant, and every
    added variant whose layer does something wrong. What kernels other machines have is not known here.
    """
    from experiments.model.layers.build_attention import wrong_arguments
    from experiments.model.layers.check_added import check_added
    from experiments.model.without_values import without_values

    def count(cell: Settings) -> int | Mistake:
        try:
            task = task_of(cell)
            with without_values():
                model = task.build_model(task.vocabulary_size())
            check_added(cell.variant)
            if runs_here and cell.backend not in ("auto", "reference"):
                # only tensors show what a kernel can't do
                from experiments.training.predicted_memory import predict_peak_bytes

                with wrong_arguments(cell.variant):
                    predict_peak_bytes(cell, task.vocabulary_size())
            return model.parameter_counts()["total"]
        except Mistake as error:
            return error

    counts = for_each_size(cells, count)
    wrong = [(cell, error) for cell, error in zip(cells, counts, strict=True) if isinstance(error, Mistake)]
    refuse([(run_name(cell.model_dump()) if len(cells) > 1 else "", error) for cell, error in wrong], len(cells))
    return [count for count in counts if isinstance(count, int)]


def for_each_size(cells: list[Settings], measure: Callable[[Settings], T]) -> list[T]:
    """`measure` of each cell, called once for cells that agree in everything that a model or its memory depends on."""
    keys = [repr(cell.model_dump(include=MEMORY_KEYS)) for cell in cells]
    measured = {key: measure(cell) for key, cell in dict(zip(reversed(keys), reversed(cells), strict=True)).items()}
    return [measured[key] for key in keys]


def refuse(wrong: Sequence[tuple[str, Mistake]], total: int) -> None:
    """Raises Mistake with the names of wrong cells and their mistakes, if there are any, each mistake once.

    total: the number of all cells. A name may be empty.
    """
    if not wrong:
        return
    names: dict[str, list[str]] = {}
    for name, mistake in wrong:
        names.setdefault(str(mistake), []).append(name)
    lines = [f"{_listed(alike)}: {said}" if alike[0] else said for said, alike in names.items()]
    if left := sum(map(len, [*names.values()][MAX_CELLS_NAMED:])):
        lines[MAX_CELLS_NAMED:] = [f"and {left:,} more"]
    count = f"{len(wrong):,} of {total:,} cells are wrong; none was started" if total > 1 else ""
    raise Mistake("\n".join(lines), count)


def _listed(names: list[str]) -> str:
    """The names of cells; of more than three, the first two."""
    return joined(names if len(names) <= 3 else [*names[:2], f"{len(names) - 2:,} more"])
