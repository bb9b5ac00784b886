"""Settings of a cell, and a machine of four cores and two GPUs, on which cells of seed 0 train on a GPU."""

from __future__ import annotations

import tempfile
from collections.abc import Callable

import pytest

from experiments.cells import resources
from experiments.config.compose import compose
from experiments.measure import devices
from experiments.settings.run import Settings


@pytest.fixture
def cell(tiny, tmp_path) -> Callable[..., Settings]:
    """cell("trainer.threads=2", ...) -> Settings"""
    return lambda *words: compose([*tiny, f"runs={tmp_path / 'runs'}", *words])


@pytest.fixture
def four_cores(monkeypatch) -> None:
    monkeypatch.setattr(resources, "usable", lambda: [2, 3, 5, 7])


@pytest.fixture
def two_gpus(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for module in (resources, devices):
        monkeypatch.setattr(module, "on_gpu", lambda settings: settings.seed == 0)
    monkeypatch.setattr("experiments.measure.hardware.visible_gpus", lambda: ["4", "6"])
