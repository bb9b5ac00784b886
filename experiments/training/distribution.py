"""The processes that take the steps of one run together. Each computes some parts of a batch, and sums are over all.

The first process leads. Only it has the run's folder, its clock, signals and display. It decides, and tells the others
what to do, so the processes have to agree only on whether memory has run out. A run in one process is a `World` of one,
in which all of this costs nothing.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from experiments.settings.exit_code import ExitCode
from experiments.settings.mistake import Failure, first_line

T = TypeVar("T")
WhyEnded = Callable[[float], str]  # of the seconds to wait for it
LOST = "another process of this run has ended, or can't be reached"
# for what the first process does alone, such as making a corpus; that a process has ended is noticed at once
PATIENCE = timedelta(days=1)
BUCKET_BYTES = 1 << 25  # that are sent at once
POLL_SECONDS = 0.05
ENDING_SECONDS = 10.0


class LostProcessError(Failure):
    """Another process of the run has ended, or cannot be reached."""

    exit_code = ExitCode.FAILED


class World:
    """The processes of a run, of which this one is number `rank` of `size`; in this class, the only one."""

    rank = 0
    local_rank = 0  # among those of this machine
    size = 1

    def share(self, parts: Iterable[T]) -> Iterator[tuple[int, T]]:
        """The parts that this process takes, each with its index among all."""
        return ((index, part) for index, part in enumerate(parts) if index % self.size == self.rank)

    @contextmanager
    def together(self, task: str, *arguments: Any) -> Iterator[None]:
        """What the first process does in this block, the others do too: it tells them the name of the task."""
        yield

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        return flag

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Add tensors up over all processes, in place."""

    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Add the gradients up over all processes; a parameter has none where it has none in any."""

    def spread(self, tensors: Sequence[Tensor]) -> None:
        """Give the tensors the values that they have in the first process."""

    def gather(self, value: T) -> list[T]:
        """The value of every process, in order of their ranks."""
        return [value]

    def when_signalled(self, note: Callable[[int], None]) -> None:
        """Have `note` called, in the first process, with the number of a signal that another has received."""


ALONE = World()


class Member(NamedTuple):
    """The rank of a process and the number of processes."""

    rank: int
    size: int
    local_rank: int


class DistributedWorld(World):
    """Several processes, which torch.distributed connects: over gloo on CPUs, over NCCL on GPUs, flags over gloo.

    Gradients are summed when a process has all of its own, in buckets, so that memory may run out before without
    leaving the others behind. Every method raises LostProcessError; after that they are of this process alone.
    """

    def __init__(self, member: Member, ended: WhyEnded) -> None:
        self.rank, self.size, self.local_rank = member
        self._ended = ended
        self._lost = False
        self._signal = 0
        self._note: Callable[[int], None] = lambda number: None

    @contextmanager
    def together(self, task: str, *arguments: Any) -> Iterator[None]:
        """As above. After an exception that the others don't come to as well, they are not waited for any more."""
        self._broadcast((task, *arguments))
        try:
            yield
        except (ArithmeticError, Failure):
            raise
        except BaseException:
            self._lost = True
            raise

    def tasks(self) -> Iterator[tuple[Any, ...]]:
        """What the first process tells this one, a name and arguments, until it is dismissed."""
        while (told := self._broadcast(None)) is not None:
            yield told

    def dismiss(self) -> None:
        """Let the others end."""
        self._broadcast(None)

    def any(self, flag: bool) -> bool:
        """As above; signals go the same way."""
        flags = torch.tensor([int(flag), self._signal])
        self._signal = 0
        with self._heard():
            dist.all_reduce(flags, dist.ReduceOp.MAX)
        if number := int(flags[1]):
            self._note(number)
        return bool(flags[0])

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """As above."""
        self._in_buckets(tensors, dist.all_reduce)

    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """As above; one that is missing here is 0."""
        there = torch.tensor([each.grad is not None for each in parameters], dtype=torch.int32)
        with self._heard():
            dist.all_reduce(there, dist.ReduceOp.MAX)
        for parameter, anywhere in zip(parameters, there.tolist(), strict=True):
            if anywhere and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self.sum([each.grad for each in parameters if each.grad is not None])

    def spread(self, tensors: Sequence[Tensor]) -> None:
        """As above."""
        self._in_buckets(tensors, lambda flat: dist.broadcast(flat, 0))

    def gather(self, value: T) -> list[T]:
        """As above, of anything that can be pickled."""
        if self._lost:
            return [value]
        values: list[Any] = [None] * self.size
        with self._heard():
            dist.all_gather_object(values, value)
        return values

    def when_signalled(self, note: Callable[[int], None]) -> None:
        """As above."""
        self._note = note

    def signalled(self, number: int) -> None:
        """Pass a signal that this process has received on to the first one, with the next flag."""
        self._signal = number

    def _broadcast(self, told: Any) -> Any:
        box = [told]
        if not self._lost:
            with self._heard():
                dist.broadcast_object_list(box, 0)
        return box[0]

    def _in_buckets(self, tensors: Sequence[Tensor], change: Callable[[Tensor], object]) -> None:
        for bucket in _buckets(tensors):
            flat = torch.cat([tensor.detach().flatten() for tensor in bucket])
            with self._heard():
                change(flat)
            for tensor, part in zip(bucket, flat.split([tensor.numel() for tensor in bucket]), strict=True):
                tensor.detach().copy_(part.view_as(tensor))

    @contextmanager
    def _heard(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            self._lost = True
            # a connection is gone before the process is
            raise LostProcessError(f"{LOST}: {self._ended(ENDING_SECONDS) or first_line(error)}") from error


@contextmanager
def joined(
    member: Member, store: dist.Store, *, on_gpu: bool, ended: WhyEnded = lambda seconds: ""
) -> Iterator[DistributedWorld]:
    """Make this process a member of a group while the block runs; when the first one leaves it, the others are let go.

    store: where the processes find each other. ended: which other process has ended, and why, as soon as one has within
    so many seconds; else, or where that can't be known, empty.
    Raises LostProcessError.
    """
    backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
    try:
        store = _meet(member, store, ended)
        dist.init_process_group(backend, store=store, rank=member.rank, world_size=member.size, timeout=PATIENCE)
    except RuntimeError as error:
        raise LostProcessError(f"{LOST}: {ended(ENDING_SECONDS) or first_line(error)}") from error
    group = DistributedWorld(member, ended)
    try:
        yield group
    finally:
        if member.rank == 0:
            with suppress(LostProcessError):
                group.dismiss()
        dist.destroy_process_group()


def _meet(member: Member, store: dist.Store, ended: WhyEnded) -> dist.Store:
    """A part of the store of which these processes alone know, when all are there.

    After a restart torchrun's store may still hold the addresses of the processes before, to which a new one would try
    to connect. So each process asks under a name of its own, and the first one answers until all have heard it.
    """

    def wait_for(key: str) -> None:
        while not store.check([key]):
            time.sleep(POLL_SECONDS)

    if member.rank > 0:
        question = uuid.uuid4().hex
        store.set(f"question {member.rank}", question)
        wait_for(f"answer {question}")
        answer = store.get(f"answer {question}").decode()
        store.set(f"{answer} {member.rank}", "heard")
        return dist.PrefixStore(answer, store)
    answer, silent = uuid.uuid4().hex, {*range(1, member.size)}
    while silent:
        for rank in silent:
            if store.check([f"question {rank}"]):
                store.set(f"answer {store.get(f'question {rank}').decode()}", answer)
        silent = {rank for rank in silent if not store.check([f"{answer} {rank}"])}
        if reason := ended(0.0):
            raise LostProcessError(f"{LOST}: {reason}")
        time.sleep(POLL_SECONDS)
    return dist.PrefixStore(answer, store)


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """The tensors in order, grouped by type into buckets of at most BUCKET_BYTES."""
    bucket: list[Tensor] = []
    size = 0
    for tensor in tensors:
        alike = not bucket or (tensor.dtype, tensor.device) == (bucket[0].dtype, bucket[0].device)
        if bucket and not (alike and size + tensor.nbytes <= BUCKET_BYTES):
            yield bucket
            bucket, size = [], 0
        bucket.append(tensor)
        size += tensor.nbytes
    if bucket:
        yield bucket
