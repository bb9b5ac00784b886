from __future__ import annotations

import contextlib
import fcntl
import io
import math
import os
import pty
import re
import struct
import termios
import time

import pytest

from experiments.display import progress as display
from experiments.display.progress import Display

METRICS = {
    "loss": 5.0,
    "perplexity": 148.4,
    "learning_rate": 2e-3,
    "tokens_per_second": 12345.6,
    "peak_memory_bytes": 812_345_678,
}


@pytest.fixture
def clock(monkeypatch):
    """A clock that only the test moves."""
    clock = type("Clock", (), {"now": 0.0})()
    monkeypatch.setattr(display.time, "monotonic", lambda: clock.now)
    return clock


def run(shown, clock, seconds):
    with shown:
        for done in range(0, 101, 10):
            shown.stage("tokenizing", done, 100)
        shown.start(1000, resumed_step=400)
        for step in range(410, 1001, 10):
            clock.now += seconds
            shown.update({"step": step, **METRICS, "loss": step / 100, "perplexity": math.exp(step / 100)})
            if step % 300 == 0:
                shown.evaluation(step, loss=4.0, perplexity=math.exp(4.0), bits_per_byte=2.345, unigram_loss=6.58)
        shown.message("[the end]")


def test_plain_lines_are_aligned_and_not_too_many(clock):
    stream = io.StringIO()
    run(Display(stream), clock, seconds=1.0)
    lines = stream.getvalue().splitlines()
    steps = [line for line in lines if "tok/s" in line]
    assert [line[:14].split("/")[0] for line in steps] == [f"step {step:>4}" for step in [*range(410, 1000, 50), 1000]]
    assert len({len(line) for line in steps}) == 1
    for unit in ("/1000", "tok/s", " MB", " left"):
        assert len({line.index(unit) for line in steps}) == 1
    assert "loss  4.1000  ppl   60.34  lr 2.0e-03     12,346 tok/s     812 MB" in steps[0]
    assert steps[0].endswith("59s left") and steps[-1].endswith(" 0s left")
    assert "step  600/1000  validation loss 4.0000  ppl 54.60  2.345 bits/byte  (unigram 6.58)" in lines
    assert lines[0] == "tokenizing: 0 of 100" and lines[1] == "tokenizing: 100 of 100"
    assert lines[-1] == "[the end]"


def test_plain_lines_without_an_end_and_without_numbers(clock):
    stream = io.StringIO()
    with Display(stream) as shown:
        shown.stage("reading", 5, None)
        shown.start(None)
        shown.update({"step": 7})
    assert stream.getvalue() == "reading: 5\nstep      7\n"


def test_a_terminal_gets_a_bar_and_its_cursor_back(clock, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    os.set_blocking(master, False)
    output = b""
    with os.fdopen(slave, "w") as stream:
        shown = Display(stream)
        with pytest.raises(KeyboardInterrupt), shown:
            shown.start(100)
            for step in range(10, 100, 10):
                clock.now += 1.0
                shown.update({"step": step, **METRICS})
                shown._live._live.refresh()
                with contextlib.suppress(BlockingIOError):
                    output += os.read(master, 100_000)
            shown.message("[a message]")
            raise KeyboardInterrupt
        # the kernel passes a terminal's output on in its own time
        for _ in range(1000):
            with contextlib.suppress(BlockingIOError):
                output += os.read(master, 100_000)
            if b"\x1b[?25h" in output:
                break
            time.sleep(0.01)
    os.close(master)
    text = output.decode()
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert "training 50/100" in plain and "5s left" in plain and "[a message]" in plain
    assert "loss 5.0000  ppl 148.4  lr 2.0e-03  12,346 tok/s  812 MB" in plain


def test_a_dumb_terminal_gets_plain_lines(clock, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as stream:
        run(Display(stream), clock, seconds=20.0)
        assert b"\x1b" not in os.read(master, 100_000)
    os.close(master)
