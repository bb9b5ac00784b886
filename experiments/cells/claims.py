"""The cores and GPUs of this machine, shared out among processes that know nothing of each other.

A claim is a lock on a file, which the system releases when its process dies.
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


class Claims:
    """What this process has claimed of one kind of resource, beside the other processes of this user.

    kind: `core` or `gpu`. identity: what names a resource alike in all processes. sharing: how many claims one
    resource can have at once. All processes that share it must allow the same number; 1 excludes all others.
    """

    def __init__(self, kind: str, identity: Callable[[str], str] = str, sharing: int = 1) -> None:
        self._kind, self._identity, self._sharing = kind, identity, sharing
        self._claims: defaultdict[str, list[ExitStack]] = defaultdict(list)  # open files, by the name of the resource

    def take(self, names: Sequence[str], count: int) -> list[str]:
        """Claim `count` of the named resources, of which this process has the fewest claims; none if fewer are free.

        Raises Failure if the locks cannot be made.
        """
        claims: dict[str, ExitStack] = {}
        # one process at a time, because two that need several could each take a part
        with one_at_a_time() as folder, ExitStack() as given_back:
            for name in sorted(names, key=lambda name: len(self._claims[name])):
                if len(claims) < count and (claim := self._claim(folder, self._identity(name))):
                    claims[name] = given_back.enter_context(claim)
            if len(claims) < count:
                return []
            given_back.pop_all()
        for name, claim in claims.items():
            self._claims[name].append(claim)
        return list(claims)

    def release(self, names: Sequence[str]) -> None:
        """End a claim on each of the named resources."""
        for name in names:
            self._claims[name].pop().close()

    def _claim(self, folder: Path, identity: str) -> ExitStack | None:
        """The open files of a claim; None if the resource is not free."""
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
    folder = Path(tempfile.gettempdir()) / f"attn-claims-{os.getuid()}"
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
