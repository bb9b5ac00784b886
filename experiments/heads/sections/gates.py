"""The section on gated heads: which heads stay open if open heads have a cost."""

from __future__ import annotations

from dataclasses import replace

from experiments.heads import figures
from experiments.heads.hooks import heads_have_biases, value_heads
from experiments.heads.measures import importance, l0_gates, pruning
from experiments.heads.options import HeadsOptions
from experiments.heads.section import Section, layer_head_matrix
from experiments.heads.trained_run import TrainedRun

KEPT = (
    "The model in heads/gated still has the closed heads, with columns of 0 in the output map. Its positions have a "
    "bias for every head of the softmax, so no head can be removed."
)


def make(run: TrainedRun, options: HeadsOptions) -> Section | None:
    """The section; None unless the user asks for it."""
    if options.gates is None:
        return None
    batches = list(run.masked_batches())
    model, gates = l0_gates.finetune_with_gates(run, options.gates, options.penalty)
    rows = [
        {"layer": layer, "head": head, "gate": gate}
        for layer, of_layer in enumerate(gates, 1)
        for head, gate in enumerate(of_layer.tolist(), 1)
    ]
    closed = [(row["layer"] - 1, row["head"] - 1) for row in rows if row["gate"] == 0]
    removed = [] if heads_have_biases(model) else closed
    total = sum(value_heads(model))
    loss_before = pruning.loss_without_heads(run.model, batches, [])
    loss_after = pruning.loss_with_gates(model, batches, gates)
    importances = importance.normalized_by_layer(importance.of_run_by_gradient(run))
    pruned_loss = pruning.loss_without_heads(run.model, batches, pruning.removal_order(importances)[: len(closed)])
    text = (
        f"The model was fine-tuned for {options.gates} steps with hard-concrete gates on its heads' outputs, at a "
        f"penalty of {options.penalty} nats for each open head (Voita et al.). {total - len(closed)} of {total} heads "
        f"stay open. The loss is {loss_after:.3f} nats, and was {loss_before:.3f} before."
        + (
            f" Without as many heads, removed by gradient and without fine-tuning, it is {pruned_loss:.3f}."
            if closed
            else ""
        )
        + ("" if removed == closed else f" {KEPT}")
    )
    picture = figures.layer_head_heatmaps(
        {"gate: 0 for a head that is closed": layer_head_matrix(rows, "gate")}, columns=1
    )
    l0_gates.fold_gates(model, gates)
    models = {"gated": (replace(run, model=model), removed)}
    return Section("Heads behind gates", text, {"gates": picture}, {"gates": rows}, models=models)
