"""The figures, each drawn from plain arrays, with colours that colour-blind readers can distinguish and labels in
words.
"""

# L layers, H heads, G heads of all layers, N queries, M memory

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, ParamSpec

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.colors import CenteredNorm, Colormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

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
# of attention maps: the size of a token and of a letter, and the maximum width of a row of maps
TOKEN_INCHES, TOKEN_POINTS, LETTER_INCHES, MAPS_WIDTH = 0.085, 5.5, 0.055, 10.0
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


def new_figure(
    rows: int, columns: int, height: float, layout: Literal["constrained"] | None = "constrained", **options: Any
) -> tuple[Figure, npt.NDArray[Any]]:
    """A figure of rows x columns axes, always as an array of two dimensions."""
    figure = Figure(figsize=(FIGURE_WIDTH, height), layout=layout)
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
            len({each.get_title(loc="left") for each in counterparts}) > 1
            or counterparts[0].get_label() == "<colorbar>"
        ):
            continue
        images = [image for each in counterparts for image in each.images]
        for image in images:
            image.set_clim(min(each.norm.vmin for each in images), max(each.norm.vmax for each in images))
        for each in counterparts if not images else ():
            each.set_xbound(*_union([other.get_xbound() for other in counterparts]))
            each.set_ybound(*_union([other.get_ybound() for other in counterparts]))


def _union(bounds: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return min(low for low, _ in bounds), max(high for _, high in bounds)


@styled
def attention_maps(maps: Mapping[str, Array], heads: int, queries: Sequence[str], memory: Sequence[str]) -> Figure:
    """Attention maps [N, M] by the names of their heads, each from white to its largest weight, with its tokens.

    heads: the number of heads of a layer, or of several complete layers. The number of maps in a row divides it.

    Tokens stand beside the first map of a row and below the last map of a column, because all maps have the same ones.
    """
    width, height = (min(max(0.9, TOKEN_INCHES * len(tokens)), 3.0) for tokens in (memory, queries))
    columns = max(count for count in range(1, max(1, int(MAPS_WIDTH / width)) + 1) if heads % count == 0)
    rows = -(-len(maps) // columns)
    labels = [LETTER_INCHES * max(map(len, tokens)) + 0.15 for tokens in (queries, memory)]
    size = labels[0] + columns * (width + 0.1), labels[1] + rows * (height + 0.25)
    # the constrained layout takes seconds for a hundred axes
    figure = Figure(figsize=size)
    axes = figure.subplots(rows, columns, squeeze=False)
    for index, each in enumerate(axes.flat):
        each.set(xticks=[], yticks=[])
        if index >= len(maps):
            each.set_visible(False)
            continue
        name, values = list(maps.items())[index]
        each.imshow(values, cmap="Blues", vmin=0, interpolation="nearest", aspect="auto")
        each.spines[:].set(visible=True, linewidth=0.4, color="#bbbbbb")
        each.set_title(name, fontsize=7, pad=2)
        each.tick_params(length=0, pad=1, labelsize=TOKEN_POINTS)
        # a $ in a token does not begin a formula
        if index % columns == 0:
            each.set_yticks(range(len(queries)), queries, parse_math=False)
        if index + columns >= len(maps):
            each.set_xticks(range(len(memory)), memory, rotation=90, parse_math=False)
    figure.subplots_adjust(
        left=labels[0] / size[0], right=1 - 0.05 / size[0], bottom=labels[1] / size[1], top=1 - 0.2 / size[1],
        wspace=0.1 / width, hspace=0.25 / height,
    )  # fmt: skip
    return figure


def colour_range(values: Array) -> tuple[float, float]:
    """The range of a colour scale that shows how values differ: from the lowest to the highest.

    It begins at 0 if they differ by less than a hundredth of the highest, because so little means nothing.
    """
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    return (low, high) if high - low > abs(high) / 100 else (0.0, high or 1.0)


@styled
def layer_head_heatmaps(panels: Mapping[str, Array], columns: int = 2) -> Figure:
    """A heat map [L, H] for each quantity, each with its own scale; `nan` where a layer has fewer heads."""
    rows = -(-len(panels) // columns)
    layers, heads = next(iter(panels.values())).shape
    figure, axes = new_figure(rows, columns, rows * (0.55 + 0.17 * max(layers, 4)))
    for each in axes.flat[len(panels) :]:
        each.set_visible(False)
    for each, (title, values) in zip(axes.flat, panels.items(), strict=False):
        low, high = colour_range(values)
        image = each.imshow(values, cmap="cividis", vmin=low, vmax=high, aspect="auto", interpolation="nearest")
        each.set_title(title)
        each.set_yticks(range(layers), [str(layer) for layer in range(1, layers + 1)])
        shown = [head for head in range(heads) if heads <= 12 or head in (0, heads - 1) or (head + 1) % 6 == 0]
        each.set_xticks(shown, [str(head + 1) for head in shown])
        each.spines[:].set_visible(False)
        each.tick_params(length=0)
        bar = figure.colorbar(image, ax=each, fraction=0.05, pad=0.02)
        bar.outline.set_visible(False)
        bar.ax.yaxis.set_major_locator(MaxNLocator(3))
    for each in axes[:, 0]:
        each.set_ylabel("layer")
    figure.supxlabel("head", fontsize=9)
    return figure


@styled
def head_plane(points: Array, layers: Sequence[int], heads: Sequence[int], within: Mapping[int, float]) -> Figure:
    """The heads in two dimensions, coloured by layer, and the mean distance within a layer over its depth."""
    figure, ((plane, depth),) = new_figure(1, 2, 3.6, width_ratios=[3, 2])
    colours = layer_colours(max(layers))
    for layer in sorted(set(layers)):
        indices = [index for index, each in enumerate(layers) if each == layer]
        plane.scatter(
            *points[indices].T, s=80, color=colours[layer - 1], alpha=0.85, linewidths=0, label=f"layer {layer}"
        )
        for index in indices:
            dark = np.mean(colours[layer - 1][:3]) < 0.45
            place = {"ha": "center", "va": "center_baseline", "fontsize": 5}
            plane.text(*points[index], str(heads[index]), color="white" if dark else "black", **place)
    plane.set_aspect("equal", adjustable="datalim")
    plane.set(xlabel="distance in two dimensions (square root of nats)", title="the heads: near ones attend alike")
    for axis in (plane.xaxis, plane.yaxis):
        axis.set_major_locator(MaxNLocator(4))
    plane.legend(fontsize=7, loc="best", handletextpad=0.1, borderpad=0)
    depth.plot(list(within), list(within.values()), color=GREY, zorder=0)
    depth.scatter(list(within), list(within.values()), s=40, color=[colours[layer - 1] for layer in within])
    depth.set(xlabel="layer", ylabel="nats", title="mean distance within a layer")
    depth.set_ylim(0, 1.15 * max([*within.values(), 1e-9]))
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
    axes.fill_between(*spread, color=GREY, alpha=0.2, linewidth=0)
    for name, (left, losses) in curves.items():
        colour, marker = styles[name]
        axes.plot(left, losses, color=colour, marker=marker, markersize=4, label=name)
    axes.axhline(unigram, color="black", linestyle=":", linewidth=1)
    place = {"xycoords": axes.get_yaxis_transform(), "va": "bottom", "fontsize": 7}
    axes.annotate("single-token frequencies", (0.01, unigram), **place)
    axes.invert_xaxis()
    axes.set(xlabel="heads left", ylabel="loss (nats per predicted token)", title="removing the least important heads")
    axes.legend(title="order of removal", fontsize=8, title_fontsize=8)
    return figure


@styled
def projection_maps(layers: Sequence[dict[str, Array]]) -> Figure:
    """P_l, P_w and P_l P_w of each layer.

    Rows are the heads before, columns those after; blue is negative, red positive.
    """
    names = max((list(named) for named in layers), key=len)
    figure, axes = new_figure(len(layers), len(names), 1.9 * len(layers) + 0.3)
    for layer, (row, named) in enumerate(zip(axes, layers, strict=True), 1):
        for each, name in zip(row, names, strict=True):
            image = each.imshow(named[name], cmap="RdBu_r", norm=CenteredNorm(), interpolation="nearest")
            each.set(xticks=[], yticks=[])
            each.spines[:].set_visible(False)
            bar = figure.colorbar(image, ax=each, fraction=0.046, pad=0.03)
            bar.outline.set_visible(False)
            bar.ax.tick_params(labelsize=6)
            if layer == 1:
                each.set_title(name, loc="center")
        row[0].set_ylabel(f"layer {layer}\nheads before")
    for each in axes[-1]:
        each.set_xlabel("heads after")
    return figure


@styled
def projection_distances(distances: Mapping[str, Sequence[float | None]], chance: float) -> Figure:
    """The distance of each layer's projections from the identity and from a diagonal matrix."""
    figure, axes = new_figure(1, 2, 2.5)
    for each, kind in zip(axes[0], ("identity", "diagonal"), strict=True):
        names = [name for name in distances if name.endswith(kind)]
        for name, colour, marker in zip(names, (BLUE, ORANGE, GREEN), "os^", strict=False):
            values = [np.nan if value is None else value for value in distances[name]]
            label = name.removesuffix(kind).strip()
            each.plot(range(1, len(values) + 1), values, color=colour, marker=marker, label=label)
        each.set_xlabel("layer")
        each.xaxis.set_major_locator(MaxNLocator(integer=True))
        each.set_ylim(0, 1.08 * each.get_ylim()[1])
    axes[0, 0].set_title("from the identity: ||P - I|| / ||I||")
    axes[0, 1].set_title("share of the squared entries off the diagonal")
    axes[0, 1].axhline(chance, color=GREY, linestyle=":")
    axes[0, 1].annotate("random", (1, chance), color="#555555", fontsize=7, va="top", xytext=(0, -2),
                        textcoords="offset points")  # fmt: skip
    axes[0, 1].set_ylim(0, 1.08)
    axes[0, 0].legend(fontsize=8)
    return figure


@styled
def effective_ranks(before: Sequence[Array], after: Sequence[Array], lines: Mapping[str, int]) -> Figure:
    """The effective rank of each head's logits by layer, before and after mixing. `lines`: ranks for comparison."""
    figure, ((axes,),) = new_figure(1, 1, 2.9)
    random = np.random.default_rng(0)
    for shift, colour, label, values in ((-0.16, BLUE, "before mixing", before), (0.16, ORANGE, "after mixing", after)):
        for layer, heads in enumerate(values, 1):
            place = layer + shift + random.uniform(-0.07, 0.07, len(heads))
            axes.scatter(place, heads, s=14, color=colour, alpha=0.7, linewidths=0, label=label if layer == 1 else None)
    for name, value in lines.items():
        axes.axhline(value, color=GREY, linestyle=":", linewidth=1)
        axes.annotate(name, (0.995, value), xycoords=axes.get_yaxis_transform(), ha="right", va="bottom", fontsize=7)
    axes.set(xlabel="layer", ylabel="effective rank", title="effective rank of the logits, a dot a head")
    axes.set_ylim(0, 1.12 * max([*lines.values(), *(float(np.max(each)) for each in [*before, *after])]))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(fontsize=8, loc="upper left")
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
    place = {"xycoords": axes.get_xaxis_transform(), "fontsize": 7, "ha": "left"}
    axes.annotate(f" d_k = {key_size}", (key_size, 0.97), va="top", **place)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(ranks, [str(rank) for rank in ranks])
    axes.minorticks_off()
    axes.set_ylim(bottom=1e-6)
    axes.set(xlabel="rank of the logits", ylabel="nats from the true weights", title="weights matched at each rank")
    axes.legend(fontsize=8)
    return figure


@styled
def spread_curves(by_start: Mapping[str, Sequence[float]]) -> Figure:
    """The spread of the heads of a layer by step, with a line for each way to start."""
    figure, ((axes,),) = new_figure(1, 1, 2.9)
    for (start, values), colour, marker in zip(by_start.items(), (BLUE, ORANGE, GREEN, GREY), "os^D", strict=False):
        axes.plot(np.maximum(values, 1e-17), color=colour, marker=marker, markersize=3, label=start)
    axes.set_yscale("log")
    axes.set(xlabel="step", ylabel="spread, relative", title="how far the heads of a layer are apart (0: at 1e-17)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(fontsize=8)
    return figure


@styled
def relation_accuracies(names: Sequence[str], accuracy: Array, baseline: Array, heads: Sequence[str]) -> Figure:
    """The accuracy of the best head for each relation, beside that of the best fixed offset."""
    figure, ((axes,),) = new_figure(1, 1, 0.24 * len(names) + 0.9)
    place = np.arange(len(names))[::-1]
    axes.hlines(place, baseline, accuracy, color="#cccccc", zorder=0)
    axes.scatter(baseline, place, color=GREY, marker="|", s=60, label="best fixed offset")
    axes.scatter(accuracy, place, color=BLUE, s=24, label="best head")
    for each, value, low, head in zip(place, accuracy, baseline, heads, strict=True):
        axes.annotate(head, (max(value, low), each), xytext=(6, 0), textcoords="offset points", va="center", fontsize=6)
    axes.set_yticks(place, names)
    axes.set(xlim=(0, 1.08), ylim=(-0.8, len(names) - 0.2), xlabel="accuracy", title="finding the related word")
    # above the rows, because the bottom is full
    axes.legend(fontsize=8, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0)
    return figure
