"""`attn` within this process, cells and all: the same code without a new interpreter for every cell."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from contextlib import redirect_stdout

import pytest
from typer.testing import CliRunner, Result

Table = Callable[..., Result]


@pytest.fixture
def short(tiny) -> list[str]:
    # 32 heads need a width of 32 times 2
    return [*(word for word in tiny if not word.startswith("hidden_size")), "hidden_size=64", "logger.wandb=off"]


@pytest.fixture
def here(environment, tmp_path, monkeypatch) -> Table:
    """here(*words): `attn` of these words in an empty folder; exit_code, stdout and stderr."""
    import cli
    from experiments.run import execute
    from experiments.sweep import here, runner

    def run_cell(settings, watch=None):
        folder = runner.folder_of(settings)
        try:
            with redirect_stdout(io.StringIO()):
                return runner._outcome(folder, execute(settings), "")
        except ValueError as error:
            return runner.Outcome(folder, None, str(error))

    for module in (here, runner):
        monkeypatch.setattr(module, "run_cell", run_cell)
    monkeypatch.chdir(tmp_path)
    for key in os.environ:
        if key.startswith("WANDB"):
            monkeypatch.delenv(key)
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    return lambda *words: CliRunner().invoke(cli.app, [*words])
