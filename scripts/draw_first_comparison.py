"""Draw the README's picture from the table "What the recipe reaches" of docs/recipe.md.

python scripts/draw_first_comparison.py [docs/first_comparison.svg]
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from experiments.statistics.evidence import Anytime, interval

ROOT = Path(__file__).resolve().parents[1]
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#8894a0"
# label -> variant and heads of a row of the table
ROWS = {
    "6 heads": ("multi-head", 6),
    "24 heads": ("multi-head", 24),
    "24 talking heads": ("talking heads, random start", 24),
}
PAIRS = [("24 heads", "6 heads"), ("24 talking heads", "24 heads"), ("24 talking heads", "6 heads")]


def losses() -> dict[str, list[float]]:
    """The losses of each row, by seed."""
    page = (ROOT / "docs" / "recipe.md").read_text(encoding="utf-8")
    found = {}
    for label, (variant, heads) in ROWS.items():
        row = re.search(rf"^\| {variant} \| {heads} \|(.*)\|$", page, re.MULTILINE)
        assert row, f"docs/recipe.md has no row {variant}, {heads} heads"
        *by_seed, _ = map(float, row[1].split("|"))
        found[label] = by_seed
    return found


def difference(one: list[float], other: list[float]) -> tuple[float, float]:
    """The mean of the differences paired by seed, and half the width of its anytime-valid 95% interval."""
    paired = [left - right for left, right in zip(one, other, strict=True)]
    bounds = interval(Anytime(), paired)
    assert bounds, "an interval needs four seeds"
    return sum(bounds) / 2, (bounds[1] - bounds[0]) / 2


def drawing() -> Figure:
    """The picture: losses by seed, and differences with intervals."""
    measured = losses()
    figure = Figure(figsize=(9, 3), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.2))
    for place, (label, by_seed) in enumerate(measured.items()):
        colour = ORANGE if "talking" in label else BLUE
        left.plot([place] * len(by_seed), by_seed, "o", color=colour, alpha=0.5, markersize=6)
        left.hlines(np.mean(by_seed), place - 0.2, place + 0.2, color=colour, lw=2)
    left.set_xticks(range(len(measured)), list(measured))
    left.set(
        xlim=(-0.5, len(measured) - 0.5), ylabel="validation loss, nats", title="each run, and the mean over seeds"
    )
    for place, (one, other) in enumerate(PAIRS):
        mean, half = difference(measured[one], measured[other])
        right.errorbar(mean, place, xerr=half, fmt="o", color="black", capsize=4)
        right.text(mean, place - 0.14, f"{mean:+.2f} [{mean - half:+.2f}, {mean + half:+.2f}]", ha="center", fontsize=8)
    right.margins(x=0.12)  # room for the numbers
    right.axvline(0, color=GREY, linestyle=":")
    right.set_yticks(range(len(PAIRS)), [f"{one}\nless {other}" for one, other in PAIRS])
    right.set(
        ylim=(len(PAIRS) - 0.5, -0.6), xlabel="difference of the loss, nats", title="paired by seed, 95% intervals"
    )
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "first_comparison.svg"
    with mpl.rc_context({"svg.hashsalt": "attn", "font.size": 9}):
        drawing().savefig(target, metadata={"Date": None})
