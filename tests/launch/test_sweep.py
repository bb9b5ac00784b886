"""Sweeps as a user runs them: real processes, one of them really killed."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hydra._internal.core_plugins.basic_launcher import BasicLauncherConf
from hydra._internal.core_plugins.basic_sweeper import BasicSweeperConf
from hydra.core.config_store import ConfigStore
from rich.console import Console
from rich.text import Text

from experiments.cells import runner
from experiments.cells.cell import folder_of
from experiments.cells.outcome import Outcome, outcome_of
from experiments.commands.train import launch
from experiments.config.compose import compose
from experiments.config.hydra_messages import OF_HYDRA
from experiments.failures.failure import Mistake
from experiments.launch import hydra_job, sweep
from experiments.launch.local import train_cells
from experiments.launch.output import SweepProgress, print_cells
from experiments.measure.cores import usable
from experiments.processes import child
from experiments.record.folder import RunFolder
from tests.launch.sweeps import check_reserved

ROOT = Path(__file__).resolve().parents[2]


def statuses(runs: Path) -> list[str]:
    return sorted(json.loads(path.read_text())["status"] for path in runs.glob("*/result.json"))


def process_of(folder: Path) -> int:
    """The process that trains in a run folder."""
    holder = RunFolder(folder).holder()
    assert holder, f"nobody trains in {folder}"
    return int(holder.split()[1])


def wait_for(condition, seconds: float = 240.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_sweep_trains_every_cell_and_skips_what_is_done(attn, tiny, tmp_path):
    words = ["train", "-m", "variant=multi_head,talking_heads", "heads=2", *tiny]
    first = attn(*words)
    assert first.returncode == 0, first.stdout + first.stderr
    assert statuses(tmp_path / "runs") == ["done", "done"]
    again = attn(*words)
    assert again.returncode == 0
    assert again.stdout.count("finished before") == 2
    rows = json.loads(attn("compare", "--format", "json").stdout)
    assert {row["variant"] for row in rows} == {"multi_head", "talking_heads"}
    assert attn("compare", "variant=talking_heads", "--format", "csv").stdout.count("\n") == 2


LONG = ("max_steps=100000", "trainer.checkpoint_every=4", "trainer.compile=false")


def saved(runs: Path, seed: int) -> bool:
    """Whether the cell of a seed has a checkpoint of a later step than 0."""
    return any("step-000000000" not in path.name for path in runs.glob(f"*-s{seed}-*/checkpoint/step-*.safetensors"))


@pytest.fixture
def begun(tiny, tmp_path, environment):
    """begun(*words): start a sweep of three long cells, and return its process and the folders of its runs.

    It waits until one cell for each core, at most two, has saved a checkpoint. The processes are killed at the end.
    """
    sweeps = []

    def begin(*words: str) -> tuple[subprocess.Popen[str], list[Path]]:
        fixed = [word for word in tiny if not word.startswith(("max_steps", "trainer.checkpoint_every"))]
        sweep = subprocess.Popen(
            [sys.executable, str(ROOT / "cli.py"), "train", "-m", "seed=0,1,2", *fixed, *LONG, *words],
            cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        sweeps.append(sweep)
        at_once = min(2, len(usable()))
        wait_for(lambda: all(saved(tmp_path / "runs", seed) for seed in range(at_once)))
        return sweep, sorted((tmp_path / "runs").glob("multi_head-*"))

    yield begin
    for each in sweeps:
        each.kill()
        each.wait()


@pytest.mark.campaign
def test_a_killed_cell_ends_alone(begun, tmp_path):
    sweep, folders = begun()
    os.kill(process_of(folders[0]), signal.SIGKILL)
    # the third has its place
    wait_for(lambda: saved(tmp_path / "runs", 2))
    sweep.send_signal(signal.SIGINT)
    output, _ = sweep.communicate(timeout=60)
    assert (
        sweep.returncode == 130
        and "killed by SIGKILL" in output
        and "interrupted by SIGINT; the same command continues" in output
    )
    assert set(statuses(tmp_path / "runs")) == {"interrupted"}
    assert not (folders[0] / "result.json").exists()


@pytest.mark.campaign
def test_every_cell_saves_and_ends_when_its_sweep_is_told_to_stop(begun, tmp_path):
    sweep, folders = begun()
    sweep.terminate()
    output, _ = sweep.communicate(timeout=60)
    assert sweep.returncode == 128 + signal.SIGTERM, output
    assert "the same command continues" in output
    assert statuses(tmp_path / "runs") == ["interrupted"] * len(folders)
    again, _ = begun()
    wait_for(lambda: all("going on from step" in (folder / "log.txt").read_text() for folder in folders))
    again.terminate()
    again.communicate(timeout=60)


@pytest.mark.campaign
def test_every_cell_saves_and_ends_when_its_sweep_is_killed(begun, tmp_path):
    sweep, folders = begun()
    sweep.kill()
    sweep.wait()
    wait_for(lambda: len(statuses(tmp_path / "runs")) == len(folders))
    assert statuses(tmp_path / "runs") == ["interrupted"] * len(folders)
    for folder in folders:
        wait_for(lambda folder=folder: RunFolder(folder).holder() is None)


def test_a_failed_cell_gives_its_reason_and_the_sweep_goes_on(attn, tiny, tmp_path):
    # the text is too short for one batch of the first cell, which is known only once the text is prepared
    words = [word for word in tiny if not word.startswith("batch_size")]
    done = attn("train", "-m", "batch_size=10000,4", *words)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "10,000" in done.stdout or "10000" in done.stdout
    assert "1 of 2 cells failed" in done.stdout
    assert statuses(tmp_path / "runs").count("done") == 1


def test_a_cell_that_leaves_no_folder_behind_gives_its_reason_too(attn, tiny, tmp_path):
    # if preparation fails, no run folder remains, and so no output.txt either
    short = tmp_path / "short.txt"
    short.write_text("too few words")
    words = [word for word in tiny if not word.startswith("data.train")]
    done = attn("train", "-m", f"data.train={short}", "seed=0,1", *words)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "2 of 2 cells failed" in done.stdout and done.stdout.count("output.txt") == 0
    assert done.stdout.count("the train split has") == 4, done.stdout


@pytest.mark.parametrize(("device", "visible"), [("cuda", "4"), ("cuda:1", None)])
def test_a_cell_sees_its_own_gpu_or_all_where_it_names_one_by_its_number(tiny, tmp_path, monkeypatch, device, visible):
    seen = []

    def arguments(module, argument, environment):
        seen.append(environment.get("CUDA_VISIBLE_DEVICES"))
        return {"args": [sys.executable, "-c", ""], "env": dict(environment)}

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(child, "process_arguments", arguments)
    for module in ("experiments.cells.resources", "experiments.measure.devices"):
        monkeypatch.setattr(f"{module}.on_gpu", lambda settings: True)
    monkeypatch.setattr("experiments.measure.hardware.visible_gpus", lambda: ["4", "6"])
    cell = compose([*(word for word in tiny if "device" not in word), f"runs={tmp_path / 'runs'}"])
    trainer = cell.trainer.model_copy(update={"device": device})
    runner.run_cell(cell.model_copy(update={"trainer": trainer}))
    assert seen == [visible]


def test_the_reason_is_the_mistake_and_not_its_hint(tiny, tmp_path, monkeypatch):
    said = "there is no such library\n  pip install it"
    process = {"args": [sys.executable, "-c", f"import sys; sys.exit({said!r})"], "env": None}
    monkeypatch.setattr(child, "process_arguments", lambda *_: process)
    outcome = runner.run_cell(compose([*tiny, f"runs={tmp_path / 'runs'}"]))
    assert not outcome.done and outcome.reason == "there is no such library"


def test_the_reason_is_of_this_attempt_and_not_of_one_before(tiny, tmp_path, monkeypatch):
    reasons = []
    for code in ("import sys; sys.exit('the first')", "import os; os._exit(9)"):
        process = {"args": [sys.executable, "-c", code], "env": None}
        monkeypatch.setattr(child, "process_arguments", lambda *_, process=process: process)
        reasons.append(runner.run_cell(compose([*tiny, f"runs={tmp_path / 'runs'}"])).reason)
    assert reasons == ["the first", "ended with code 9"]


@pytest.mark.parametrize("by_overlay", [False, True])
def test_without_a_launcher_the_line_that_installs_it_is_printed(
    attn, tiny, tmp_path, monkeypatch, unplugged, by_overlay
):
    # a name that no plugin has stands for that of a launcher whose extra is not installed
    monkeypatch.setitem(OF_HYDRA["hydra/launcher"], "absent", "slurm")
    words = ["hydra/launcher=absent"]
    if by_overlay:
        overlay = tmp_path / "conf" / "experiment" / "on_a_cluster.yaml"
        overlay.parent.mkdir(parents=True)
        overlay.write_text("# @package _global_\ndefaults:\n  - override /hydra/launcher: absent\n")
        words = ["experiment=on_a_cluster", f"plugins={tmp_path}"]
    done = attn("train", "-m", "heads=1,2", *words, *tiny)
    assert done.returncode == 2 and "hydra/launcher=absent is not installed" in done.stderr, done.output
    assert '".[slurm]"' in done.stderr


def test_a_machine_without_slurm_is_named_before_anything_is_changed(attn, tiny, tmp_path, monkeypatch):
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="needs attn[slurm]")
    monkeypatch.setattr("experiments.launch.submitit_jobs.shutil.which", lambda command: None)
    done = attn("train", "-m", "heads=1,2", "hydra/launcher=submitit_slurm", *tiny)
    assert done.returncode == 2 and "hydra/launcher=submitit_slurm: there is no srun on this machine" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.campaign
def test_a_launcher_of_hydra_runs_the_same_cells(shell, environment, tiny, tmp_path, monkeypatch):
    """That of submitit. The tests of joblib have the other."""
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    monkeypatch.setitem(environment, "TMPDIR", str(tmp_path))
    done = shell("train", "-m", "heads=1,2", "hydra/launcher=submitit_local", *tiny)
    assert done.returncode == 0, done.stdout + done.stderr
    assert statuses(tmp_path / "runs") == ["done", "done"]
    check_reserved(tmp_path)


def test_the_cells_of_another_sweeper_are_found_in_the_folder_of_runs(in_process, tiny, tmp_path, monkeypatch, capsys):
    # Hydra's own under another name: what it runs is known only afterwards, as of any other sweeper
    ConfigStore.instance().store(group="hydra/sweeper", name="another", node=BasicSweeperConf, provider="test")
    monkeypatch.chdir(tmp_path)
    own = [f"runs={tmp_path / 'other'}", f"cache={tmp_path / 'cache'}"]
    assert launch(["-m", "hydra/sweeper=another", "heads=2", *own, *tiny]) == 0, capsys.readouterr().out
    assert statuses(tmp_path / "other") == ["done"]
    assert not (tmp_path / "runs").exists()


def test_a_finished_cell_is_done_without_a_line_of_its_job(in_process, tiny, tmp_path, monkeypatch, capsys):
    ConfigStore.instance().store(group="hydra/launcher", name="another", node=BasicLauncherConf, provider="test")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("experiments.launch.sweep.read_ledger", lambda *_: {})
    words = ["hydra/launcher=another", "heads=2", f"cache={tmp_path / 'cache'}", *tiny]
    assert launch(["-m", *words]) == 0, capsys.readouterr().out


def test_an_equal_sweep_leaves_the_lines_of_this_one(in_process, tiny, tmp_path, monkeypatch, capsys):
    ConfigStore.instance().store(group="hydra/launcher", name="another", node=BasicLauncherConf, provider="test")
    monkeypatch.chdir(tmp_path)
    words = ["-m", "hydra/launcher=another", "heads=2", f"cache={tmp_path / 'cache'}", *tiny]
    train, said = sweep.hydra_main, []

    def meanwhile(task, line):
        train(task, line)
        monkeypatch.setattr(sweep, "hydra_main", lambda *_: None)
        assert launch(words) == 3
        said.append(capsys.readouterr().out)

    monkeypatch.setattr(sweep, "hydra_main", meanwhile)
    monkeypatch.setattr(hydra_job, "run_cell", lambda settings, pool: Outcome(folder_of(settings), None, "it is hot"))
    assert launch(words) == 3
    assert ["never began" in said[0], "it is hot" in capsys.readouterr().out] == [True, True]


@pytest.mark.parametrize("option", ["launcher", "sweeper"])
@pytest.mark.parametrize(
    ("words", "folders"),
    [
        (["runs=${variant.name}/runs", "variant=multi_head,talking_heads"], ["multi_head/runs", "talking_heads/runs"]),
        # the names of both cells are equal
        (["runs=one,other"], ["one", "other"]),
        (["runs='one,other'"], ["one,other"]),
    ],
)
def test_the_cells_that_hydra_starts_are_found_in_their_own_folders(
    in_process, tiny, tmp_path, monkeypatch, capsys, option, words, folders
):
    node = {"launcher": BasicLauncherConf, "sweeper": BasicSweeperConf}[option]
    ConfigStore.instance().store(group=f"hydra/{option}", name="another", node=node, provider="test")
    monkeypatch.chdir(tmp_path)
    own = [f"hydra/{option}=another", "heads=2", f"cache={tmp_path / 'cache'}"]
    assert launch(["-m", *own, *words, *tiny]) == 0, capsys.readouterr().out
    assert [statuses(tmp_path / folder) for folder in folders] == [["done"]] * len(folders)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-m", "heads=1,2", "--workers", "0"], "--workers 0: must be auto, or a number of cells from 1 on"),
        (["-m", "heads=1,2", "--workers=many"], "--workers many: must be auto"),
        (["-m", "heads=1,2", "--workers="], "--workers: must be auto"),
        (["-m", "heads=1,2", "--workers", "999"], "--workers 999: this machine has room for"),
        (["-m", "heads=1,2", "--workers", "999", "--dry-run"], "--workers 999: this machine has room for"),
        (["-m", "heads=1,2", "--workers", "2", "--workers=1"], "--workers is given twice: 2 and 1"),
        (["-m", "heads=1,2", "--worker=2"], "there is no flag --worker=2 (did you mean --workers?)"),
        (["--runs", "mine"], "there is no flag --runs\n  a setting has no dashes: runs=VALUE"),
        (["--trainer.threads=2"], "a setting has no dashes: trainer.threads=2"),
        (["heads=2", "--workers", "2"], "--workers: a single run has no workers"),
        (["-m", "heads=1,2", "--per-device", "0"], "--per-device 0: must be a number of cells from 1 on"),
        (["-m", "heads=1,2", "--per-device="], "--per-device: must be a number"),
        (["-m", "heads=1,2", "--per-device=2"], "--per-device 2: these cells train on a CPU"),
        (["-m", "heads=1,2", "--per-device=2", "--dry-run"], "--per-device 2: these cells train on a CPU"),
        (["heads=2", "--per-device", "2"], "--per-device: a single run has no workers"),
        (["--cfg", "job", "--workers", "2"], "--workers 2: --cfg does not use it; a sweep does"),
        (["--cfg=job", "--dry-run"], "--dry-run: --cfg does not use it\n"),
        (["--resolve"], "--resolve: only --cfg uses it"),
        (["-p", "model", "--info", "defaults"], "-p: only --cfg uses it"),
    ],
)
def test_a_wrong_flag_or_number_of_workers_is_refused_before_anything_is_changed(attn, tiny, tmp_path, words, said):
    done = attn("train", *words, *tiny)
    assert done.returncode == 2 and said in done.stderr, done.output
    assert not (tmp_path / "runs").exists()


def test_cells_side_by_side_are_those_of_one_by_one_and_compare_says_what_their_speed_is_worth(
    attn, tiny, monkeypatch, tmp_path
):
    monkeypatch.setattr("experiments.cells.resources.usable", lambda: [0, 1, 2])
    words = ["train", "-m", "seed=0,1", "heads=2", *tiny, f"cache={tmp_path / 'cache'}"]
    first, second = attn(*words, "--workers", "auto"), attn(*words, "--workers", "1", "runs=one")
    assert first.returncode == second.returncode == 0, first.output + second.output
    assert first.stderr.count("preparing the corpus") == 1 and "preparing the corpus" not in second.stderr
    beside, alone = (attn("compare", "--runs", runs, "--format", "json") for runs in ("runs", "one"))
    for mine, other in zip(json.loads(beside.stdout), json.loads(alone.stdout), strict=True):
        assert mine["run"] == other["run"] and mine["loss"] == other["loss"]
    assert "the speeds of 2 of 2 runs were measured while the machine was busy" in beside.stderr
    counts = {runs: {json.loads(path.read_text())["cells_at_once"] for path in Path(runs).glob("*/result.json")}
              for runs in ("runs", "one")}  # fmt: skip
    assert counts == {"runs": {2}, "one": {1}}


def test_cells_that_are_one_run_are_trained_once_and_share_its_outcome(tiny, tmp_path, monkeypatch):
    """Such as two equal rows of a table."""
    monkeypatch.setattr("experiments.cells.resources.usable", lambda: [0, 1, 2])
    cells = [compose([*tiny, f"logger.project={name}", f"runs={tmp_path / 'runs'}"]) for name in "ab"]
    outcomes = train_cells(cells, Console(file=io.StringIO()))
    assert [outcome.done for outcome in outcomes] == [True, True] and outcomes[0].folder == outcomes[1].folder


def test_a_dry_run_shows_the_reason_of_a_cell_that_its_sweep_could_not_train(tiny, tmp_path):
    cells = [compose([*tiny, f"seed={seed}", f"runs={tmp_path}"]) for seed in range(3)]
    for cell in cells[:2]:
        runner.folder_of(cell).path.mkdir()
    (runner.folder_of(cells[0]).path / "result.json").write_text("{")
    shown = Console(file=io.StringIO(), width=300)
    print_cells(cells, shown, runs_here=True)
    of_cell = [next(line for line in shown.file.getvalue().splitlines() if f"-s{seed}-" in line) for seed in range(3)]
    assert "result.json" in of_cell[0]
    assert of_cell[1].split()[-1] == "begun" and of_cell[2].endswith("to do")


def test_a_dry_run_for_other_machines_shows_cells_whose_kernel_is_missing_here(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("attention.kernels.cuda.kernel.absence", lambda device: "there is no GPU")
    cells = [compose([*tiny, "backend=cuda", f"heads={heads}", f"runs={tmp_path}"]) for heads in (1, 2)]
    with pytest.raises(Mistake, match="cuda"):
        print_cells(cells, Console(file=io.StringIO()), runs_here=True)
    shown = Console(file=io.StringIO(), width=300)
    print_cells(cells, shown, runs_here=False)
    lines = shown.file.getvalue().splitlines()
    assert sum("-s0-" in line and line.endswith("to do") for line in lines) == 2


def test_the_progress_of_all_running_cells_fits_80_columns(tiny, tmp_path):
    cells = [compose([*tiny, f"seed={seed}", f"runs={tmp_path}"]) for seed in (0, 1)]
    running = [SimpleNamespace(settings=cell, folder=runner.folder_of(cell)) for cell in cells]
    shown = Console(file=io.StringIO(), force_terminal=True, width=80, legacy_windows=False)
    for number, cell in enumerate(running):
        cell.folder.path.mkdir()
        (cell.folder.path / "metrics.jsonl").write_text(f'{{"step": {4 + number}, "loss": 6.0}}\n')
    with SweepProgress(24, shown).shown() as progress:
        progress.watch(running, False)
        text = Text.from_ansi(shown.file.getvalue()).plain
        shown.file.seek(0)
        shown.file.truncate()
        progress._bars.refresh()
    lines = Text.from_ansi(shown.file.getvalue()).plain.splitlines()
    assert max(map(len, text.splitlines() + lines)) <= 80
    for wanted in ("cells", "0/24", "multi_head-l2-d24-", "4/12", "5/12"):
        assert any(wanted in line for line in lines), (wanted, lines)


def test_metrics_that_cannot_be_read_end_no_sweep(tiny, tmp_path):
    cell = compose([*tiny, f"runs={tmp_path}"])
    running = SimpleNamespace(settings=cell, folder=runner.folder_of(cell))
    (running.folder.path / "metrics.jsonl").mkdir(parents=True)
    with SweepProgress(1, Console(file=io.StringIO())).shown() as progress:
        progress.watch([running], False)


def test_a_job_that_is_done_without_a_result_to_be_seen_says_so(tmp_path):
    outcome = outcome_of(RunFolder(tmp_path), "done")
    assert outcome.failed and outcome.reason == f"its job is done, but {tmp_path}/result.json is not to be seen"


def test_in_a_pipe_every_cell_that_ends_is_a_line(tmp_path):
    pipe = Console(file=io.StringIO(), width=80)
    finished = Outcome(RunFolder(tmp_path / "one"), SimpleNamespace(status="done"), "")
    with SweepProgress(3, pipe).shown([None, finished, None]) as progress:
        for blocked in (False, True, True, False):
            progress.watch([], blocked)
        progress.end(Outcome(RunFolder(tmp_path / "two"), None, "killed by SIGKILL"))
    assert pipe.file.getvalue().splitlines() == [
        "[1/3] one: finished before",
        "[1/3] the next cell waits, because other sweeps have reserved the GPUs that it could use",
        "[2/3] two: killed by SIGKILL",
    ]
