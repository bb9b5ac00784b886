"""The bottleneck: the rank of the logits against key size and length."""

# N queries, M memory

from __future__ import annotations

import numpy as np

from experiments.heads import figures
from experiments.heads.hooks import has, read
from experiments.heads.measures import rank
from experiments.heads.options import HeadsOptions
from experiments.heads.section import Section
from experiments.heads.trained_run import TrainedRun

RANK_SEQUENCES = 8


def make(run: TrainedRun, options: HeadsOptions) -> Section | None:
    """The rank of the logits against key size and length; None without a softmax of logits."""
    if not has(run.model, "logits", "mixed_logits", "weights"):
        return None
    tokens = next(run.text())[:RANK_SEQUENCES]
    model = run.model.double()
    try:
        seen = read(model, tokens, "logits", "mixed_logits")
    finally:
        model.float()
    length = tokens.shape[1]
    needed = [rank for rank in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512) if rank <= length]
    rows, curves, dots = [], [], {stage: [] for stage in ("logits", "mixed_logits")}  # type: ignore[var-annotated]
    for layer, stages in enumerate(seen, 1):
        divergences = rank.divergence_at(stages["mixed_logits"], needed).mean(1)
        curves.append(divergences.mean(1).numpy())
        for stage, maps in stages.items():
            numerical, effective = rank.numerical_rank(maps).double().mean(0), rank.effective_rank(maps).mean(0)
            dots[stage].append(effective.numpy())
            rows += [
                {"layer": layer, "stage": stage, "head": head, "numerical_rank": n, "effective_rank": e}
                for head, (n, e) in enumerate(zip(numerical.tolist(), effective.tolist(), strict=True), 1)
            ]
    matched = [
        {"layer": layer, "rank": r, "divergence": float(value)}
        for layer, values in enumerate(curves, 1)
        for r, value in zip(needed, values, strict=True)
    ]
    sizes = run.model.layers[0].attention.sizes
    heads, key_size = sizes.key_heads, sizes.key_size
    before, after = (
        np.mean([row["numerical_rank"] for row in rows if row["stage"] == stage])
        for stage in ("logits", "mixed_logits")
    )
    text = (
        f"A head's logits QK^T are an N x N matrix of rank at most d_k = {key_size}; mixed over {heads} heads it can "
        f"reach h d_k = {heads * key_size}, or N = {length}. Numerical rank before mixing {before:.1f}, after it "
        f"{after:.1f}, of {length}. The second picture: the weights of logits cut down to each rank, against the true "
        "ones."
    )
    lines = {f"d_k = {key_size}": key_size, f"N = {length}": length}
    if heads * key_size < length:
        lines[f"h d_k = {heads * key_size}"] = heads * key_size
    pictures = {
        "rank": figures.ranks(dots["logits"], dots["mixed_logits"], lines),
        "matching": figures.matching(needed, curves, key_size),
    }
    return Section("The bottleneck", text, pictures, {"rank": rows, "matching": matched})
