"""Several processes that take the steps of one run together, and how they find each other."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from experiments.failures.exit_code import ExitCode
from experiments.failures.failure import Failure
from experiments.failures.wording import first_line
from experiments.training.step.world import World

T = TypeVar("T")
WhyEnded = Callable[[float], str]  # says why another process ended; its argument is the seconds to wait for that
LOST = "another process of this run has ended, or can't be reached"
# long enough for what the first process does alone, such as making a corpus; the end of a process is noticed at once
PATIENCE = timedelta(days=1)
BUCKET_BYTES = 1 << 25  # the most bytes that are sent at once
POLL_SECONDS = 0.05
ENDING_SECONDS = 10.0


class LostProcessError(Failure):
    """Another process of the run has ended, or cannot be reached."""

    exit_code = ExitCode.FAILED


class Member(NamedTuple):
    """The rank of a process and the number of processes."""

    rank: int
    size: int
    local_rank: int


class DistributedWorld(World):
    """Several processes, connected by torch.distributed: by gloo on CPUs and by NCCL on GPUs, with flags by gloo.

    A process sums its gradients, in buckets, only when it has computed all of them. If its memory runs out before, the
    others therefore don't wait for it in vain. Every method raises LostProcessError if another process is lost; after
    that, `gather` and tasks involve only this process.
    """

    def __init__(self, member: Member, ended: WhyEnded) -> None:
        self.rank, self.size, self.local_rank = member
        self._ended = ended
        self._lost = False
        self._signal = 0
        self._note: Callable[[int], None] = lambda number: None

    @contextmanager
    def together(self, task: str, *arguments: Any) -> Iterator[None]:
        """As in `World`. After an exception that the others don't have too, this process no longer waits for them."""
        try:
            self._broadcast((task, *arguments))
            yield
        except (ArithmeticError, Failure):
            raise
        except BaseException:
            self._lost = True
            raise

    def tasks(self) -> Iterator[tuple[Any, ...]]:
        """The tasks from the first process, each a name and arguments, until it dismisses this process."""
        while (message := self._broadcast(None)) is not None:
            yield message

    def dismiss(self) -> None:
        """Tell the other processes that there are no more tasks."""
        self._broadcast(None)

    def any(self, flag: bool) -> bool:
        """As in `World`. A signal is sent along with every flag, because one that is sent twice is noted once."""
        flags = torch.tensor([int(flag), self._signal])
        with self._heard():
            dist.all_reduce(flags, dist.ReduceOp.MAX)
        if number := int(flags[1]):
            self._note(number)
        return bool(flags[0])

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """As in `World`."""
        self._in_buckets(tensors, dist.all_reduce)

    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """As in `World`. A gradient that only this process lacks counts as 0."""
        has_gradient = torch.tensor([parameter.grad is not None for parameter in parameters], dtype=torch.int32)
        with self._heard():
            dist.all_reduce(has_gradient, dist.ReduceOp.MAX)
        for parameter, anywhere in zip(parameters, has_gradient.tolist(), strict=True):
            if anywhere and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self.sum([parameter.grad for parameter in parameters if parameter.grad is not None])

    def spread(self, tensors: Sequence[Tensor]) -> None:
        """As in `World`."""
        self._in_buckets(tensors, lambda flat: dist.broadcast(flat, 0))

    def gather(self, value: T) -> list[T]:
        """As in `World`. The value can be anything that can be pickled."""
        if self._lost:
            return [value]
        values: list[Any] = [None] * self.size
        with self._heard():
            dist.all_gather_object(values, value)
        return values

    def when_signalled(self, note: Callable[[int], None]) -> None:
        """As in `World`."""
        self._note = note

    def signalled(self, number: int) -> None:
        """Pass on a signal that this process has received to the first one, with every further flag."""
        self._signal = number

    def _broadcast(self, message: Any) -> Any:
        box = [message]
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
            raise self._lost_process(error) from error

    def _lost_process(self, error: Exception) -> LostProcessError:
        self._lost = True
        # a connection is lost a little before its process has ended
        return LostProcessError(f"{LOST}: {self._ended(ENDING_SECONDS) or first_line(error)}")


@contextmanager
def joined(
    member: Member,
    store: dist.Store,
    *,
    on_gpu: bool,
    kind: type[DistributedWorld] = DistributedWorld,
    ended: WhyEnded = lambda seconds: "",
) -> Iterator[DistributedWorld]:
    """Make this process a member of a group while the block runs. When the first process leaves it, it dismisses the
    others.

    store: where the processes find each other. ended: waits at most the given seconds for the end of another process,
    and returns which one has ended and why; it returns an empty text if none has, or if that can't be known.
    Raises LostProcessError.
    """
    backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
    try:
        store = _meet(member, store, ended)
        dist.init_process_group(backend, store=store, rank=member.rank, world_size=member.size, timeout=PATIENCE)
    except RuntimeError as error:
        raise LostProcessError(f"{LOST}: {ended(ENDING_SECONDS) or first_line(error)}") from error
    group = kind(member, ended)
    try:
        yield group
    finally:
        if member.rank == 0:
            with suppress(LostProcessError):
                group.dismiss()
        dist.destroy_process_group()


def _meet(member: Member, store: dist.Store, ended: WhyEnded) -> dist.Store:
    """Wait until all processes are there, and return a part of the store that only they know.

    After a restart, torchrun's store may still hold the addresses of earlier processes, to which a new one would try to
    connect. Each process therefore asks under a unique name, and the first one answers until all have the answer.
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
