"""The choice of a table's source."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from importlib import import_module

from experiments.failures.failure import Mistake
from experiments.failures.wording import did_you_mean
from experiments.tables.definition.overrides import row_overrides
from experiments.tables.definition.request import Request
from experiments.tables.definition.table import TableRow
from experiments.tables.sources.computed import Computed
from experiments.tables.sources.finetuned_runs import FinetunedRuns
from experiments.tables.sources.measured_runs import MeasuredRuns
from experiments.tables.sources.runs import Runs
from experiments.tables.sources.source import Source


def source_of(request: Request, rows: Mapping[str, TableRow] | None = None) -> Source:
    """The source of a request's rows: runs, fine-tuned if the budget does so, or a function of a file.

    A file of `measured/` measures the trained models of runs. A file of `numerical/` trains nothing.

    rows: some of the request's rows; None for all. Raises Mistake for a source that does not exist, and for overrides
    that it does not take.
    """
    budget, name = request.budget, request.table.source
    definitions = {key: configuration.definition for key, configuration in request.configurations.items()}
    overrides = row_overrides(definitions if rows is None else rows, budget, request.overrides)
    if name == "runs":
        runs = Runs(overrides, request.runs)
        return FinetunedRuns(runs, budget, request.overrides) if budget.finetune else runs
    if name in _files("measured"):
        return MeasuredRuns(name, overrides, request.runs)
    if name in _files("numerical"):
        return Computed(name, overrides, request.runs)
    known = ["runs", *_files("measured"), *_files("numerical")]
    raise Mistake(f"there is no source {name!r}" + did_you_mean(name, known), ", ".join(known))


def _files(kind: str) -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(import_module(f"experiments.tables.{kind}").__path__))
