"""Draw the pictures of docs/concepts.md: python scripts/draw_concepts.py [docs/concepts]

Each picture is computed from random matrices of a fixed seed, or only from sizes. None shows a trained model.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

ROOT = Path(__file__).resolve().parents[1]
Matrix = npt.NDArray[np.float64]
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#8894a0"
PLACEMENTS = {
    "post": ["sub-layer", "+", "norm"],
    "pre": ["norm", "sub-layer", "+"],
    "sandwich": ["norm", "sub-layer", "norm", "+"],
    "deep": ["sub-layer", "+ a x", "norm"],
}


def softmax(logits: Matrix) -> Matrix:
    """The softmax of each row."""
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def of_rank(logits: Matrix, rank: int) -> Matrix:
    """The best approximation of this rank, in least squares, to logits whose rows are shifted to a mean of 0."""
    left, values, right = np.linalg.svd(logits - logits.mean(-1, keepdims=True))
    return (left[:, :rank] * values[:rank]) @ right[:rank]


def divergence(target: Matrix, weights: Matrix) -> float:
    """The Kullback-Leibler divergence in nats, averaged over rows."""
    return float((target * np.log(target / weights)).sum(-1).mean())


def bottleneck(n: int = 32) -> Figure:
    """A map of n tokens, and the nearest maps of heads with d_k features."""
    logits = 2 * np.random.default_rng(0).standard_normal((n, n))
    target, ranks = softmax(logits), [1, 2, 4, 8, 16, 24, n - 1]
    found = {rank: softmax(of_rank(logits, rank)) for rank in ranks}
    figure = Figure(figsize=(9, 2.6), layout="constrained")
    axes = figure.subplots(1, 5, width_ratios=(1, 1, 1, 1, 1.5))
    shown = [("the map to express", target), *((f"d_k = {rank}", found[rank]) for rank in (2, 8, n - 1))]
    for each, (title, weights) in zip(axes, shown, strict=False):
        heat(each, weights, title, 0, 0.5)
    axes[-1].plot(ranks, [divergence(target, found[rank]) for rank in ranks], "o-", color=BLUE, markersize=4)
    axes[-1].set(xlabel="d_k", ylabel="divergence, nats", title=f"n = {n} tokens")
    return figure


def mixing(heads: int = 3, n: int = 8) -> Figure:
    """The maps of a layer before and after P_l, the softmax and P_w."""
    source = np.random.default_rng(3)
    query, key = source.standard_normal((2, heads, n, 2))
    logits = query @ key.transpose(0, 2, 1)
    mix_logits, mix_weights = source.standard_normal((2, heads, heads)) / np.sqrt(heads)
    mixed = np.einsum("inm,ij->jnm", logits, mix_logits)
    weights = softmax(mixed)
    stages = [logits, mixed, weights, np.einsum("jnm,jk->knm", weights, mix_weights)]
    titles = ["$J_i = Q_i K_i^T$", "$L_j = \\sum_i J_i P^l_{ij}$", "$W_j = \\mathrm{softmax}(L_j)$"]
    titles.append("$U_k = \\sum_j W_j P^w_{jk}$")
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    grid = figure.subplots(heads, 6, width_ratios=(1, 0.8, 1, 1, 0.8, 1))
    for column, maps, title in zip((0, 2, 3, 5), stages, titles, strict=True):
        limit = 1.0 if column == 3 else float(np.abs(maps).max())
        for head in range(heads):
            colours = "Blues" if column == 3 else "RdBu"
            heat(
                grid[head, column], maps[head], title if head == 0 else "", -limit if column != 3 else 0, limit, colours
            )
            grid[head, column].set_ylabel(f"head {head + 1}")
    for column, matrix, title in ((1, mix_logits, "$P^l$"), (4, mix_weights, "$P^w$")):
        for head in range(heads):
            grid[head, column].axis("off")
        heat(grid[heads // 2, column], matrix, title, -1, 1, "RdBu")
        grid[heads // 2, column].axis("on")
    return figure


def heads(d: int = 192, n: int = 64) -> Figure:
    """The rank that the logits of one head can have, by the number of heads."""
    counts = [each for each in range(1, d + 1) if d % each == 0 and each <= 96]
    figure = Figure(figsize=(5.5, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.plot(counts, [min(n, d // each) for each in counts], "o-", color=BLUE, label="multi-head: min(n, d / h)")
    axes.plot(counts, [min(n, d)] * len(counts), "s-", color=ORANGE, label="talking heads: min(n, d)")
    axes.axvline(d / n, color=GREY, linestyle=":")
    axes.annotate("d / n", (d / n, 4), xytext=(4, 0), textcoords="offset points", color=GREY)
    axes.set_xscale("log", base=2)
    axes.set(
        xlabel="heads h",
        ylabel="rank of a head's logits",
        title=f"hidden_size d = {d}, length n = {n}",
        ylim=(0, n + 8),
    )
    axes.set_xticks([1, 3, 6, 12, 24, 48, 96], ["1", "3", "6", "12", "24", "48", "96"])
    axes.legend(frameon=False, loc="center right", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def norms() -> Figure:
    """The parts of one sub-layer from bottom to top, for each placement of the norm."""
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    for axes, (name, steps) in zip(figure.subplots(1, len(PLACEMENTS)), PLACEMENTS.items(), strict=True):
        axes.set(xlim=(-0.2, 2.2), ylim=(-0.4, 5), title=f"norm={name}")
        axes.axis("off")
        axes.text(0.9, -0.35, "x", ha="center", fontstyle="italic")
        joint = next(place for place, step in enumerate(steps) if step.startswith("+"))
        for place, step in enumerate(steps):
            y, colour = 0.5 + place, "#fdf1dc" if step == "norm" else "#eef3f8"
            axes.annotate("", (0.9, y), (0.9, y - 0.45), arrowprops={"arrowstyle": "->", "color": GREY})
            axes.add_patch(FancyBboxPatch((0.2, y), 1.4, 0.45, "round,pad=0.03", fc=colour, ec=GREY))
            axes.text(0.9, y + 0.22, step, ha="center", va="center", fontsize=9)
        axes.annotate(
            "", (0.9, 0.95 + len(steps)), (0.9, 0.5 + len(steps) - 0.5), arrowprops={"arrowstyle": "->", "color": GREY}
        )
        # the residual connection, around everything before the sum
        top = 0.72 + joint
        axes.plot([0.9, 2.0, 2.0], [0.15, 0.15, top], color=ORANGE, lw=1.2)
        axes.annotate("", (1.64, top), (2.03, top), arrowprops={"arrowstyle": "->", "color": ORANGE})
    return figure


def heat(axes: Axes, matrix: Matrix, title: str, low: float, high: float, colours: str = "Blues") -> None:
    """Draw a matrix as colours."""
    axes.imshow(matrix, cmap=colours, vmin=low, vmax=high)
    axes.set_title(title, fontsize=9)
    axes.set_xticks([])
    axes.set_yticks([])


PICTURES = {"bottleneck": bottleneck, "mixing": mixing, "heads": heads, "norms": norms}


def main(folder: Path) -> None:
    """Write every picture into the folder. The same versions of the libraries give the same bytes."""
    folder.mkdir(exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "attn", "font.size": 9}):
        for name, draw in PICTURES.items():
            draw().savefig(folder / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "concepts")
