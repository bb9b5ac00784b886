"""A cell as a job of one of Hydra's launchers or sweepers: it is trained in a process of its own, and its loss is
returned.
"""

from __future__ import annotations

from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from experiments.cells.outcome import earlier_outcome
from experiments.cells.resources import reserved_pool
from experiments.cells.runner import run_cell
from experiments.config.compose import resolve
from experiments.failures.failure import Mistake
from experiments.launch.launchers import launcher
from experiments.launch.plan import labelled_with_sweep

# in the sweep's folder: a line for each cell that was started, with its outcome, also of earlier and of equal sweeps
LEDGER = "cells.txt"


def job(config: DictConfig) -> float | None:
    """The validation loss, or None for a failed cell, so that a sweeper continues with the next trial."""
    sweep = Path(HydraConfig.get().sweep.dir)
    ledger = sweep / LEDGER
    try:
        settings = labelled_with_sweep(resolve(config), sweep.name)
    except Mistake as mistake:
        words = " ".join(HydraConfig.get().overrides.task)
        _note(ledger, sweep / f"job-{HydraConfig.get().job.num}", f"{words}: {mistake}")
        return None
    its = launcher(HydraConfig.get().runtime.choices["hydra/launcher"])
    pool = reserved_pool() if its.shares_machine else None
    with its.around_cell():
        outcome = earlier_outcome(settings) or run_cell(settings, pool)
    _note(ledger, outcome.folder.path, outcome.reason or "done")
    return result.validation_loss if (result := outcome.finished_result) else None


def _note(ledger: Path, folder: Path, state: str) -> None:
    with ledger.open("a", encoding="utf-8") as file:
        file.write(f"{folder}\t{' '.join(state.split())}\n")


def ledger_size(sweep: Path) -> int:
    """The bytes of the ledger in a sweep's folder."""
    path = sweep / LEDGER
    return path.stat().st_size if path.is_file() else 0


def read_ledger(sweep: Path, start: int) -> dict[Path, str]:
    """The outcome of each cell, by its folder, from the last line about it. sweep: the sweep's folder.

    start: the bytes that were there before.
    """
    path = sweep / LEDGER
    lines = path.read_bytes()[start:].decode().splitlines() if path.is_file() else []
    return {Path(folder): state for folder, _, state in (line.rpartition("\t") for line in lines)}
