"""The section on heads that start equal: whether they stay equal."""

from __future__ import annotations

from experiments.heads import figures
from experiments.heads.measures import equal_start
from experiments.heads.options import HeadsOptions
from experiments.heads.section import Section
from experiments.heads.trained_run import TrainedRun


def make(run: TrainedRun, options: HeadsOptions) -> Section | None:
    """The section; None unless the user asks for it."""
    if options.equal is None:
        return None
    spreads_by_start = equal_start.spreads_by_start(run, options.equal)
    rows = [
        {"start": start, "step": step, "spread": value}
        for start, values in spreads_by_start.items()
        for step, value in enumerate(values)
    ]
    text = (
        "A model of the run's sizes is trained anew, in float64. The spread is the largest difference between the "
        f"outputs of two heads of a layer, relative to the largest output. {equal_start.conclusion(spreads_by_start)}"
    )
    return Section("Heads that start equal", text, {"equal": figures.spread_curves(spreads_by_start)}, {"equal": rows})
