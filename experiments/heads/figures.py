"""The figures, each drawn from plain arrays, with colours that colour-blind readers can distinguish and labels in
words.
"""

# L layers, H heads, G heads of all layers, N queries, M memory

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.colors import CenteredNorm, Colormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from experiments.heads.numbered_discs import NumberedDiscs

Array = npt.NDArray[np.floating[Any]]

# Okabe and Ito
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#999999"
STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#666666",
    "legend.frameon": False,
    "svg.hashsalt": "attn",
}
FIGURE_WIDTH = 7.2  # inches
SMALL = 0.001  # nats: an axis of distances goes at least so far
Parameters = ParamSpec("Parameters")


def styled(draw: Callable[Parameters, Figure]) -> Callable[Parameters, Figure]:
    """The drawing function in the style of this project, whatever the reader's own settings are."""

    @functools.wraps(draw)
    def drawn(*arguments: Parameters.args, **options: Parameters.kwargs) -> Figure:
        with matplotlib.rc_context(STYLE):
            return draw(*arguments, **options)

    return drawn


def titled(figure: Figure, title: str) -> Figure:
    """The figure with a title above it, unless the title is empty."""
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold")
    return figure


def new_figure(rows: int, columns: int, height: float, **options: Any) -> tuple[Figure, npt.NDArray[Any]]:
    """A figure of rows x columns axes, always as an array of two dimensions."""
    figure = Figure(figsize=(FIGURE_WIDTH, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def layer_colours(layers: int) -> list[tuple[float, ...]]:
    """Colours from dark to light, in the order of the layers, without the lightest, which are hard to see on white."""
    colours: Colormap = matplotlib.colormaps["viridis"]
    return [colours(0.88 * layer / max(1, layers - 1)) for layer in range(layers)]


def share_scales(same_kind: Sequence[Figure]) -> None:
    """Give axes with the same title, in figures of one kind, the same limits and the same colours."""
    if len({len(figure.axes) for figure in same_kind}) > 1:
        return
    for counterparts in zip(*(figure.axes for figure in same_kind), strict=True):
        # a colour bar follows its image
        if (
            len({counterpart.get_title(loc="left") for counterpart in counterparts}) > 1
            or counterparts[0].get_label() == "<colorbar>"
        ):
            continue
        images = [image for counterpart in counterparts for image in counterpart.images]
        for image in images:
            image.set_clim(min(other.norm.vmin for other in images), max(other.norm.vmax for other in images))
        for counterpart in counterparts if not images else ():
            counterpart.set_xbound(*_union([other.get_xbound() for other in counterparts]))
            counterpart.set_ybound(*_union([other.get_ybound() for other in counterparts]))


def _union(bounds: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return min(low for low, _ in bounds), max(high for _, high in bounds)


def shown_heads(heads: int) -> list[int]:
    """The heads, from 0, whose numbers stand at an axis."""
    return [head for head in range(heads) if heads <= 12 or head in (0, heads - 1) or (head + 1) % 6 == 0]


def colour_range(values: Array) -> tuple[float, float]:
    """The range of a colour scale that shows how values differ: from the lowest to the highest.

    It begins at 0 if they differ by less than a hundredth of the highest, because so little means nothing.
    """
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    return (low, high) if high - low > abs(high) / 100 else (min(0.0, high), max(0.0, high) if high else 1.0)


@styled
def layer_head_heatmaps(panels: Mapping[str, Array], columns: int = 2) -> Figure:
    """A heat map [L, H] for each quantity, each with its own scale; `nan` where a layer has fewer heads."""
    rows = -(-len(panels) // columns)
    layers, heads = next(iter(panels.values())).shape
    figure, axes = new_figure(rows, columns, rows * (0.55 + 0.17 * max(layers, 4)))
    for panel in axes.flat[len(panels) :]:
        panel.set_visible(False)
    for panel, (title, values) in zip(axes.flat, panels.items(), strict=False):
        low, high = colour_range(values)
        image = panel.imshow(values, cmap="cividis", vmin=low, vmax=high, aspect="auto", interpolation="nearest")
        panel.set_title(title)
        panel.set_yticks(range(layers), [str(layer) for layer in range(1, layers + 1)])
        shown = shown_heads(heads)
        panel.set_xticks(shown, [str(head + 1) for head in shown])
        panel.spines[:].set_visible(False)
        panel.tick_params(length=0)
        bar = figure.colorbar(image, ax=panel, fraction=0.05, pad=0.02, ticks=MaxNLocator(3))
        bar.outline.set_visible(False)
    for panel in axes[:, 0]:
        panel.set_ylabel("layer")
    figure.supxlabel("head", fontsize=9)
    return figure


@styled
def head_plane(points: Array, layers: Sequence[int], heads: Sequence[int], within: Mapping[int, float]) -> Figure:
    """The heads in two dimensions, coloured by layer, and the mean distance within a layer over its depth."""
    figure, axes = new_figure(2, 1, 7.4, height_ratios=[3, 1])
    plane, depth = axes[:, 0]
    colours = layer_colours(max(layers))
    for layer in sorted(set(layers)):
        of_layer = points[[index for index, of_point in enumerate(layers) if of_point == layer]]
        plane.scatter(*of_layer.T, s=12, color=colours[layer - 1], linewidths=0, label=f"layer {layer}")
    NumberedDiscs(plane, points, heads, [colours[layer - 1] for layer in layers])
    # heads that hardly differ lie on each other
    plane.update_datalim([points.mean(0) - SMALL / 2, points.mean(0) + SMALL / 2])
    plane.set_aspect("equal", adjustable="datalim")
    unit = "distance in two dimensions (nats)"
    plane.set(
        xlabel=unit,
        ylabel=unit,
        title="Heads that attend alike lie near each other: a disc is a head, and a line leads to its place",
    )
    for axis in (plane.xaxis, plane.yaxis):
        axis.set_major_locator(MaxNLocator(4))
    # beside the plane, where it covers no head
    plane.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1), handletextpad=0.1, borderpad=0, markerscale=3)
    depth.plot(list(within), list(within.values()), color=GREY, zorder=0)
    depth.scatter(list(within), list(within.values()), s=40, color=[colours[layer - 1] for layer in within])
    depth.set(xlabel="layer", ylabel="divergence (nats)", title="Mean distance of two heads of a layer")
    depth.set_ylim(0, 1.15 * max([*within.values(), SMALL]))
    depth.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


@styled
def pruning_curve(
    curves: Mapping[str, tuple[Sequence[int], Sequence[float]]],
    spread: tuple[Sequence[int], Sequence[float], Sequence[float]],
    unigram: float,
) -> Figure:
    """Loss over the number of remaining heads, with a line for each order of removal.

    `spread`: (heads left, lowest, highest) of random orders.
    """
    figure, ((axes,),) = new_figure(1, 1, 3.2)
    styles = {"by gradient": (BLUE, "o"), "by relevance": (ORANGE, "s"), "in random order": (GREY, "^")}
    axes.fill_between(*spread, color=GREY, alpha=0.2, linewidth=0, label="range of random orders")
    for name, (left, losses) in curves.items():
        colour, marker = styles[name]
        axes.plot(left, losses, color=colour, marker=marker, markersize=4, label=name)
    axes.axhline(unigram, color="black", linestyle=":", linewidth=1)
    place = {"xycoords": axes.get_yaxis_transform(), "va": "bottom", "fontsize": 7}
    axes.annotate("prediction by single-token frequencies", (0.01, unigram), **place)
    axes.invert_xaxis()
    axes.set(
        xlabel="heads left",
        ylabel="loss (nats per predicted token)",
        title="Loss when the least important heads are removed",
    )
    axes.legend(title="order of removal", fontsize=8, title_fontsize=8)
    return figure


@styled
def projection_maps(layers: Sequence[dict[str, Array]]) -> Figure:
    """P_l, P_w and P_l P_w of each layer.

    Rows are the heads before, columns those after; blue is negative, red positive.
    """
    names = max((list(projections) for projections in layers), key=len)
    figure, axes = new_figure(len(layers), len(names), 1.9 * len(layers) + 0.5)
    for layer, (row, projections) in enumerate(zip(axes, layers, strict=True), 1):
        for panel, name in zip(row, names, strict=True):
            image = panel.imshow(projections[name], cmap="RdBu_r", norm=CenteredNorm(), interpolation="nearest")
            before, after = (shown_heads(size) for size in projections[name].shape)
            panel.set_yticks(before, [str(head + 1) for head in before])
            panel.set_xticks(after, [str(head + 1) for head in after])
            panel.tick_params(length=0, labelsize=6)
            panel.spines[:].set_visible(False)
            bar = figure.colorbar(image, ax=panel, fraction=0.046, pad=0.03)
            bar.outline.set_visible(False)
            bar.ax.tick_params(labelsize=6)
            if layer == 1:
                panel.set_title(f"entries of {name}", loc="center")
        row[0].set_ylabel(f"layer {layer}: head before", fontsize=8)
    for panel in axes[-1]:
        panel.set_xlabel("head after", fontsize=8)
    return figure


@styled
def projection_distances(distances: Mapping[str, Sequence[float | None]], chance: float | None) -> Figure:
    """The distance of each layer's projections from the identity and from a diagonal matrix.

    chance: the share off the diagonal of a random matrix; None if it depends on the projection.
    """
    figure, axes = new_figure(1, 2, 2.5)
    for panel, kind in zip(axes[0], ("identity", "diagonal"), strict=True):
        names = [name for name in distances if name.endswith(kind)]
        for name, colour, marker in zip(names, (BLUE, ORANGE, GREEN), "os^", strict=False):
            values = [np.nan if value is None else value for value in distances[name]]
            label = name.removesuffix(kind).strip()
            panel.plot(range(1, len(values) + 1), values, color=colour, marker=marker, label=label)
        panel.set_xlabel("layer")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.set_ylim(0, 1.08 * panel.get_ylim()[1])
    axes[0, 0].set_title("Distance from the identity: ||P - I|| / ||I||")
    axes[0, 1].set_title("Share of the squared entries off the diagonal")
    axes[0, 1].set_ylim(0, 1.08)
    if chance is not None:
        random = axes[0, 1].axhline(chance, color=GREY, linestyle=":", label="a random matrix")
        axes[0, 1].legend(handles=[random], fontsize=8)
    axes[0, 0].legend(fontsize=8)
    return figure


@styled
def effective_ranks(ranks: Mapping[str, Array], lines: Mapping[str, int]) -> Figure:
    """The effective ranks [L, H] of the heads' logits: QK^T, before the softmax, or both. `lines`: for comparison."""
    figure, ((axes,),) = new_figure(1, 1, 2.9)
    random = np.random.default_rng(0)
    styles = {"for QK^T": (-0.16, BLUE), "before the softmax": (0.16, ORANGE)}
    for label, matrix in ranks.items():
        shift, colour = styles[label]
        for layer, heads in enumerate(matrix, 1):
            place = layer + shift + random.uniform(-0.07, 0.07, len(heads))
            axes.scatter(place, heads, s=14, color=colour, alpha=0.7, linewidths=0, label=label if layer == 1 else None)
    for name, value in lines.items():
        axes.axhline(value, color=GREY, linestyle=":", linewidth=1)
        # beside the axes, where it covers no head
        axes.annotate(name, (1.01, value), xycoords=axes.get_yaxis_transform(), va="center", fontsize=7)
    axes.set(xlabel="layer", ylabel="effective rank", title="Effective rank of the logits: a dot is a head")
    axes.set_ylim(0, 1.12 * max([*lines.values(), *(float(np.nanmax(matrix)) for matrix in ranks.values())]))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(fontsize=8, loc="lower right", bbox_to_anchor=(1, 1.01), ncols=2, borderaxespad=0)
    return figure


@styled
def rank_divergences(ranks: Sequence[int], divergences: Sequence[Array], key_size: int) -> Figure:
    """The divergence of softmax weights from the true ones if the logits are cut to a rank, with a line for each
    layer.
    """
    figure, ((axes,),) = new_figure(1, 1, 2.9)
    for layer, (values, colour) in enumerate(zip(divergences, layer_colours(len(divergences)), strict=True), 1):
        axes.plot(ranks, np.maximum(values, 1e-6), color=colour, marker="o", markersize=3, label=f"layer {layer}")
    axes.axvline(key_size, color=GREY, linestyle=":")
    place = {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points", "fontsize": 7}
    axes.annotate(f"key size d_k = {key_size}", (key_size, 0.97), (4, 0), va="top", **place)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(ranks, [str(rank) for rank in ranks])
    axes.minorticks_off()
    axes.set_ylim(bottom=1e-6)
    axes.set(xlabel="rank to which the logits are cut", ylabel="divergence (nats)",
             title="Attention weights of logits that are cut to a rank: divergence from the true weights")  # fmt: skip
    axes.legend(fontsize=8)
    return figure


@styled
def spread_curves(by_start: Mapping[str, Sequence[float]]) -> Figure:
    """The spread of the heads of a layer by step, with a line for each way to start."""
    figure, ((axes,),) = new_figure(1, 1, 2.9)
    for (start, values), colour, marker in zip(by_start.items(), (BLUE, ORANGE, GREEN, GREY), "os^D", strict=False):
        axes.plot(np.maximum(values, 1e-17), color=colour, marker=marker, markersize=3, label=start)
    axes.set_yscale("log")
    axes.set(
        xlabel="step",
        ylabel="spread, relative to the largest output",
        title="Difference between the heads of a layer (0 is drawn at 1e-17)",
    )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(fontsize=8)
    return figure


@styled
def relation_accuracies(
    names: Sequence[str], accuracy: Array, intervals: Array, baseline: Array, heads: Sequence[str]
) -> Figure:
    """The accuracy of the best head for each relation, its interval [R, 2], and that of the best fixed offset."""
    figure, ((axes,),) = new_figure(1, 1, 0.24 * len(names) + 1.3)
    place = np.arange(len(names))[::-1]
    axes.hlines(place, *intervals.T, color=BLUE, linewidth=1.5, zorder=1)
    axes.scatter(baseline, place, color="black", marker="|", s=70, zorder=2, label="best fixed offset")
    axes.scatter(accuracy, place, color=BLUE, s=24, zorder=3, label="best head, named layer-head, and its 95% interval")
    for y, high, low, head in zip(place, intervals[:, 1], baseline, heads, strict=True):
        axes.annotate(head, (max(high, low), y), xytext=(6, 0), textcoords="offset points", va="center", fontsize=7)
    axes.set_yticks(place, names)
    axes.set(
        xlim=(0, 1.08), ylim=(-0.8, len(names) - 0.2), xlabel="accuracy: share of the related words that are found"
    )
    axes.set_title("Grammatical relations: the word that is related to a word", pad=22)
    # above the rows, because the bottom is full
    axes.legend(fontsize=8, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0)
    return figure
