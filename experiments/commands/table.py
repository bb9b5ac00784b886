"""`attn table`: the tables there are; or one of them, made as far as it is missing, and rendered."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from experiments.config.compose import compose
from experiments.config.messages import CONF
from experiments.data.store import digest
from experiments.display.rows import show, time_text
from experiments.settings.mistake import ExitCode, Mistake
from experiments.tables.definition import BUDGETS, Table, budget_of, load, names
from experiments.tables.overrides import of_rows
from experiments.tables.sources.choose import source_of
from experiments.tables.sources.source import Cell, Prediction, Source
from experiments.training.interruption import Interrupted

if TYPE_CHECKING:
    from experiments.tables.report import Report


@dataclass(frozen=True)
class Options:
    """Of the command line; None where it says nothing."""

    budget: str = "nano"
    seeds: str | None = None
    dry_run: bool = False
    render_only: bool = False
    published: Path | None = None
    runs: Path = Path("runs")
    format: str = "table"
    out: Path | None = None
    wandb: bool = False


def show_table(name: str | None, words: list[str], options: Options) -> ExitCode:
    """Do what the words after `attn table` say; the exit code. Raises Mistake, DataError, RunFolderError."""
    if find_spec("scipy") is None:
        raise Mistake("attn table needs scipy", 'pip install -c constraints.txt -e ".[tables]"')
    if name is None:
        if options != Options(runs=options.runs, format=options.format):
            raise Mistake("which table?", "attn table PAPER/NAME; `attn table` alone lists what there is")
        list_tables(options)
        return ExitCode.DONE
    from experiments.tables import published
    from experiments.tables.report import Asked

    table = load(name)
    budget = budget_of(table, options.budget)
    seeds = range(budget.seeds) if options.seeds is None else seeds_of(options.seeds)
    if options.out and options.out.exists() and not options.out.is_dir():
        raise Mistake(f"--out {options.out}: is no folder", "name one; it is made where there is none")
    asked = Asked(name, table, options.budget, seeds, words, options.published)
    printed = None
    if table.published:
        printed = published.read(name, table.published.table, options.published)
        metric = budget.metric or table.published.metric
        printed.check([row.published for row in table.rows.values() if row.published], metric)
    elif options.published:
        raise Mistake(f"--published {options.published}: {name} has no published numbers")
    source = source_of(table.source, budget, words)
    cells = source.cells(of_rows(asked.rows, budget, words), asked.seeds, options.runs)
    if options.dry_run:
        print_cells(cells, source, options, list(budget.finetune))
        return ExitCode.DONE
    if not options.render_only:
        source.check(cells)
        try:
            source.make(cells, f"table-{name.replace('/', '-')}", Console(stderr=True))
        except Interrupted as interrupted:
            print(f"{interrupted}; the same command goes on from here", file=sys.stderr)
            return interrupted.exit_code
    from experiments.tables.report import report

    _put_out(report(asked, source, cells, printed), options)
    complete = all(source.finding(cell).state in ("done", "diverged") for cell in cells)
    return ExitCode.DONE if complete or options.render_only else ExitCode.SWEEP_FAILED


def seeds_of(text: str) -> range:
    """`N`: 0 to N-1; `FIRST-LAST`: both of them and what is between. Raises Mistake."""
    found = re.fullmatch(r"(\d+)|(\d+)-(\d+)", text, re.ASCII)
    seeds = range(0)
    if found:
        count, first, last = found.groups()
        seeds = range(int(count)) if count else range(int(first), int(last) + 1)
    if not seeds:
        raise Mistake(f"--seeds {text}: must be a number of seeds, from 1 on, or FIRST-LAST, such as 24-47")
    return seeds


def _put_out(made: Report, options: Options) -> None:
    from experiments.tables.render import render, write_all
    from experiments.tables.saved import keep

    console = Console()
    text = render(made, options.format, console if options.format == "table" else None)
    print(text, end="", flush=True)
    keep(made, options.runs)
    if options.out:
        for path in write_all(made, options.out):
            print(path, file=sys.stderr)
    if options.wandb:
        from experiments.tables.wandb_report import mirror

        mirror(made, options.runs, lambda line: print(line, file=sys.stderr))


def print_cells(cells: list[Cell], source: Source, options: Options, tasks: list[str]) -> None:
    """The cells, what each will cost before it is fine-tuned, and what is left to do."""
    says = Console(stderr=True)
    by_row: dict[str, Prediction] = {}
    rows, states = [], [source.finding(cell).state for cell in cells]
    for cell, state in zip(cells, states, strict=True):
        prediction = by_row.get(cell.row) or by_row.setdefault(cell.row, source.predict(cell, says))
        rows.append(
            {"cell": cell.name, "row": cell.row, "seed": cell.seed, "seconds": prediction.seconds,
             "tokens": prediction.tokens, "peak_memory_bytes": prediction.peak_memory_bytes,
             "state": state}
        )  # fmt: skip
    missing = [by_row[cell.row] for cell, state in zip(cells, states, strict=True) if state == "missing"]
    left = _left(missing)
    if tasks:
        # how many windows the examples are only they say
        to_tune = sum(state in ("missing", "pretrained") for state in states)
        left += f", and then, not counted here, fine-tuning of {to_tune} cells on {', '.join(tasks)}"
    show(rows, "table" if options.format == "latex" else options.format, caption=left)


def _left(missing: list[Prediction]) -> str:
    seconds = [prediction.seconds for prediction in missing if prediction.seconds is not None]
    tokens = sum(prediction.tokens or 0 for prediction in missing)
    unknown = "" if len(seconds) == len(missing) else f" and {len(missing) - len(seconds)} of unknown length"
    return f"missing: {len(missing)} cells, about {time_text(sum(seconds))}{unknown}, {tokens:,} tokens"


def list_tables(options: Options) -> None:
    """Every table at every budget: its cells, and what they will cost if each costs what the baseline does."""
    from experiments.tables.sources.calibration import remembered

    says, rows, settings = Console(stderr=True), [], compose([])
    # to compose them all takes half a minute
    texts = {str(path.relative_to(CONF)): path.read_text(encoding="utf-8") for path in sorted(CONF.rglob("*.yaml"))}
    key = ["list", digest(texts)]
    for name in names():
        table = load(name)
        line: dict[str, object] = {"table": name, "shows": table.shows}
        for budget_name in BUDGETS:
            line[budget_name] = None
            if budget_name in table.budgets:
                predict = partial(_roughly, table, budget_name, options, says)
                found = remembered(settings, [*key, name, budget_name], predict)
                line[budget_name] = _cost(table, budget_name, found and Prediction(*found))
        rows.append(line)
    caption = (
        "cells, time, memory and tokens on this machine, roughly: every cell as dear as its baseline, and a FLOP as "
        "one of a small model, fine-tuning (then ...) not counted; --dry-run measures each row"
    )
    show(rows, "table" if options.format == "latex" else options.format, caption=caption)


def _roughly(table: Table, budget_name: str, options: Options, says: Console) -> list[float | None] | None:
    """The prediction of a table's baseline; None without a time."""
    budget, rows = budget_of(table, budget_name), table.rows_at(budget_name)
    source = source_of(table.source, budget)
    words = of_rows({table.baseline: rows[table.baseline]}, budget, [])
    (cell,) = source.cells(words, [0], options.runs)
    found = source.predict(cell, says, roughly=True)
    return None if found.seconds is None else [found.seconds, found.tokens, found.peak_memory_bytes]


def _cost(table: Table, budget_name: str, prediction: Prediction | None) -> str:
    budget = budget_of(table, budget_name)
    count = len(table.rows_at(budget_name)) * budget.seeds
    if prediction is None or prediction.seconds is None:
        return f"{count} cells, unknown time"
    time = time_text(count * prediction.seconds)
    memory = f", {prediction.peak_memory_bytes / 1e9:.1f} GB" if prediction.peak_memory_bytes else ""
    tokens = f", {_short(count * prediction.tokens)} tokens" if prediction.tokens else ""
    tasks = f", then {', '.join(budget.finetune)}" if budget.finetune else ""
    return f"{count} cells, {time}{memory}{tokens}{tasks}"


def _short(count: int) -> str:
    for size, unit in ((10**12, "T"), (10**9, "G"), (10**6, "M")):
        if count >= size:
            return f"{count / size:.1f}{unit}"
    return f"{count:,}"
