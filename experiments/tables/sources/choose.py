"""Which source a table has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.settings.mistake import Mistake, nearest
from experiments.tables.definition import Budget
from experiments.tables.sources.computed import Computed
from experiments.tables.sources.finetuned_runs import FinetunedRuns
from experiments.tables.sources.runs import Runs
from experiments.tables.sources.source import Source

NUMERICAL = Path(__file__).parents[1] / "numerical"


def source_of(name: str, budget: Budget | None = None, given: Sequence[str] = ()) -> Source:
    """`runs`, fine-tuned where the budget does so, or the function of a file in `numerical/`. Raises Mistake."""
    if budget and budget.finetune:
        return FinetunedRuns(budget, given)
    if name == "runs":
        return Runs()
    known = sorted(path.stem for path in NUMERICAL.glob("*.py") if path.stem != "__init__")
    if name not in known:
        raise Mistake(f"there is no source {name!r}" + nearest(name, ["runs", *known]), f"runs, {', '.join(known)}")
    return Computed(name)
