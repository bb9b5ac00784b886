"""The cells of a sweep as tasks of Ray, each on whichever node of the cluster has room.

A task starts a process for its cell, as a sweep on one machine does. Ray starts a task again if its worker dies; the
cell then continues from its last checkpoint.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.cells.cell import folder_of
from experiments.cells.outcome import Outcome, earlier_outcome, outcome_of
from experiments.cells.runner import run_cell
from experiments.config.check import from_tree
from experiments.display.lines import say
from experiments.failures.failure import Mistake
from experiments.failures.wording import first_line
from experiments.launch.local import prepare_corpora
from experiments.launch.output import SweepProgress
from experiments.measure.devices import device_count, on_gpu
from experiments.processes.environment_variables import ADDED, set_performance_variables
from experiments.processes.interruption import Interrupted, handled
from experiments.settings.plugins import with_plugins
from experiments.settings.ray_cluster import RayCluster
from experiments.settings.run import Settings

POLL_SECONDS = 0.5
CONNECTION_SECONDS = 10.0
SAVING_SECONDS = 60.0  # that a cell may take to save and end after its worker has died
SENT = ("ATTN_", "HF_", "WANDB_")  # prefixes of the environment variables that every worker gets


def train_on_ray(cells: Sequence[Settings], cluster: RayCluster, console: Console) -> list[Outcome]:
    """Train what is missing as tasks of Ray; the outcome of every cell, in order.

    The nodes share the folder of the runs and that of this project, each under the same path. A cell that fails ends
    no other. Raises Mistake for a cluster that cannot be reached, and Interrupted after all cells have saved and ended.
    """
    earlier = [earlier_outcome(cell) for cell in cells]
    to_train = [cell for cell, outcome in zip(cells, earlier, strict=True) if outcome is None]
    prepare_corpora(to_train)
    with SweepProgress(len(cells), console).shown(earlier) as progress:
        trained = iter(_train(to_train, cluster, console, progress.end) if to_train else ())
    return [outcome or next(trained) for outcome in earlier]


def _train(
    cells: Sequence[Settings], cluster: RayCluster, console: Console, ended: Callable[[Outcome], None]
) -> list[Outcome]:
    """The outcome of every cell, in order. ended: called with each at once. Raises Mistake and Interrupted."""
    ray = _connected(cluster, console)
    outcomes: dict[int, Outcome] = {}
    received: list[int] = []
    try:
        with handled(lambda number, frame: received.append(number)):
            tasks = {_submit(ray, cell, cluster): index for index, cell in enumerate(cells)}
            cancelled = False
            while tasks:
                if received and not cancelled:
                    cancelled = True
                    for task in tasks:
                        ray.cancel(task)
                for task in ray.wait([*tasks], num_returns=1, timeout=POLL_SECONDS)[0]:
                    index = tasks.pop(task)
                    outcomes[index] = outcome_of(folder_of(cells[index]), _state(ray, task))
                    ended(outcomes[index])
    finally:
        ray.shutdown()
    if received:
        raise Interrupted(received[0])
    return [outcomes[index] for index in range(len(cells))]


def _connected(cluster: RayCluster, console: Console) -> Any:
    """The module `ray`, connected to the cluster. Raises Mistake if this fails."""
    _check_answers(cluster.address)
    # by default, Ray gives its workers a low priority, with which they hardly run on a busy machine
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    environment = {key: value for key, value in os.environ.items() if key.startswith(SENT) and key != ADDED}
    try:
        context = ray.init(
            address=cluster.address or "local",
            include_dashboard=None if cluster.address else False,
            logging_level=logging.ERROR,
            log_to_driver=False,
            runtime_env={"env_vars": environment},
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise Mistake(
            f"hydra.launcher.address={cluster.address}: {first_line(error)}", "`ray status` shows a cluster that runs"
        ) from error
    # a client of a distant cluster (ray://) is not told where its logs are
    if place := getattr(context, "address_info", {}).get("session_dir"):
        say(console, f"Ray's logs: {place}/logs")
    return ray


def _check_answers(address: str | None) -> None:
    """Raise Mistake for an address where nothing listens; Ray itself would try it for minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not colon:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECTION_SECONDS).close()
    except (OSError, ValueError, OverflowError) as error:
        raise Mistake(
            f"hydra.launcher.address={address}: {first_line(error)}", "`ray status` shows a cluster that runs"
        ) from error


def _submit(ray: Any, cell: Settings, cluster: RayCluster) -> Any:
    devices = device_count(cell)
    needs = {
        "num_cpus": cluster.cpus or cell.trainer.threads * devices,
        "num_gpus": float(on_gpu(cell) * devices) if cluster.gpus is None else cluster.gpus,
        "resources": cluster.resources or {},
        "max_retries": cluster.retries,
    }
    task = ray.remote(with_plugins(train_cell)).options(**needs)
    return task.remote(cell.model_dump(), str(Path.cwd()))


def train_cell(tree: dict[str, Any], directory: str) -> str:
    """Train one cell within its task; `done`, or the reason why not.

    Args:
        tree: its settings.
        directory: the one that the sweep was started in, from which relative paths count.
    """
    os.chdir(directory)
    # another node may lack those of the sweep
    set_performance_variables()
    cell = from_tree(tree)
    folder = folder_of(cell)
    deadline = time.monotonic() + SAVING_SECONDS
    while folder.holder() and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    try:
        outcome = earlier_outcome(cell) or run_cell(cell)
    except Interrupted as interrupted:
        return str(interrupted)
    return outcome.reason or "done"


def _state(ray: Any, task: Any) -> str:
    """What a task that has ended returned, or why it returned nothing."""
    try:
        return str(ray.get(task))
    except ray.exceptions.TaskCancelledError:
        return "interrupted before it began"
    except ray.exceptions.RayError as error:
        return f"its task was ended: {first_line(error)}"
