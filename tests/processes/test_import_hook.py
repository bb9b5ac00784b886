"""Signals during the import of a library whose C++ code can't handle exceptions."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import subprocess
import sys
import threading

import pytest

from experiments.failures.failure import Failure
from experiments.processes import import_hook
from experiments.processes.child import process_arguments
from experiments.processes.import_hook import hold_signals_in_imports, signals_held
from experiments.processes.interruption import SIGNALS, Interrupted, Interruption


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_comes_right_after_the_block(number):
    done = False
    with pytest.raises(Interrupted) as caught, Interruption():
        with signals_held():
            os.kill(os.getpid(), number)
            # a second one does not break in either, and another thread may receive it
            thread = threading.Thread(target=signal.raise_signal, args=[number])
            thread.start()
            thread.join()
            done = True
        pytest.fail("it was lost")
    assert done and caught.value.exit_code == 128 + number


def test_outside_the_main_thread_and_without_a_signal_nothing_happens():
    before = signal.getsignal(signal.SIGINT)
    handlers = []

    def block() -> None:
        with signals_held():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=block)
    thread.start()
    thread.join()
    with signals_held():
        pass
    assert handlers == [before] == [signal.getsignal(signal.SIGINT)]


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A package that gets SIGINT in the middle of its import, in `begun` before and `ended` after it."""
    package = tmp_path / "clanging"
    package.mkdir()
    # to this thread; one that is sent to the process may come a little later
    sends = "import signal\nsignal.raise_signal(signal.SIGINT)\n"
    (package / "__init__.py").write_text(f"from clanging import part\n{sends}open('ended', 'w').close()\n")
    (package / "part.py").write_text(f"open('begun', 'w').close()\n{sends}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(import_hook, "LIBRARIES", {"clanging"})
    yield tmp_path
    for name in ("clanging", "clanging.part"):
        sys.modules.pop(name, None)


def test_a_library_is_imported_whole_before_a_signal_is_heard(library):
    hold_signals_in_imports()
    hold_signals_in_imports()
    with pytest.raises(KeyboardInterrupt):
        importlib.import_module("clanging")
    assert (library / "begun").exists() and (library / "ended").exists()


def test_no_garbage_is_collected_while_a_library_is_imported(library):
    (library / "clanging" / "__init__.py").write_text(
        "import gc\nfrom clanging.part import text\ncollects = gc.isenabled()\n"
    )
    (library / "clanging" / "part.py").write_text("text = 1\n")
    hold_signals_in_imports()
    assert gc.isenabled()
    assert not importlib.import_module("clanging").collects
    assert gc.isenabled()


def test_an_imported_module_looks_as_if_there_were_no_hook(library):
    (library / "clanging" / "__init__.py").write_text("from clanging.part import text\n")
    (library / "clanging" / "part.py").write_text("text = 1\n")
    hold_signals_in_imports()
    module = importlib.import_module("clanging")
    assert type(module.__spec__.loader) is type(module.__loader__) is type(signal.__spec__.loader)
    assert not isinstance(module.__loader__, import_hook._SignalHoldingLoader)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("ValueError('Invalid log settings: loud')", "clanging cannot be imported: Invalid log settings: loud"),
        # of torch, for an empty TORCH_LOGS
        (
            "AttributeError('no levels')",
            "clanging cannot be imported: no levels\n  python -c 'import clanging' shows where",
        ),
        ("MemoryError", "there is not enough memory"),
    ],
)
def test_what_a_library_says_of_its_environment_is_passed_on_in_a_line(library, fault, said):
    (library / "clanging" / "part.py").write_text(f"raise {fault}\n")
    hold_signals_in_imports()
    with pytest.raises(Failure, match=said):
        importlib.import_module("clanging")


def test_a_library_that_is_missing_is_an_import_error(library):
    (library / "clanging" / "part.py").write_text("import of_this_name_there_is_none\n")
    hold_signals_in_imports()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("clanging")


def test_without_the_hook_a_signal_breaks_in(library):
    with pytest.raises(KeyboardInterrupt):
        importlib.import_module("clanging")
    assert (library / "begun").exists() and not (library / "ended").exists()


def test_children_have_the_hook(tmp_path, monkeypatch):
    (tmp_path / "shows.py").write_text("import sys\nprint(type(sys.meta_path[0]).__module__)\n")
    monkeypatch.syspath_prepend(tmp_path)
    done = subprocess.run(**process_arguments("shows", ""), capture_output=True, text=True)
    assert done.stdout.strip() == import_hook.__name__, done.stderr
