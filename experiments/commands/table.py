"""`attn table`: the tables there are; or one of them, made as far as it is missing, and rendered."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from experiments.config.grid import LIMIT
from experiments.display.rows import show
from experiments.settings.exit_code import ExitCode
from experiments.settings.mistake import Mistake
from experiments.tables import costs
from experiments.tables.definition.published import published_of
from experiments.tables.definition.request import Request, load
from experiments.tables.sources.choose import source_of
from experiments.training.interruption import Interrupted

if TYPE_CHECKING:
    from experiments.tables.report import Report


@dataclass(frozen=True)
class TableOptions:
    """The options of the command line; None where it says nothing."""

    budget: str = "nano"
    seeds: str | None = None
    dry_run: bool = False
    render_only: bool = False
    published: Path | None = None
    runs: Path = Path("runs")
    format: str = "table"
    out: Path | None = None
    wandb: bool = False


def show_table(name: str | None, overrides: Sequence[str], options: TableOptions) -> ExitCode:
    """List the tables, or make one and print it; the exit code. Raises Mistake, DataError, RunFolderError."""
    if find_spec("scipy") is None:
        raise Mistake("attn table needs scipy", 'pip install -c constraints.txt -e ".[tables]"')
    from experiments.tables.report import report

    progress = Console(stderr=True)
    listed_format = "table" if options.format == "latex" else options.format
    if name is None:
        if options != TableOptions(runs=options.runs, format=options.format):
            raise Mistake("which table?", "attn table PAPER/NAME; `attn table` alone lists what there is")
        rows, caption = costs.table_costs(options.runs, progress)
        show(rows, listed_format, caption=caption)
        return ExitCode.DONE
    request = request_of(name, overrides, options)
    published = published_of(request)
    source = source_of(request)
    if options.dry_run:
        rows, left = costs.cell_costs(source, list(request.budget.finetune), progress)
        show(rows, listed_format, caption=left)
        return ExitCode.DONE
    if not options.render_only:
        source.check()
        try:
            source.make(source.cells, request.group, progress)
        except Interrupted as interrupted:
            print(f"{interrupted}; the same command goes on from here", file=sys.stderr)
            return interrupted.exit_code
    made = report(request, source, published)
    _put_out(made, options)
    return ExitCode.DONE if made.is_complete or options.render_only else ExitCode.SWEEP_FAILED


def request_of(name: str, overrides: Sequence[str], options: TableOptions) -> Request:
    """Read the name, overrides and options. Raises Mistake for a table, budget or option that is wrong."""
    table = load(name)
    budget = table.budget(options.budget)
    seeds = range(budget.seeds) if options.seeds is None else seeds_of(options.seeds)
    if (count := len(table.rows_at(options.budget)) * len(seeds)) > LIMIT:
        raise Mistake(f"{count:,} cells: a table has at most {LIMIT:,}", "give fewer --seeds")
    if options.out and options.out.exists() and not options.out.is_dir():
        raise Mistake(f"--out {options.out}: is no folder", "name one; it is made where there is none")
    return Request(name, table, options.budget, seeds, overrides, options.runs, options.published)


def seeds_of(text: str) -> range:
    """`N`: 0 to N-1; `FIRST-LAST`: both of them and what is between. Raises Mistake."""
    match = re.fullmatch(r"(\d{1,10})|(\d{1,10})-(\d{1,10})", text, re.ASCII)
    seeds = range(0)
    if match:
        count, first, last = match.groups()
        seeds = range(int(count)) if count else range(int(first), int(last) + 1)
    if not seeds:
        raise Mistake(f"--seeds {text}: must be a number of seeds, from 1 on, or FIRST-LAST, such as 24-47")
    return seeds


def _put_out(report: Report, options: TableOptions) -> None:
    from experiments.tables.rendering.render import render, write_all
    from experiments.tables.rendering.saved import save

    text = render(report, options.format, Console() if options.format == "table" else None)
    print(text, end="", flush=True)
    save(report, options.runs)
    if options.out:
        for path in write_all(report, options.out):
            print(path, file=sys.stderr)
    if options.wandb:
        from experiments.tables.rendering.wandb_report import mirror

        mirror(report, options.runs, lambda line: print(line, file=sys.stderr))
