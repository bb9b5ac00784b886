"""One run over several processes, started as a user does: by `trainer.devices`, and by torchrun."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from experiments.failures.failure import Failure
from experiments.measure import devices
from experiments.processes import child
from experiments.record.folder import RunFolder
from experiments.training.distributed.start import Followers, TorchrunProcess, torchrun_process
from tests.launch.sweeps import instead

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "distributed.md"
TORCHRUN = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "x"}


@pytest.fixture
def eight_cores(monkeypatch):
    monkeypatch.setattr(devices, "usable", lambda: [*range(8)])


def losses(folder: RunFolder) -> list[float]:
    return [line.get("loss", line.get("validation_loss")) for line in folder.metrics.read()]


def test_two_devices_do_what_one_does_in_the_same_folder(attn, tiny, tmp_path, eight_cores):
    (command,) = re.findall(r"```bash\nattn (train .*)\n```", PAGE.read_text(encoding="utf-8"))
    two = attn(*command.split(), *tiny)
    assert two.returncode == 0, two.output
    (path,) = (tmp_path / "runs").glob("multi_head-*")
    result = RunFolder(path).result()
    assert result.devices == 2 and result.micro_batch == 2 and result.status == "done"
    # the process of the test is the first of the two, and the largest
    assert result.peak_memory_of_all_bytes > 1.1 * result.peak_memory_bytes
    said = " ".join(two.stdout.split())
    assert " on 2 devices, " in said and "on 2 times " in said and "MB of all" in said
    # it is the same run
    assert attn("train", *tiny).stdout.split() == two.stdout.split()
    one = attn("train", "runs=other", *tiny)
    assert one.returncode == 0 and " devices, " not in one.stdout
    folder = RunFolder(tmp_path / "other" / path.name)
    assert losses(folder) == pytest.approx(losses(RunFolder(path)), rel=1e-2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trainer.devices=two"], "trainer.devices: 'two' must be auto, or a whole number from 1 on"),
        (["trainer.devices=0"], "trainer.devices: 0 must be auto"),
        (["trainer.device=gpu"], "trainer.device: 'gpu' must be one of auto, cpu, cuda, and cuda:0"),
        (["trainer.device=mps"], "losses are summed in float64, which Apple's GPUs don't have"),
        (["trainer.device=cuda:7", "trainer.devices=2"], "trainer.device=cuda:7: is one GPU"),
        (["trainer.devices=9", "batch_size=16"], "trainer.devices=9: this machine has 8 cores for their threads"),
        (["trainer.devices=5"], "batch_size=4: each of 5 devices needs a sequence"),
        (["trainer.devices=2", "model.norm_kind=batch"], "model.norm_kind=batch: its running statistics"),
        (["trainer.devices=2", "model.dropout=0.1"], "trainer.micro_batch=4: dropout is drawn for each micro-batch"),
        (["trainer.devices=2", "trainer.sharded=true", "trainer.compile=true"], "trainer.compile=true: compiled"),
        (["-m", "seed=0,1", "trainer.devices=5"], "batch_size=4: each of 5 devices"),
    ],
)
def test_what_can_not_be_shared_is_refused_by_name_and_nothing_is_left(attn, tiny, tmp_path, eight_cores, words, said):
    words = [*words, *(word for word in tiny if word.split("=")[0] not in {each.split("=")[0] for each in words})]
    done = attn("train", *words)
    assert done.returncode == 2 and said in done.stderr, done.output
    assert not (tmp_path / "runs").exists()


def test_torchrun_tells_a_process_its_place_and_starts_no_sweep(attn, tiny, monkeypatch):
    assert torchrun_process({}) is None and torchrun_process(TORCHRUN) is None
    whole = {**TORCHRUN, "MASTER_PORT": "1"}
    assert torchrun_process(whole) == TorchrunProcess(rank=3, size=4, local_rank=1, local_size=2)
    assert torchrun_process({**whole, "WORLD_SIZE": "1"}) is None
    for name, value in whole.items():
        monkeypatch.setenv(name, value)
    done = attn("train", "-m", "seed=0,1", *tiny)
    assert done.returncode == 2 and "torchrun starts the processes of a single run" in done.stderr
    done = attn("train", "trainer.devices=2", *tiny)
    assert done.returncode == 2 and "trainer.devices=2: torchrun has started 4 processes" in done.stderr


def test_threads_that_ask_at_once_why_a_follower_has_ended_are_told_the_same(tmp_path, monkeypatch):
    ends = {"args": [sys.executable, "-c", "raise SystemExit('a reason')"]}
    monkeypatch.setattr(child, "process_arguments", lambda *_: ends)
    with Followers(RunFolder(tmp_path), 2, 0) as followers, ThreadPoolExecutor(4) as threads:
        assert followers.ended(60.0) == "process 1: a reason"
        assert {*threads.map(followers.ended, [0.0] * 1000)} == {"process 1: a reason"}


def test_a_follower_that_cannot_be_started_leaves_no_other_behind(tmp_path, monkeypatch):
    waits, missing = [sys.executable, "-c", "input()"], [tmp_path / "missing"]
    commands = iter([{"args": waits}, {"args": missing}])
    monkeypatch.setattr(child, "process_arguments", lambda *_: next(commands))
    before = psutil.Process().children()
    with (
        pytest.raises(Failure, match="no process could be started: No such file"),
        Followers(RunFolder(tmp_path), 3, 0),
    ):
        pass
    assert psutil.Process().children() == before


# what is below starts interpreters by the dozen

LONG = ("max_steps=140", "trainer.checkpoint_every=10", "trainer.evaluate_every=70", "trainer.log_every=10")
PARTS = ("model.dropout=0.1", "trainer.micro_batch=1")


class Command:
    """The command in a process of its own, and what it is about."""

    def __init__(self, folder: Path, environment: dict[str, str], *before: str, words: list[str]) -> None:
        self.folder = folder
        self.said = (folder / "said.txt").open("a+")
        command = [sys.executable, *before, str(ROOT / "cli.py"), "train", *words]
        self.process = subprocess.Popen(command, cwd=folder, env=environment, stdout=self.said, stderr=self.said)

    @property
    def run(self) -> RunFolder:
        return RunFolder(next((self.folder / "runs").glob("multi_head-*")))

    def step(self) -> int:
        return self.run.metrics.last_step() if [*(self.folder / "runs").glob("multi_head-*")] else 0

    def wait_for(self, step: int) -> None:
        end = time.monotonic() + 300
        while self.step() < step:
            assert self.process.poll() is None and time.monotonic() < end, self.output()
            time.sleep(0.02)

    def members(self) -> list[psutil.Process]:
        """The first process, which has the folder, then the others."""
        first = int(self.run.holder().split()[1])
        top = psutil.Process(self.process.pid)
        # torchrun is none of them
        above = [top] if top.pid == first else []
        return sorted([*above, *top.children(recursive=True)], key=lambda each: each.pid != first)

    def output(self) -> str:
        self.said.seek(0)
        return self.said.read()

    def end(self) -> int:
        code = self.process.wait(240)
        end = time.monotonic() + 60
        while self.run.holder():
            assert time.monotonic() < end
            time.sleep(0.1)
        return code


@pytest.fixture
def command(environment, tiny, tmp_path):
    """command(*before, words=[...]) -> Command"""
    usual = instead([*LONG, *PARTS], tiny)
    started = []

    def start(*before: str, words: list[str]) -> Command:
        started.append(Command(tmp_path, environment, *before, words=instead(words, usual)))
        return started[-1]

    yield start
    for each in started:
        for process in psutil.Process(each.process.pid).children(recursive=True) if each.process.poll() is None else []:
            process.kill()
        each.process.kill()
        each.process.wait()
        each.said.close()


@pytest.fixture
def check_same(attn, tiny, tmp_path):
    """check_same(run): a run of one process that nobody disturbs has the same losses."""

    def check(run: RunFolder) -> None:
        (tmp_path / "alone").mkdir()
        alone = attn("train", *instead([*LONG, *PARTS], tiny), cwd=tmp_path / "alone")
        assert alone.returncode == 0, alone.output
        assert losses(run) == pytest.approx(losses(RunFolder(tmp_path / "alone" / "runs" / run.name)), rel=0.02)

    return check


def torchrun(size: int, restarts: int = 0) -> list[str]:
    options = ["--standalone", f"--nproc-per-node={size}", f"--max-restarts={restarts}"]
    return ["-m", "torch.distributed.run", *options]


@pytest.mark.campaign
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_killed_processes_end_the_others_and_the_same_command_goes_on(command, check_same, chance, scale):
    for attempt in range(2 * scale):
        going = command(words=["trainer.devices=2"])
        going.wait_for(min(going.step() + 20, 80))
        time.sleep(chance.random() / 5)
        members = going.members()
        assert len(members) == 2
        lost = members[attempt % 2]
        lost.kill()
        code = going.end()
        assert code == (1 if attempt % 2 else -signal.SIGKILL), going.output()
        psutil.wait_procs(members, timeout=60)
        assert not any(each.is_running() for each in members)
        if attempt % 2:
            assert "process 1: killed by SIGKILL" in going.run.result().reason
    going = command(words=["trainer.devices=2"])
    assert going.end() == 0, going.output()
    check_same(going.run)


@pytest.mark.campaign
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_a_signal_finishes_the_step_of_all(command, chance):
    number = chance.choice([signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    going = command(words=["trainer.devices=auto"])
    going.wait_for(20)
    going.process.send_signal(number)
    assert going.end() == 128 + number, going.output()
    assert going.run.result().status == "interrupted"


@pytest.mark.campaign
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_torchrun_starts_again_after_a_kill(command, check_same, chance):
    going = command(*torchrun(2, restarts=3), words=[])
    for lost in (1, 0):
        going.wait_for(min(going.step() + 20, 80))
        time.sleep(chance.random() / 5)
        members = going.members()
        assert len(members) == 2
        members[lost].kill()
        psutil.wait_procs(members, timeout=60)
    assert going.end() == 0, going.output()
    assert going.run.result().devices == 2 and len(going.run.environment()["earlier"]) == 2
    check_same(going.run)
    again = command(*torchrun(2), words=[])
    assert again.end() == 0 and again.output().count("validation loss") >= 1
    assert json.loads((going.run.path / "result.json").read_text())["status"] == "done"


@pytest.mark.campaign
def test_torchrun_may_start_more_processes_than_there_are_cores(command):
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        going = command(*torchrun(2), words=["trainer.threads=1", "max_steps=40"])
        assert going.end() == 0, going.output()
    finally:
        os.sched_setaffinity(0, cores)
    assert going.run.result().devices == 2
