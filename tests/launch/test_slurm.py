"""Sweeps over a real Slurm, which scripts/slurm.sh starts on this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.launch.sweeps import instead, runs, statuses, sweep_process, until

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "slurm.sh"
NEEDED = ("munged", "mariadbd", "slurmdbd", "slurmctld", "slurmd", "scontrol")
SUBMIT = ("hydra/launcher=submitit_slurm", "hydra.launcher.partition=main", "hydra.launcher.cpus_per_task=1")
# long enough to be stopped in the middle; saved only at the end, or when a signal asks for it
LONG = ("max_steps=1500", "trainer.log_every=50", "trainer.evaluate_every=1500", "trainer.checkpoint_every=5000")

pytestmark = pytest.mark.campaign


@pytest.fixture(scope="module")
def slurm(tmp_path_factory, environment):
    """The environment in which Slurm's commands find a cluster of two nodes with two cores each."""
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="needs attn[slurm]")
    if missing := [name for name in NEEDED if shutil.which(name) is None]:
        pytest.skip(f"needs {', '.join(missing)}: apt-get install slurm-wlm munge slurmdbd mariadb-server")
    if os.geteuid() != 0:
        pytest.skip("Slurm's daemons need root")
    folder = tmp_path_factory.mktemp("slurm")
    subprocess.run([SCRIPT, "start", folder, "2", "2"], check=True, timeout=300)
    yield environment | {"SLURM_CONF": str(folder / "slurm.conf")}
    subprocess.run([SCRIPT, "stop", folder], check=True, timeout=120)


@pytest.fixture
def sweep(slurm, tiny, tmp_path):
    """sweep(*words): the process of a sweep whose cells are jobs; the words stand in place of those of `tiny`."""
    with sweep_process(SUBMIT, tiny, tmp_path, slurm) as begin:
        yield begin
    subprocess.run(["scancel", "--user=root"], env=slurm, check=True, timeout=60)


@pytest.fixture
def ask(slurm) -> Callable[..., list[str]]:
    """ask(*command): the lines that a command of Slurm prints, without the blanks around them."""

    def lines(*command: str) -> list[str]:
        done = subprocess.run(command, env=slurm, capture_output=True, text=True, check=True, timeout=60)
        return [line.strip() for line in done.stdout.splitlines()]

    return lines


def ends_well(process: subprocess.Popen[str]) -> None:
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said


def losses(folder: Path) -> list[list[tuple[int, float]]]:
    """The logged losses of each run, by step."""
    lines = [(run.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines() for run in runs(folder)]
    return [[(line["step"], line["loss"]) for line in map(json.loads, each) if "loss" in line] for each in lines]


def continued_from(folder: Path) -> list[int]:
    """The steps from which runs have gone on."""
    logs = [(run.path / "log.txt").read_text(encoding="utf-8") for run in runs(folder)]
    return [int(step) for log in logs for step in re.findall(r"going on from step (\d+)", log)]


def begun(folder: Path) -> bool:
    """Whether every run has logged a loss."""
    return all((run.path / "metrics.jsonl").is_file() for run in runs(folder)) and all(losses(folder) or [[]])


def test_cells_are_jobs_of_an_array_and_what_is_done_is_skipped(sweep, ask, tmp_path):
    for _ in range(2):
        ends_well(sweep("seed=0,1"))
    assert statuses(tmp_path) == ["done", "done"]
    # the accounting hears of a job some time after its end
    until(lambda: ask("sacct", "-X", "-n", "-o", "State") == ["COMPLETED"] * 4)
    assert [*(tmp_path / "runs" / "sweeps").glob("*/.submitit/*")]


def test_twelve_cells_are_trained_once_each_though_a_node_is_drained(sweep, ask, tmp_path):
    process = sweep("seed=range(12)")
    until(lambda: ask("squeue", "-h", "-t", "running", "-w", "node2"))
    ask("scontrol", "update", "nodename=node2", "state=drain", "reason=test")
    try:
        ends_well(process)
    finally:
        ask("scontrol", "update", "nodename=node2", "state=resume")
    assert statuses(tmp_path) == ["done"] * 12
    assert [step for run in losses(tmp_path) for step, _ in run] == [2, 4, 6, 8, 10, 12] * 12
    nodes = ask("sacct", "-X", "-n", "-o", "NodeList", "-S", "now-10minutes")
    assert set(nodes) == {"node1", "node2"} and nodes.count("node1") > nodes.count("node2")


@pytest.mark.parametrize("taken_by", ["requeue", "preemption"])
def test_a_job_that_loses_its_cores_saves_and_goes_on_to_the_same_numbers(sweep, ask, shell, tiny, tmp_path, taken_by):
    process = sweep("seed=0", *LONG)
    until(lambda: begun(tmp_path))
    (job,) = ask("squeue", "-h", "-t", "running", "-o", "%i")
    if taken_by == "requeue":
        ask("scontrol", "requeue", job)
    else:
        # all cores of both nodes; it begins long before the time of grace is over
        cores = ["--partition=urgent", "--nodes=2", "--exclusive"]
        ask("sbatch", "--wait", *cores, "--output=/dev/null", "--wrap=sleep 1")
    ends_well(process)
    assert "REQUEUED" in ask("sacct", "-X", "-D", "-n", "-j", job, "-o", "State")
    (run,) = runs(tmp_path)
    assert [step > 0 for step in continued_from(tmp_path)] == [True]
    # the file of metrics is that of one training
    (tmp_path / "alone").mkdir()
    alone = shell("train", "seed=0", *instead(LONG, tiny), cwd=tmp_path / "alone")
    assert alone.returncode == 0, alone.output
    assert losses(tmp_path) == losses(tmp_path / "alone")
    assert run.result().validation_loss == runs(tmp_path / "alone")[0].result().validation_loss


def test_a_cell_that_takes_longer_than_its_job_may_goes_on_in_the_next(sweep, ask, tmp_path):
    # a minute is the shortest limit that Slurm knows
    limit = ("timeout_min=1", "signal_delay_s=10", "max_num_timeout=50")
    longer = instead(["max_steps=5000", "trainer.evaluate_every=5000"], LONG)
    ends_well(sweep("seed=0", *longer, *(f"hydra.launcher.{word}" for word in limit)))
    assert statuses(tmp_path) == ["done"]
    steps = continued_from(tmp_path)
    assert steps and steps == sorted(set(steps)) and steps[0] > 0


def test_a_job_that_is_killed_fails_its_cell_alone_and_the_same_command_trains_it(sweep, ask, tmp_path):
    process = sweep("seed=0,1", *LONG)
    until(lambda: len(runs(tmp_path)) == 2 and begun(tmp_path))
    (job, *_) = ask("squeue", "-h", "-r", "-t", "running", "-o", "%A")
    ask("scancel", "--signal=KILL", job)
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 3, said
    # the cell that lost its job saves and ends, unless Slurm has killed it too
    assert statuses(tmp_path).count("done") == 1
    ends_well(sweep("seed=0,1", *LONG))
    assert statuses(tmp_path) == ["done", "done"]
