"""The costs of tables before anything is trained: the cells of one table, and a list of all tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from experiments.cells.resources import Workers
from experiments.config.compose import compose
from experiments.config.hydra_messages import near_key
from experiments.config.primary import PRETRAINING
from experiments.display.lines import say, warn
from experiments.display.numbers import rough_duration
from experiments.display.rows import Row
from experiments.failures.failure import Mistake
from experiments.failures.wording import first_line
from experiments.files.digest import digest, file_digest
from experiments.settings.conf_files import yaml_files
from experiments.tables.definition.folder import names
from experiments.tables.definition.overrides import by_stage, key_of, parse
from experiments.tables.definition.request import Request, load
from experiments.tables.definition.table import BUDGETS, Table
from experiments.tables.sources.choose import source_of
from experiments.tables.sources.idle_overrides import check_overrides_read
from experiments.tables.sources.source import TO_MAKE, TO_TRAIN, Prediction, Source
from experiments.tables.sources.step_clock import StepClock


def cell_costs(request: Request, source: Source, console: Console, workers: Workers = "auto") -> tuple[list[Row], str]:
    """A row with the predicted cost of every cell, and a sentence about the cells that are missing, of which `workers`
    are made at once.

    The time of fine-tunings is not predicted. Raises Mistake if there is no room for so many workers.
    """
    states = {cell: source.outcome(cell).state for cell in source.cells(request.seeds)}
    missing = [cell for cell, state in states.items() if state in TO_TRAIN]
    at_once = source.at_once(missing, workers) if missing else 1
    by_row: dict[str, Prediction] = {}
    rows: list[Row] = []
    first = source.cells(request.seeds[:1])
    with StepClock(console) as clock:
        for number, cell in enumerate(first, start=1):
            say(console, f"cost of {cell.row}, {number} of {len(first)} rows")
            by_row[cell.row] = source.predict(cell, clock)
    for cell, state in states.items():
        prediction = by_row[cell.row]
        rows.append(
            {"cell": cell.name, "row": cell.row, "seed": cell.seed, "seconds": prediction.seconds,
             "tokens": prediction.tokens, "peak_memory_bytes": prediction.peak_memory_bytes,
             "state": state}
        )  # fmt: skip
    left = _remaining_text([by_row[cell.row] for cell in missing], at_once)
    if finetunings := request.budget.finetune:
        # the number of windows is known only from the examples
        to_finetune = sum(state in TO_MAKE for state in states.values())
        left += f", and then fine-tuning of {to_finetune} cells on {', '.join(finetunings)}, which is not counted here"
    return rows, left


def list_tables() -> tuple[list[Row], str]:
    """A row for every table with its number of cells at each budget, and a caption; nothing is composed or measured."""
    rows: list[Row] = []
    for name, table in _tables():
        counts: dict[str, int] = {budget: Request(name, table, budget, range(1)).cell_count for budget in table.budgets}
        rows.append({"table": name, "shows": table.shows} | {budget: counts.get(budget) for budget in BUDGETS})
    return rows, (
        "The numbers count the cells (runs) at each budget. attn table --dry-run estimates their cost on this machine."
    )


def table_costs(overrides: Sequence[str], runs: Path, console: Console) -> tuple[list[Row], str]:
    """A row for every table with its cost at each budget, and a caption.

    Every cell is assumed to cost what the baseline costs. A table for which the overrides are wrong has the reason in
    place of its cost. Raises Mistake if they are wrong for every table.
    """
    from experiments.tables.sources.calibration import remembered

    tables = dict(_tables())
    _check_keys(overrides, tables.values())
    settings, rows = compose([]), []
    mistakes: list[Mistake] = []
    fitting = 0
    # composing all of them takes half a minute, so the costs are kept
    key = ["list", digest([*overrides, *(file_digest(path) for path in yaml_files("**/*.yaml"))])]
    with StepClock(console) as clock:
        for number, (name, table) in enumerate(tables.items(), start=1):
            say(console, f"costs of {name}, {number} of {len(tables)}")
            row: Row = {"table": name, "shows": table.shows} | dict.fromkeys(BUDGETS)
            for budget in filter(table.budgets.__contains__, BUDGETS):
                request = Request(name, table, budget, range(1), overrides, runs)
                try:
                    cost = remembered(settings, [*key, name, budget], partial(_baseline_cost, request, clock))
                except Mistake as mistake:
                    mistakes.append(mistake)
                    row[budget] = first_line(mistake)
                    continue
                fitting += 1
                row[budget] = _cost_text(request, Prediction(*(cost or [None])))
            rows.append(row)
    if mistakes and not fitting:
        raise mistakes[0]
    caption = (
        "These are rough estimates for this machine and one cell at a time: every cell is assumed to cost what the "
        "baseline costs, and every FLOP what it costs in a small model. Fine-tuning (then ...) is not counted. attn "
        "table NAME --dry-run times a few steps of each row, and counts the cells that train side by side."
    )
    return rows, caption


def _check_keys(overrides: Sequence[str], tables: Collection[Table]) -> None:
    """Raises Mistake for a key that no table takes, which composing all of them would find much later."""
    of_pretraining, _ = by_stage(overrides)
    known = PRETRAINING.known_keys()
    unknown = [key for key in map(key_of, of_pretraining) if key not in known and not PRETRAINING.is_of_a_group(key)]
    if unknown:
        # those of functions are named in the tables' files only
        texts = [row.overrides for table in tables for row in table.rows.values()]
        texts += [budget.overrides for table in tables for budget in table.budgets.values()]
        arguments = {key_of(override) for text in texts for override in parse(text)}
        for key in unknown:
            if key not in arguments:
                raise Mistake(f"there is no setting {key!r}", near_key(key))


def _tables() -> Iterator[tuple[str, Table]]:
    """Every table by its name, without those whose file is wrong, each of which is a line on stderr."""
    for name in names():
        try:
            yield name, load(name)
        except Mistake as mistake:
            warn(f"left out: {mistake}")


def _baseline_cost(request: Request, clock: StepClock) -> list[float | None] | None:
    """The prediction for the baseline's first cell, ready for JSON; None if its time is unknown.

    Raises Mistake for overrides that are wrong for the table.
    """
    baseline = request.table.baseline
    source = source_of(request, {baseline: request.rows[baseline]})
    try:
        check_overrides_read(request, source, [baseline])
    except Mistake:
        # another row may read them, and composing all rows takes time
        check_overrides_read(request, source_of(request), request.configurations)
    prediction = source.predict(source.cells(request.seeds)[0], clock, roughly=True)
    if prediction.seconds is None:
        return None
    return [prediction.seconds, prediction.tokens, prediction.peak_memory_bytes]


def _cost_text(request: Request, prediction: Prediction) -> str:
    """The cost of all cells of a budget."""
    budget = request.budget
    count = request.cell_count
    if prediction.seconds is None:
        return f"{count} cells, unknown time"
    time = rough_duration(count * prediction.seconds)
    memory = f", {prediction.peak_memory_bytes / 1e9:.1f} GB" if prediction.peak_memory_bytes else ""
    tokens = f", {_short_count(count * prediction.tokens)} tokens" if prediction.tokens else ""
    finetunings = f", then {', '.join(budget.finetune)}" if budget.finetune else ""
    return f"{count} cells, {time}{memory}{tokens}{finetunings}"


def _remaining_text(missing: Sequence[Prediction], at_once: int) -> str:
    seconds = [prediction.seconds for prediction in missing if prediction.seconds is not None]
    lasts = max(sum(seconds) / at_once, max(seconds, default=0.0))
    tokens = sum(prediction.tokens or 0 for prediction in missing)
    unknown = "" if len(seconds) == len(missing) else f" and {len(missing) - len(seconds)} of unknown length"
    said_tokens = f", {tokens:,} tokens" if tokens else ""
    side_by_side = f", {at_once} cells at once" if at_once > 1 else ""
    return f"missing: {len(missing)} cells, about {rough_duration(lasts)}{unknown}{side_by_side}{said_tokens}"


def _short_count(count: int) -> str:
    for size, unit in ((10**12, "T"), (10**9, "G"), (10**6, "M")):
        if count >= size:
            return f"{count / size:.1f}{unit}"
    return f"{count:,}"
