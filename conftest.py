"""What is shared by tests and campaigns: the environment that torch begins with, and the fixtures of several rooms."""

from __future__ import annotations

import os
import signal

import pytest

# two processes test at once, and sums have the same order on every machine; before torch is imported
os.environ["OMP_NUM_THREADS"] = "1"

pytest_plugins = [
    "tests.fixtures.bench",
    "tests.fixtures.browser",
    "tests.fixtures.campaign",
    "tests.fixtures.command",
    "tests.fixtures.composing",
    "tests.fixtures.disk",
    "tests.fixtures.figures",
    "tests.fixtures.finetuning",
    "tests.fixtures.head_by_head",
    "tests.fixtures.kernel",
    "tests.fixtures.permissions",
    "tests.fixtures.plugins",
    "tests.fixtures.processor_time",
    "tests.fixtures.record",
    "tests.fixtures.tables",
    "tests.fixtures.tiny",
]


@pytest.fixture(scope="session", autouse=True)
def signals_are_heard() -> None:
    """Let tests and their processes be interrupted, also if pytest runs in the background of a shell or under nohup."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
