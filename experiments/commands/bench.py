"""`attn bench`: variants, kernels, sizes and peers in interleaved rounds, each against its floor."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.display.rows import Row, show
from experiments.launch.plan import plan
from experiments.settings.exit_code import ExitCode
from experiments.settings.mistake import Mistake

if TYPE_CHECKING:
    from experiments.bench.contenders import Scope

CAPTIONS: dict[Scope, str] = {
    "attention": "the attention layer alone, forward and backward",
    "step": "whole training steps: forward, backward and optimizer",
}


@dataclass(frozen=True)
class BenchOptions:
    """The options of the command line, checked: raises Mistake."""

    scope: Scope
    peers: bool  # also what one would use instead
    compiled: bool  # each also by torch.compile
    rounds: int

    def __post_init__(self) -> None:
        if self.peers and self.scope != "step":
            raise Mistake("--peers compares whole models", "add --scope step")
        if self.rounds < 1:
            raise Mistake(f"--rounds {self.rounds}: must be at least 1")


def bench(overrides: list[str], options: BenchOptions, format: str, plot: Path | None) -> ExitCode:
    """Print a row for each contender, and draw them if `plot` names a file; the exit code. Raises Mistake."""
    if plot is not None:
        from experiments.bench.figure import check_plot

        check_plot(plot)
    cells = plan(overrides, ["-m"]).cells
    if options.peers and any(cell.objective.kind != "masked" for cell in cells):
        raise Mistake("--peers are encoders that predict masked tokens", "leave objective=masked as it is")
    from experiments.bench.side_by_side import compare, groups

    rows: list[Row] = []
    code = ExitCode.DONE
    for alike in groups(cells):
        of_group, left_out = compare(
            alike, options.scope, options.rounds, peers=options.peers, compiled=options.compiled
        )
        rows += of_group
        for each in left_out:
            code = ExitCode.FAILED if each.failed else code
            print(f"attn bench: {each.sentence}", file=sys.stderr)
    if not rows and not code:
        raise Mistake("there is nothing left to time")
    if rows:
        caption = f"{CAPTIONS[options.scope]}; medians of {options.rounds} interleaved rounds"
        show(rows, format, caption)
        if plot is not None:
            from experiments.bench.figure import draw

            draw(rows, caption, plot)
    return code
