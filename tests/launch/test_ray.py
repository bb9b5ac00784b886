"""Sweeps whose cells are tasks of Ray: a cluster that the test starts, workers that are killed, and what is refused."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from rich.console import Console

from experiments.config.command_line import CommandLine
from experiments.config.compose import compose
from experiments.launch import ray_tasks
from experiments.launch.plan import RaySweep, plan
from experiments.processes.environment_variables import ADDED, TUNED
from experiments.settings.ray_cluster import RayCluster
from tests.fixtures.outcome import outcome
from tests.launch.sweeps import instead, runs, statuses, sweep_process, until

RAY = "hydra/launcher=ray"
# long enough to be stopped in the middle; saved only at the end, or when a signal asks for it
LONG = ("max_steps=300", "trainer.log_every=50", "trainer.evaluate_every=300", "trainer.checkpoint_every=100")


def begun(folder: Path) -> bool:
    """Whether there are runs, and each has saved a checkpoint."""
    return bool(runs(folder)) and all(any(run.checkpoint.glob("*.safetensors")) for run in runs(folder))


@pytest.fixture(scope="module")
def ray_environment(environment, tmp_path_factory):
    pytest.importorskip("ray", reason="needs attn[ray]")
    # a socket's path has at most 107 characters, and pytest's folders are deep
    # and workers would wait for the other tests, as Ray gives its workers a low priority
    yield {key: value for key, value in environment.items() if key != "TMPDIR"} | {"RAY_worker_niceness": "0"}


@pytest.fixture
def sweep(ray_environment, tiny, tmp_path):
    """sweep(*words): the process of a sweep over Ray; the words stand in place of those of `tiny`."""
    with sweep_process([RAY], tiny, tmp_path, ray_environment) as begin:
        yield begin


@pytest.fixture(scope="module")
def cluster(ray_environment):
    """The address of a cluster of one node with two cores, as `ray start` makes it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ray = [sys.executable, "-m", "ray.scripts.scripts"]
    head = ["start", "--head", "--num-cpus=2", f"--port={port}", "--include-dashboard=false", "--disable-usage-stats"]
    subprocess.run([*ray, *head], env=ray_environment, check=True, timeout=120, stdout=subprocess.DEVNULL)
    yield f"127.0.0.1:{port}"
    subprocess.run([*ray, "stop", "--force"], env=ray_environment, check=True, timeout=120, stdout=subprocess.DEVNULL)


@pytest.mark.campaign
def test_cells_run_on_a_cluster_and_what_is_done_is_skipped(sweep, cluster, tmp_path):
    # no float survives such starting values: the other cell ends as it would
    words = ("seed=0", "model.initial_std=0.02,1e30", f"hydra.launcher.address={cluster}")
    for counted in ("[1/2]", "finished before"):
        process = sweep(*words)
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 3, said
        assert "1 of 2 cells failed; the same command tries them again" in said and counted in said
        assert "Ray's logs: " in said
    assert sorted(map(str, statuses(tmp_path))) == ["done", "nan"]


def words_of(process: psutil.Process) -> str:
    """The command of a process; of one that has ended, nothing."""
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


@pytest.mark.campaign
def test_a_cell_whose_worker_is_killed_goes_on_to_the_same_bytes(sweep, attn, tiny, tmp_path):
    process = sweep("seed=0", *LONG)
    until(lambda: begun(tmp_path))
    descendants = psutil.Process(process.pid).children(recursive=True)
    (worker,) = [each for each in descendants if "train_cell" in words_of(each)]
    worker.send_signal(signal.SIGKILL)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    (tmp_path / "alone").mkdir()
    alone = attn("train", "seed=0", *instead(LONG, tiny), cwd=tmp_path / "alone")
    assert alone.returncode == 0, alone.output
    (run,), (other,) = runs(tmp_path), runs(tmp_path / "alone")
    assert outcome(run) == outcome(other)


@pytest.mark.campaign
def test_an_interrupted_sweep_saves_its_cells_and_goes_on(sweep, tmp_path):
    # more cells than cores: some are interrupted, others have not begun
    words = ("seed=range(3)", *LONG)
    process = sweep(*words)
    until(lambda: begun(tmp_path))
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 130, said
    assert "interrupted by SIGINT; the same command continues" in said
    assert "interrupted" in statuses(tmp_path)
    process = sweep(*words)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert statuses(tmp_path) == ["done"] * 3


@pytest.mark.campaign
def test_a_cluster_that_does_not_answer_is_named(sweep):
    process = sweep("seed=0,1", "hydra.launcher.address=127.0.0.1:1")
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 2, said
    assert "hydra.launcher.address=127.0.0.1:1: " in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["hydra.launcher.adress=auto"], "no setting 'hydra.launcher.adress' (did you mean address?)"),
        (["hydra.launcher.retries=-1"], "hydra.launcher.retries = -1: "),
        (["hydra.launcher.gpus=many"], "hydra.launcher.gpus = 'many': "),
        (["hydra/sweeper=optuna_search"], "hydra/launcher=ray: hydra/sweeper=optuna_search trains its trials itself"),
        (["--workers", "2"], "--workers: hydra/launcher=ray hydra/sweeper=basic decides which cells run at once"),
    ],
)
def test_what_ray_cannot_take_is_refused_before_anything_is_changed(attn, tiny, tmp_path, monkeypatch, words, said):
    monkeypatch.setattr("experiments.failures.missing_extra.find_spec", lambda library: library)
    done = attn("train", "-m", RAY, "seed=0,1", *words, *tiny)
    assert done.returncode == 2 and said in done.stderr, done.output
    assert not (tmp_path / "runs").exists()


def test_without_ray_the_line_that_installs_it_is_printed(attn, tiny, monkeypatch):
    monkeypatch.setattr("experiments.failures.missing_extra.find_spec", lambda library: None)
    done = attn("train", "-m", RAY, "seed=0,1", *tiny)
    assert done.returncode == 2, done.output
    assert "hydra/launcher=ray needs ray" in done.stderr and '".[ray]"' in done.stderr


@pytest.mark.parametrize(("gpu", "needs"), [(False, (6, 0.0)), (True, (6, 2.0))])
def test_a_cell_over_several_devices_asks_ray_for_all_of_them(tiny, monkeypatch, gpu, needs):
    monkeypatch.setattr(ray_tasks, "on_gpu", lambda cell: gpu)
    asked: dict[str, float] = {}
    task = SimpleNamespace(remote=lambda *arguments: None)
    ray = SimpleNamespace(remote=lambda work: SimpleNamespace(options=lambda **given: asked.update(given) or task))
    words = ["trainer.devices=2", "trainer.threads=3"]
    cell = compose(instead(words, tiny))
    ray_tasks._submit(ray, cell, RayCluster(address=None, cpus=None, gpus=None, resources=None, retries=3))
    assert (asked["num_cpus"], asked["num_gpus"]) == needs


def test_a_cell_on_another_node_has_the_variables_that_make_it_fast(tiny, monkeypatch):
    cell, seen = compose(tiny), {}
    monkeypatch.setattr(os, "environ", {"ATTN_CACHE": "here", ADDED: "OMP_WAIT_POLICY", "OMP_WAIT_POLICY": "PASSIVE"})
    ray = SimpleNamespace(init=lambda **options: seen.update(options["runtime_env"]["env_vars"]))
    monkeypatch.setitem(sys.modules, "ray", ray)
    ray_tasks._connected(RayCluster(address=None, cpus=None, gpus=None, resources=None, retries=3), Console())
    assert seen == {"ATTN_CACHE": "here"}
    monkeypatch.setattr(os, "environ", {**seen})
    done = SimpleNamespace(reason="")
    monkeypatch.setattr(ray_tasks, "earlier_outcome", lambda cell: seen.update(os.environ) or done)
    assert ray_tasks.train_cell(cell.model_dump(), str(Path.cwd())) == "done"
    assert seen["OMP_WAIT_POLICY"] == TUNED["OMP_WAIT_POLICY"]


def test_a_plan_has_the_cluster_and_its_cells(tiny, monkeypatch):
    monkeypatch.setattr("experiments.failures.missing_extra.find_spec", lambda library: library)
    of_ray = ["hydra/launcher=ray", "hydra.launcher.gpus=0.5", "hydra.launcher.resources={a100: 1}"]
    planned = plan(CommandLine([*of_ray, "seed=0,1", *tiny], ["-m"]))
    assert isinstance(planned, RaySweep) and len(planned.cells) == 2
    assert planned.cluster.gpus == 0.5 and planned.cluster.retries == 3 and planned.cluster.resources == {"a100": 1}
