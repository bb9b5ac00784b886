"""Where a budget's settings differ from those of the budget `paper`: sizes, steps and the optimizer, as a condition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from experiments.record.dotted import value_at
from experiments.tables.definition.request import Request
from experiments.tables.definition.table import PAPER
from experiments.tables.sources.choose import source_of
from experiments.tables.sources.source import Source

SETTINGS = {
    "objective": "objective.kind",
    "mask rate": "objective.rate",
    "layers": "layers",
    "width": "hidden_size",
    "length": "length",
    "vocabulary": "tokenizer.vocabulary_size",
    "sequences in a step": "batch_size",
    "steps": "max_steps",
    "optimizer": "optimizer.kind",
    "schedule": "schedule.kind",
    "steps of warm-up": "schedule.warmup_steps",
}


def differences_from_paper(request: Request, source: Source) -> str:
    """Where a row's settings differ from those at the budget `paper`, such as `layers 4 (12), width 192 (768)`.

    The row is the first that both budgets have. Empty if there is none, or if the table trains nothing.
    """
    if request.budget_name == PAPER or PAPER not in request.table.budgets:
        return ""
    of_paper = replace(request, budget_name=PAPER, overrides=())
    for key in request.configurations:
        row = of_paper.configurations.get(key)
        if row and (here := source.trained(key)):
            there = source_of(of_paper, {key: row.definition}).trained(key)
            return _differences(here[0].model_dump(), there[0].model_dump())
    return ""


def _differences(here: dict[str, Any], there: dict[str, Any]) -> str:
    values = {name: (value_at(here, place), value_at(there, place)) for name, place in SETTINGS.items()}
    return ", ".join(
        f"{name} {_text(ours)} ({_text(theirs)})" for name, (ours, theirs) in values.items() if ours != theirs
    )


def _text(value: object) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
