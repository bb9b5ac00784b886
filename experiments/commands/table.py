"""`attn table`: lists the tables, or makes the missing cells of one and renders it."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from experiments.commands.frame.options import COSTS_OF_TABLES, TableOptions
from experiments.config.grid import LIMIT
from experiments.display.lines import warn
from experiments.display.rows import show
from experiments.failures.exit_code import ExitCode
from experiments.failures.failure import Mistake
from experiments.failures.missing_extra import check_installed
from experiments.failures.wording import did_you_mean, joined
from experiments.files.durable import check_writable, or_elsewhere
from experiments.processes.interruption import Interrupted
from experiments.record.errors import or_other_runs
from experiments.settings.group import SEEDS
from experiments.tables import costs, step_times
from experiments.tables.definition.inequality import Inequality, arithmetic
from experiments.tables.definition.published import Published, published_of
from experiments.tables.definition.request import Request, load
from experiments.tables.definition.table import Table
from experiments.tables.paper_differences import differences_from_paper
from experiments.tables.sources.choose import source_of
from experiments.tables.sources.idle_overrides import check_overrides_read
from experiments.tables.sources.source import Outcomes, Source
from experiments.tables.step_times import StepTimes

if TYPE_CHECKING:
    from experiments.tables.report import Report


@or_other_runs()
def show_table(name: str | None, overrides: Sequence[str], options: TableOptions) -> ExitCode:
    """List the tables, or make and print one; returns the exit code. Raises Mistake, DataError, RunFolderError."""
    progress = Console(stderr=True)
    if options.format == "latex" and (name is None or options.mode == "--dry-run"):
        raise Mistake("--format latex: a list is printed as table, markdown or csv")
    if name is None:
        with_costs = options.mode == COSTS_OF_TABLES
        if overrides and not with_costs:
            raise Mistake("which table?", "attn table PAPER/NAME; `attn table` lists all tables")
        rows, caption = costs.table_costs(overrides, options.runs, progress) if with_costs else costs.list_tables()
        show(rows, options.format, caption=caption)
        return ExitCode.DONE
    request = request_of(name, overrides, options)
    published = published_of(request)
    source = source_of(request)
    check_overrides_read(request, source, request.configurations)
    try:
        if options.mode not in ("--tune", "--render-only"):
            from experiments.tables.conditions import untuned_families

            for line in untuned_families(request):
                warn(line)
            source.check()
            check_sizes(request, source)
        match options:
            case TableOptions(mode="--dry-run"):
                rows, caption = costs.cell_costs(request, source, progress, options.workers)
                show(rows, options.format, caption=caption)
            case TableOptions(plan=int(count)):
                from experiments.tables.seed_plan import make_plan

                # without it, the verdict would fail after the training
                check_installed("tables", "--plan", "scipy")
                print(make_plan(request, source, count))
            case TableOptions(mode="--tune"):
                from experiments.tables.tuning import as_yaml, tune

                print(as_yaml(tune(request, progress, options.workers)), end="")
            case _:
                report = _make(request, source, published, options, progress)
                _show(report, options)
                if not report.is_complete and options.mode != "--render-only":
                    return ExitCode.SWEEP_FAILED
    except Interrupted as interrupted:
        warn(f"{interrupted}; the same command continues")
        return interrupted.exit_code
    return ExitCode.DONE


def request_of(name: str, overrides: Sequence[str], options: TableOptions) -> Request:
    """Read the name, overrides and options. Raises Mistake for a wrong table, budget or option."""
    table = load(name)
    budget = table.budget(options.budget)
    seeds = range(budget.seeds) if options.seeds is None else seeds_of(options.seeds)
    if options.out and os.path.lexists(options.out) and not options.out.is_dir():
        raise Mistake(f"--out {options.out}: is not a folder", "name a folder; it is made if it does not exist")
    if options.out:
        with or_elsewhere("choose another --out"):
            check_writable(options.out)
    check_claims(options.claims, name, table, options.budget)
    request = Request(
        name, table, options.budget, seeds, overrides, options.runs, options.published, options.seeds is not None,
        options.claims,
    )  # fmt: skip
    if options.mode == "--until-resolved" and request.is_untuned:
        raise Mistake(
            f"--until-resolved: the scores of {name} could decide no claim, because no learning rate was tuned",
            f"{request.tuning_command()} finds the rates",
        )
    if options.out:
        from experiments.tables.rendering.earlier_page import check_earlier_page

        check_earlier_page(request, options.out)
    if (count := len(request.configurations) * len(seeds)) > LIMIT:
        raise Mistake(f"{count:,} cells: a table has at most {LIMIT:,}", "give fewer --seeds")
    return request


def check_claims(chosen: Sequence[str], name: str, table: Table, budget: str) -> None:
    """Raises Mistake for a claim that the table does not make at a budget, and for one that is named twice."""
    known = table.claims_at(budget)
    for claim, count in Counter(chosen).items():
        if not known:
            raise Mistake(f"--claim {claim!r}: {name} makes no claim at the budget {budget}")
        if claim not in known:
            raise Mistake(
                f"--claim {claim!r}: {name} makes no such claim at the budget {budget}{did_you_mean(claim, known)}",
                f"its claims are {joined([*known])}",
            )
        if count > 1:
            raise Mistake(f"--claim {claim!r}: is given {count} times")
        if not known[claim].parts_at(table.rows_at(budget)):
            raise Mistake(
                f"--claim {claim!r}: the budget {budget} of {name} has the rows of none of its comparisons",
                "give a larger --budget",
            )


def check_sizes(request: Request, source: Source) -> None:
    """Raises Mistake for a size in a claim that its rows lack, or in which they do not differ as a trend needs."""
    sizes = {each.row: source.sizes(key) for key, each in request.configurations.items()}
    for claim in request.claims.values():
        for part in claim.parts_at(request.rows):
            part.contrast(sizes)
            if isinstance(part, Inequality) and part.relation == "=":
                arithmetic(part.right, sizes[part.rows[0]])


def seeds_of(text: str) -> range:
    """The seeds of `N`, which are 0 to N-1, or of `FIRST-LAST`, both included. Raises Mistake."""
    match = re.fullmatch(r"(\d{1,10})|(\d{1,10})-(\d{1,10})", text, re.ASCII)
    seeds = range(0)
    if match:
        count, first, last = match.groups()
        seeds = range(int(count)) if count else range(int(first), int(last) + 1)
    if not seeds:
        raise Mistake(f"--seeds {text}: must be a number of seeds, from 1 on, or FIRST-LAST, such as 24-47")
    if seeds[-1] >= SEEDS:
        raise Mistake(f"--seeds {text}: the last seed must be at most {SEEDS - 1}")
    return seeds


def _make(
    request: Request, source: Source, published: Published | None, options: TableOptions, progress: Console
) -> Report:
    """Make what is missing, unless only what is there is asked for, and report. Raises Interrupted."""
    from experiments.tables.report_of_cells import report_of_request
    from experiments.tables.until_resolved import until_resolved

    differences = differences_from_paper(request, source)
    recorded = step_times.recorded(request, source)

    def report(outcomes: Outcomes, times: StepTimes = recorded) -> Report:
        return report_of_request(request, source, outcomes, published, times, differences)

    if options.mode == "--render-only":
        return report(Outcomes(source))
    cells = source.cells(request.seeds)
    if options.mode == "--until-resolved":
        hours = float("inf") if options.hours is None else options.hours
        until_resolved(request, source, report, hours, options.workers, progress)
    else:
        source.make(cells, request.group, progress, options.workers)
    outcomes = Outcomes(source)
    if recorded.rounds < options.rounds and any(outcomes[cell].state == "done" for cell in cells):
        return report(outcomes, step_times.measure(request, source, progress, options.rounds))
    return report(outcomes)


def _show(report: Report, options: TableOptions) -> None:
    """Print the report, save it beside the runs, and write and mirror it if requested."""
    from experiments.tables.rendering.render import render, write_all
    from experiments.tables.rendering.saved import save

    text = render(report, options.format, Console() if options.format == "table" else None)
    print(text, end="", flush=True)
    save(report, options.runs)
    if options.out:
        with or_elsewhere("choose another --out"):
            written = write_all(report, options.out)
        warn("\n".join(map(str, written)))
    if options.wandb:
        from experiments.tables.rendering.wandb_report import mirror

        mirror(report, options.runs, warn)
