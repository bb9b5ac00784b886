"""The cores and GPUs of this machine, shared out among processes that know nothing of each other.

A reservation is a lock on a file, which the system releases when its process dies.
"""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from experiments.failures.failure import Failure
from experiments.files.disk import lock_file, make_folder, take_lock


class Reservations:
    """What this process has reserved of one kind of resource, beside the other processes of this user.

    kind: `core` or `gpu`. identity: what names a resource alike in all processes. sharing: how many reservations one
    resource can have at once. All processes that share it must allow the same number; 1 excludes all others.
    """

    def __init__(self, kind: str, identity: Callable[[str], str] = str, sharing: int = 1) -> None:
        self._kind, self._identity, self._sharing = kind, identity, sharing
        self._reserved: defaultdict[str, list[ExitStack]] = defaultdict(list)  # open files, by the name of the resource

    def take(self, names: Sequence[str], count: int) -> list[str]:
        """Reserve `count` of the named resources, first those that this process has reserved least often; none if fewer
        are free.

        Raises Failure if the locks cannot be made.
        """
        reserved: dict[str, ExitStack] = {}
        # one process at a time, because two that need several could each take a part
        with one_at_a_time() as folder, ExitStack() as given_back:
            for name in sorted(names, key=lambda name: len(self._reserved[name])):
                if len(reserved) < count and (files := self._reserve(folder, self._identity(name))):
                    reserved[name] = given_back.enter_context(files)
            if len(reserved) < count:
                return []
            given_back.pop_all()
        for name, files in reserved.items():
            self._reserved[name].append(files)
        return list(reserved)

    def release(self, names: Sequence[str]) -> None:
        """End a reservation of each of the named resources."""
        for name in names:
            self._reserved[name].pop().close()

    def _reserve(self, folder: Path, identity: str) -> ExitStack | None:
        """The open files of a reservation; None if the resource is not free."""
        path = folder / f"{self._kind}-{identity}"
        parts = [path.with_name(f"{path.name}-part-{number}") for number in range(self._sharing)]
        with ExitStack() as files:
            if not take_lock(files.enter_context(lock_file(path)), shared=len(parts) > 1):
                return None
            if len(parts) == 1 or any(take_lock(files.enter_context(lock_file(part))) for part in parts):
                return files.pop_all()
        return None


@contextmanager
def one_at_a_time() -> Iterator[Path]:
    """A block that one process of this user is in at a time, with the folder of its locks. Raises Failure."""
    folder = Path(tempfile.gettempdir()) / f"attn-reservations-{os.getuid()}"
    try:
        make_folder(folder)
        with lock_file(folder / "lock") as lock:
            take_lock(lock, wait=True)
            yield folder
    except OSError as error:
        raise Failure(
            f"{folder}: {error.strerror or error}; sweeps divide the GPUs and cores of a machine there\n"
            "  set TMPDIR to a folder that you may write"
        ) from error
