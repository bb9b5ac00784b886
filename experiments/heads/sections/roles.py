"""The section on the attention of each head: entropy, confidence, special tokens, positions, rare tokens."""

from __future__ import annotations

import math
from collections import Counter

from experiments.heads import figures
from experiments.heads.hooks import has_stages
from experiments.heads.measures.profile import profile_heads
from experiments.heads.options import HeadsOptions
from experiments.heads.section import Section, layer_head_matrix
from experiments.heads.trained_run import TrainedRun


def make(run: TrainedRun, options: HeadsOptions) -> Section | None:
    """The section; None without a softmax."""
    if not has_stages(run.model, "weights"):
        return None
    rows, lengths = profile_heads(run)
    titles = {
        "entropy": "entropy (nats)",
        "confidence": "confidence (largest weight)",
        "special": "weight on special tokens",
        "rarest": "points to the rarest token (share of tokens)",
        "previous": "weight on the previous token",
        "next": "weight on the next token",
        "current": "weight on the token itself",
        "offset_share": "points to one fixed offset (share of tokens)",
    }
    figures_by_name = {}
    for part in lengths:
        of_part = part.rows_of(rows)
        panels = {title: layer_head_matrix(of_part, name) for name, title in titles.items() if name in of_part[0]}
        figures_by_name[part.of("roles")] = figures.titled(figures.layer_head_heatmaps(panels), part.title)
    counts = Counter(row["role"] for row in rows)
    listed = ", ".join(f"{count} {role}" for role, count in counts.most_common())
    positional = [
        f"{row.get('attention', '')} {row['layer']}-{row['head']} ({row['offset']:+d})".strip()
        for row in rows
        if row["role"] == "positional"
    ]
    bounds = ", ".join(
        f"ln {length} = {math.log(length):.2f} nats" + (f" ({part.name})" if part.name else "")
        for part, length in lengths.items()
    )
    text = (
        f"The {len(rows)} heads by their roles: {listed}. Entropy is at most {bounds}; confidence is the mean "
        "largest weight on a token that is not special; the others are shares of the weight, or of the tokens."
        + (f" Positional heads, layer-head (offset): {', '.join(positional)}." if positional else "")
    )
    return Section("What the heads look at", text, figures_by_name, {"heads": rows})
