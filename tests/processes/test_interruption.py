from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path

import pytest

from experiments.processes.interruption import SIGNALS, Interrupted, Interruption, discard_output
from tests.fixtures.command import ROOT
from tests.fixtures.terminal import code_without_terminal


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_at_once_or_when_asked(number, code):
    with Interruption(), pytest.raises(Interrupted) as immediate:
        signal.raise_signal(number)
    assert immediate.value.exit_code == code and number.name in immediate.value.reason
    with Interruption() as interruption, interruption.deferred():
        signal.raise_signal(number)
        assert interruption.pending
        with pytest.raises(Interrupted):
            interruption.check()


def test_a_second_ctrl_c_does_not_wait():
    with Interruption() as interruption, interruption.deferred():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("earlier", [[], [signal.SIGINT]])
def test_sigterm_that_comes_twice_waits_and_is_raised_once(earlier):
    """as in a job of a cluster, where it comes from the cluster and from the parent"""
    with Interruption() as interruption:
        with interruption.deferred():
            for number in [*earlier, signal.SIGTERM, signal.SIGTERM]:
                signal.raise_signal(number)
            saved = interruption.pending
        with pytest.raises(Interrupted):
            interruption.check()
        signal.raise_signal(signal.SIGTERM)
    assert saved


def test_sigterm_does_not_break_off_what_another_one_has_begun():
    with Interruption():
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_during_a_callback_whose_errors_python_drops_comes_again(number, capsys):
    class Node:
        pass

    node = Node()
    reference = weakref.ref(node, lambda _: signal.raise_signal(number))
    with Interruption(), pytest.raises(Interrupted) as interrupted:
        del node
        assert reference() is None
        time.sleep(60)
    assert interrupted.value.number == number
    assert not capsys.readouterr().err


def test_other_errors_that_python_drops_are_reported_as_before(monkeypatch):
    class Broken:
        def __del__(self):
            raise ValueError("broken")

    reported = []
    monkeypatch.setattr("sys.unraisablehook", reported.append)
    with Interruption():
        Broken()
    assert [str(each.exc_value) for each in reported] == ["broken"]


def test_an_error_that_a_library_makes_of_a_signal_is_that_signal():
    with pytest.raises(Interrupted) as caught, Interruption():
        with suppress(Interrupted):
            signal.raise_signal(signal.SIGTERM)
        raise ValueError("a schema that cannot be built")
    assert caught.value.exit_code == 143 and isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(ValueError, match="of its own"), Interruption():
        raise ValueError("of its own")


def test_nothing_came():
    with Interruption() as interruption, interruption.deferred():
        assert not interruption.pending
        interruption.check()


WRITER = """
import sys
from experiments.commands.frame.ending import outlive_terminal
from experiments.processes.interruption import Interrupted, Interruption
outlive_terminal()
with Interruption() as interruption:
    try:
        with interruption.deferred():
            while not interruption.pending:
                print("step", flush=True)
                print("step", file=sys.stderr, flush=True)
        interruption.check()
    except Interrupted as end:
        print(end.reason)
        open(sys.argv[1], "w").write(end.reason)
        sys.exit(end.exit_code)
"""


def test_a_terminal_that_is_closed_breaks_off_nothing(tmp_path):
    assert code_without_terminal(WRITER, str(tmp_path / "saved")) == 129
    assert (tmp_path / "saved").read_text() == "interrupted by SIGHUP"


def test_a_pipe_whose_reader_ended_is_a_terminal_that_is_closed(tmp_path):
    """as in `attn train 2>&1 | head`"""
    command = [sys.executable, "-c", WRITER, str(tmp_path / "saved")]
    for ignoring, code in ([], 129), (["nohup"], None):
        process = subprocess.Popen(
            [*ignoring, *command], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        process.stderr.readline()
        process.stderr.close()
        if code is None:
            # what ignores SIGHUP goes on
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1)
            process.terminate()
        assert process.wait(60) == (code or 143)
        assert (tmp_path / "saved").read_text() == f"interrupted by {'SIGHUP' if code else 'SIGTERM'}"


def test_output_is_discarded_without_another_open_file(tmp_path):
    path = tmp_path / "output"
    with path.open("wb") as output:
        before = [*Path("/dev/fd").iterdir()]
        discard_output(output.fileno())
        assert [*Path("/dev/fd").iterdir()] == before
        output.write(b"lost")
    assert path.read_bytes() == b""


@pytest.mark.parametrize("number", SIGNALS)
def test_what_is_ignored_stays_ignored(number):
    """as SIGHUP under nohup, and SIGINT in the background of a script"""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with Interruption():
            signal.raise_signal(number)
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_handlers_are_put_back():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Interruption():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_another_thread_leaves_them_alone():
    before, seen = signal.getsignal(signal.SIGINT), []

    def work():
        with Interruption():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]
