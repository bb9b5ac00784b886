"""The processes of a run on several devices: those that torchrun has started, or followers that the run starts.

`python -m experiments.training.distributed.start FOLDER` is such a follower, for the run configured in FOLDER.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import IO, TYPE_CHECKING, NamedTuple

from typing_extensions import Self

from experiments.config.check import from_tree
from experiments.failures.exit_code import ExitCode
from experiments.failures.failure import Failure, Mistake
from experiments.measure.devices import check_division, device_count, on_gpu
from experiments.processes.child import end_with_parent, start_process, whole_output, why_ended
from experiments.record.folder import RunFolder
from experiments.settings.run import Settings

if TYPE_CHECKING:
    from experiments.training.distributed.group import DistributedWorld
    from experiments.training.step.world import World

# torchrun sets them
TORCHRUN_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
GRACE_SECONDS = 15.0  # seconds in which a process ends after another one


class TorchrunProcess(NamedTuple):
    """The facts that torchrun gives to each process that it starts."""

    rank: int
    size: int
    local_rank: int
    local_size: int


def torchrun_process(environment: Mapping[str, str] = os.environ) -> TorchrunProcess | None:
    """This process as one of torchrun's; None if torchrun did not start it, or started no other."""
    if any(name not in environment for name in TORCHRUN_VARIABLES) or environment["WORLD_SIZE"] == "1":
        return None
    return TorchrunProcess(
        *(int(environment[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"))
    )


@contextmanager
def torchrun_group(settings: Settings, torchrun: TorchrunProcess) -> Iterator[DistributedWorld]:
    """This process as one of those that torchrun has started.

    Raises Mistake if the run cannot be divided among them.
    """
    if settings.trainer.devices not in (1, "auto", torchrun.size):
        raise Mistake(
            f"trainer.devices={settings.trainer.devices}: torchrun has started {torchrun.size} processes; "
            "leave trainer.devices out"
        )
    # processes on CPUs may share cores if torchrun is told to start more than there are: this is slow, but works
    check_division(settings, torchrun.size, torchrun.local_size if on_gpu(settings) else 1)
    from torch.distributed.rendezvous import rendezvous

    from experiments.training.distributed.group import PATIENCE, Member, joined

    place, kind = Member(torchrun.rank, torchrun.size, torchrun.local_rank), world_kind(settings)
    store, _, _ = next(rendezvous("env://", torchrun.rank, torchrun.size, timeout=PATIENCE))
    with joined(place, store, on_gpu=on_gpu(settings), kind=kind) as group:
        yield group


@contextmanager
def with_followers(settings: Settings, folder: RunFolder) -> Iterator[World]:
    """This process as the first of as many as the settings say. The others are started here, and end with the block.

    Raises Mistake if the run cannot be divided among so many devices.
    """
    count = device_count(settings)
    check_division(settings, count, count)
    from experiments.training.distributed.group import Member, dist, joined
    from experiments.training.step.world import ALONE

    if count == 1:
        yield ALONE
        return
    kind = world_kind(settings)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with (
        Followers(folder, count, store.port) as followers,
        joined(Member(0, count, 0), store, on_gpu=on_gpu(settings), kind=kind, ended=followers.ended) as group,
    ):
        yield group


def world_kind(settings: Settings) -> type[DistributedWorld]:
    """How the processes of a run share its work."""
    if not settings.trainer.sharded:
        from experiments.training.distributed.group import DistributedWorld

        return DistributedWorld
    from experiments.training.distributed.sharding import ShardedWorld

    return ShardedWorld


class Followers:
    """The processes that a run starts on this machine beside its own.

    They run from the start of the block. At its end they have the time to end by themselves, and are then killed.
    """

    def __init__(self, folder: RunFolder, count: int, port: int) -> None:
        self._folder, self._count, self._port = folder, count, port
        self._closed = threading.Event()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._errors: list[IO[bytes]] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            # if one cannot be started, the others need no time to end
            stack.callback(self._close, 0.0)
            for rank in range(1, self._count):
                self._start(rank)
            stack.pop_all()
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(GRACE_SECONDS)

    def ended(self, seconds: float) -> str:
        """The process that has ended first, with the reason; empty if all of them are still running after so many
        seconds.
        """
        end = time.monotonic() + seconds
        while not self._closed.is_set():
            for rank, (process, errors) in enumerate(zip(self._processes, self._errors, strict=True), start=1):
                if (code := process.poll()) is not None:
                    return f"process {rank}: {why_ended(code, whole_output(errors))}"
            if time.monotonic() >= end:
                break
            time.sleep(0.05)
        return ""

    def _start(self, rank: int) -> None:
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": self._count, "MASTER_PORT": self._port}
        environment = {**os.environ, **{name: str(value) for name, value in place.items()}}
        self._errors.append(errors := tempfile.TemporaryFile())  # noqa: SIM115
        # in a session of its own, because Ctrl-C is for the first process, which tells the others
        process = start_process(
            "experiments.training.distributed.start", self._folder.path, environment,
            stdin=subprocess.PIPE, stdout=errors, stderr=errors, start_new_session=True,
        )  # fmt: skip
        self._processes.append(process)

    def _close(self, seconds: float) -> None:
        """Wait so long until the processes have ended by themselves, and kill those that have not."""
        self._closed.set()
        end = time.monotonic() + seconds
        for process in self._processes:
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
            process.communicate()
        for errors in self._errors:
            errors.close()

    def _watch(self) -> None:
        """End this process if another one has ended and this one cannot notice, as while it waits for a GPU."""
        while not self._closed.wait(1.0):
            if ended := self.ended(0.0):
                if not self._closed.wait(GRACE_SECONDS):
                    print(f"another process of this run has ended: {ended}", file=sys.stderr, flush=True)
                    os._exit(ExitCode.FAILED)
                return


def main() -> ExitCode:
    """Follow the first process of the run in the folder of the first argument."""
    # nothing is to be saved
    end_with_parent(signal.SIGKILL)
    from experiments.training.distributed.follower import follow
    from experiments.training.distributed.group import Member, dist, joined

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    settings = from_tree(RunFolder(sys.argv[1]).config())
    try:
        store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), is_master=False)
        with joined(Member(rank, size, rank), store, on_gpu=on_gpu(settings), kind=world_kind(settings)) as group:
            follow(settings, group)
    except Failure as failure:
        print(failure, file=sys.stderr)
        return failure.exit_code
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main())
