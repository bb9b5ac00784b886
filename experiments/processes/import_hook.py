"""An import hook for libraries whose C or C++ code cannot handle a Python exception.

It delays the signals that interrupt a command during their import, because torch calls Python from C++ in the middle of
it. If a signal's handler raises an exception there, the process ends with std::terminate: without a message, an exit
code of ours, or any cleanup. What such a library says of its environment, for example of a variable that it refuses,
becomes a Failure. No garbage is collected during such an import, and what it has made is never searched for garbage,
which saves a tenth of the start of a command.
"""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType

from experiments.failures.failure import Failure, refusal
from experiments.failures.wording import first_line
from experiments.processes.collection import without_collection
from experiments.processes.interruption import SIGNALS, handled

LIBRARIES = {"numpy", "torch"}


def hold_signals_in_imports() -> None:
    """Install the hook in this process.

    Every entry point calls it before it imports torch; a second call does nothing.
    """
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


@contextmanager
def signals_held() -> Iterator[None]:
    """A block in which no handler of SIGNALS runs. Signals that arrive are sent again right after it.

    The handlers are replaced, because the thread's mask would not be enough: a signal that another thread receives runs
    its handler in this one. A signal that Python does not handle has its effect at once. Outside the main thread no
    handler runs anyway.
    """
    received: list[int] = []

    def receive(number: int, frame: FrameType | None) -> None:
        received.append(number)

    try:
        with handled(receive, [number for number in SIGNALS if callable(signal.getsignal(number))]):
            yield
    finally:
        for number in dict.fromkeys(received):
            signal.raise_signal(number)


class _Finder(MetaPathFinder):
    """Finds modules of LIBRARIES as the other finders do, and makes the outermost import of them hold the signals."""

    def __init__(self) -> None:
        self.importing = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if self.importing or fullname.partition(".")[0] not in LIBRARIES:
            return None
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(fullname, path, target)):
                if spec.loader is not None:
                    spec.loader = _SignalHoldingLoader(self, spec.loader)
                return spec
        return None


class _SignalHoldingLoader(Loader):
    """Holds the signals while a module's own loader executes it. The module shows its own loader as usual."""

    def __init__(self, finder: _Finder, own: Loader) -> None:
        self._finder, self._own = finder, own

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._own
        with signals_held(), without_collection():
            self._finder.importing = True
            try:
                self._own.exec_module(module)
            except (AttributeError, LookupError, MemoryError, OSError, RuntimeError, TypeError, ValueError) as error:
                name = module.__name__
                if name not in LIBRARIES:
                    raise
                where = f"python -c 'import {name}' shows where"
                raise refusal(error) or Failure(f"{name} cannot be imported: {first_line(error)}\n  {where}") from error
            finally:
                self._finder.importing = False
                gc.freeze()
