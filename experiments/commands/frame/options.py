"""The options of commands that have several modes: their defaults, and which of them each mode reads.

`cli.py` imports this file for every command, so it imports nothing heavy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from experiments.failures.failure import Mistake
from experiments.failures.missing_extra import check_installed

if TYPE_CHECKING:
    from experiments.cells.resources import Workers
    from experiments.failures.unread import Modes

RUNS = Path("runs")  # of every command
AUTO: Literal["auto"] = "auto"  # workers

TableFormat = Literal["table", "markdown", "csv", "latex"]
BenchScope = Literal["attention", "step", "answer"]

_SHOWN = "--budget --claim --published --runs --format --out --wandb"
LIST_OF_TABLES, COSTS_OF_TABLES, TRAINING = "attn table without NAME", "--dry-run without NAME", "training"
TABLE: Modes = {
    LIST_OF_TABLES: "--format",
    COSTS_OF_TABLES: "--dry-run --runs --format",
    # it previews the same command without it
    "--dry-run": f"--seeds --workers --rounds {_SHOWN}",
    "--plan": "--budget --claim --seeds --runs",
    "--tune": "--budget --claim --seeds --workers --runs",
    "--render-only": f"--seeds {_SHOWN}",
    "--until-resolved": f"--hours --workers --rounds {_SHOWN}",
    TRAINING: f"--seeds --workers --rounds {_SHOWN}",
}
DASHBOARD: Modes = {
    "--wandb": "--runs --project",
    "the HTML file": "--runs --out --watch --open",
}
BENCH: Modes = {
    "--scope attention": "--scope --compile --rounds --format --plot",
    "--scope step": "--scope --peers --compile --rounds --format --plot",
    "--scope answer": "--scope --seeds --difference --workers --format",
}


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """The options of `attn table`."""

    mode: str = TRAINING  # of TABLE
    budget: str = "nano"
    claims: Sequence[str] = ()  # empty: all of the budget
    seeds: str | None = None  # None: those of the budget, and all that have begun
    plan: int | None = None  # number of seeds to plan; nothing else is then done
    hours: float | None = None  # None: without a limit
    workers: Workers = AUTO
    rounds: int = 12  # of the bench; an anytime-valid interval needs four, and is narrow from about ten on
    published: Path | None = None
    runs: Path = RUNS
    format: TableFormat = "table"
    out: Path | None = None
    wandb: bool = False


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """The options of `attn bench`. Raises Mistake for a number out of range, and for a library that is missing."""

    scope: BenchScope = "attention"
    peers: bool = False  # also what one would use instead
    compiled: bool = False  # each also by torch.compile
    rounds: int = 7
    seeds: int = 4  # of an answer
    difference: float = 0.02  # nats, that an answer is to resolve
    workers: Workers = AUTO

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise Mistake(f"--rounds {self.rounds}: must be at least 1")
        if self.seeds < 2:
            raise Mistake(f"--seeds {self.seeds}: must be at least 2, because one seed has no spread")
        if not 0 < self.difference < math.inf:
            raise Mistake(f"--difference {self.difference}: must be a number of nats above 0")
        if self.scope == "answer":
            check_installed("tables", "--scope answer", "scipy")
