"""The section on the attention of each head: entropy, confidence, special tokens, positions, rare tokens."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from experiments.heads import figures
from experiments.heads.hooks import has_stages
from experiments.heads.measures.profile import profile_heads
from experiments.heads.options import HeadsOptions
from experiments.heads.parts import parts_of
from experiments.heads.section import Findings, Section, layer_head_matrix, over_parts
from experiments.heads.trained_run import TrainedRun

PANELS = {
    "entropy": "entropy (nats)",
    "confidence": "confidence (largest weight)",
    "special": "weight on special tokens",
    "rarest": "points to the rarest token (share of tokens)",
    "previous": "weight on the previous token",
    "next": "weight on the next token",
    "current": "weight on the token itself",
    "offset_share": "points to one fixed offset (share of tokens)",
}


def make(run: TrainedRun, options: HeadsOptions) -> Section | None:
    """The section; None without a softmax."""
    if not has_stages(run.model, "weights"):
        return None
    found = over_parts(run.model, lambda part: _profile(profile_heads(run, part)))
    rows = found.tables["heads"]
    counts = Counter(row["role"] for row in rows)
    listed = ", ".join(f"{count} {role}" for role, count in counts.most_common())
    positional = [
        f"{row.get('attention', '')} {row['layer']}-{row['head']} ({row['offset']:+d})".strip()
        for row in rows
        if row["role"] == "positional"
    ]
    bounds = ", ".join(
        f"ln {length} = {math.log(length):.2f} nats" + (f" ({part.name})" if part.name else "")
        for part in parts_of(run.model)
        for length in [max(inputs[part.memory].shape[1] for inputs in run.text_batches())]
    )
    text = (
        f"The {len(rows)} heads by their roles: {listed}. Entropy is at most {bounds}; confidence is the mean "
        "largest weight on a token that is not special; the others are shares of the weight, or of the tokens."
        + (f" Positional heads, layer-head (offset): {', '.join(positional)}." if positional else "")
    )
    return Section("What the heads look at", text, found.figures, found.tables)


def _profile(rows: list[dict[str, Any]]) -> Findings:
    panels = {title: layer_head_matrix(rows, name) for name, title in PANELS.items() if name in rows[0]}
    return Findings({"roles": figures.layer_head_heatmaps(panels)}, {"heads": rows})
