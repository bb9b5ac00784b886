"""Heads behind gates: which heads stay open when open heads cost something."""

from __future__ import annotations

from dataclasses import replace

from experiments.heads import figures
from experiments.heads.hooks import value_heads
from experiments.heads.measures import importance, l0_gates, pruning
from experiments.heads.options import HeadsOptions
from experiments.heads.section import Section, by_layer
from experiments.heads.trained_run import TrainedRun


def make(run: TrainedRun, options: HeadsOptions) -> Section | None:
    """Which heads fine-tuning with L0 gates leaves open; None unless asked for."""
    if options.gates is None:
        return None
    batches = list(run.masked())
    model, opened = l0_gates.finetune_with_gates(run, options.gates, options.penalty)
    closed = [
        (layer, head) for layer, each in enumerate(opened) for head, gate in enumerate(each.tolist()) if gate == 0
    ]
    total = sum(value_heads(model))
    before = pruning.loss_without(run.model, batches, [])
    after = pruning.loss_with(model, batches, opened)
    importances = importance.per_layer(importance.by_gradient(run.model, batches))
    same = pruning.loss_without(run.model, batches, pruning.order(importances)[: len(closed)])
    rows = [
        {"layer": layer, "head": head, "gate": gate}
        for layer, each in enumerate(opened, 1)
        for head, gate in enumerate(each.tolist(), 1)
    ]
    text = (
        f"Hard-concrete gates on the heads' outputs, {options.gates} steps of fine-tuning at {options.penalty} "
        f"nats a head (Voita et al.): {total - len(closed)} of {total} stay open. The loss is {after:.3f} nats, "
        f"{before:.3f} before; removing as many by gradient, without fine-tuning, gives {same:.3f}."
    )
    drawn = figures.by_layer_and_head({"gate: 0 for a head that is closed": by_layer(rows, "gate")}, columns=1)
    l0_gates.fold(model, opened)
    tuned = {"gated": (replace(run, model=model), closed)}
    return Section("Heads behind gates", text, {"gates": drawn}, {"gates": rows}, models=tuned)
