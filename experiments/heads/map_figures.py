"""The figure of attention maps, with their tokens and the scale of their colours."""

# N queries, M memory

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure

from experiments.heads.figures import Array, styled
from experiments.heads.fonts import fonts_for

# the size of a token and of a letter, and the maximum width of a row of maps
TOKEN_INCHES, TOKEN_POINTS, LETTER_INCHES, MAPS_WIDTH = 0.085, 5.5, 0.055, 10.0
MAP_INCHES = 0.9, 3.0  # of a side of a map: at least, and at most
# of what stands above the maps: its height, its width, and the width and height of the colour bar
HEAD_INCHES, HEAD_WIDTH, BAR_INCHES = 0.6, 5.5, (1.2, 0.09)
COLOURS = "Blues"
TITLE = "Attention maps: rows are the tokens that attend, columns those that they attend to"
LEGEND = (
    "the scale of each map ends at its largest weight:\n"
    "2-3 \N{LESS-THAN OR EQUAL TO} 0.4 is head 3 of layer 2, whose largest weight is 0.4"
)


@styled
def attention_maps(maps: Mapping[str, Array], heads: int, queries: Sequence[str], memory: Sequence[str]) -> Figure:
    """Attention maps [N, M] by the names of their heads, each from white to its largest weight, with its tokens.

    heads: the number of heads of a layer, or of several complete layers. The number of maps in a row divides it.

    Tokens stand beside the first map of a row and below the last map of a column, because all maps have the same ones.
    If they are too many for a side, only every second, third, ... is written.
    """
    least, most = MAP_INCHES
    width, height = (min(max(least, TOKEN_INCHES * len(tokens)), most) for tokens in (memory, queries))
    written_queries, written_memory = (
        range(0, len(tokens), math.ceil(len(tokens) * TOKEN_INCHES / most)) for tokens in (queries, memory)
    )
    columns = max(count for count in range(1, max(1, int(MAPS_WIDTH / width)) + 1) if heads % count == 0)
    rows = -(-len(maps) // columns)
    labels = [LETTER_INCHES * max(map(len, tokens)) + 0.15 for tokens in (queries, memory)]
    right = labels[0] + columns * (width + 0.1)
    size = max(right, HEAD_WIDTH), labels[1] + rows * (height + 0.25) + HEAD_INCHES
    # a $ in a token does not begin a formula
    letters: dict[str, Any] = {"fontfamily": fonts_for([*queries, *memory]), "parse_math": False}
    # the constrained layout takes seconds for a hundred axes
    figure = Figure(figsize=size)
    axes = figure.subplots(rows, columns, squeeze=False)
    for panel in axes.flat[len(maps) :]:
        panel.set_visible(False)
    for index, (panel, (name, values)) in enumerate(zip(axes.flat, maps.items(), strict=False)):
        panel.set(xticks=[], yticks=[])
        panel.imshow(values, cmap=COLOURS, vmin=0, interpolation="nearest", aspect="auto")
        panel.spines[:].set(visible=True, linewidth=0.4, color="#bbbbbb")
        panel.set_title(f"{name} \N{LESS-THAN OR EQUAL TO} {float(values.max()):.2g}", fontsize=7, pad=2)
        panel.tick_params(length=0, pad=1, labelsize=TOKEN_POINTS)
        if index % columns == 0:
            panel.set_yticks(written_queries, [queries[place] for place in written_queries], **letters)
        if index + columns >= len(maps):
            panel.set_xticks(written_memory, [memory[place] for place in written_memory], rotation=90, **letters)
    figure.subplots_adjust(
        left=labels[0] / size[0], right=(right - 0.05) / size[0], bottom=labels[1] / size[1],
        top=1 - (HEAD_INCHES + 0.2) / size[1], wspace=0.1 / width, hspace=0.25 / height,
    )  # fmt: skip
    _explain(figure)
    return figure


def _explain(figure: Figure) -> None:
    """Write above the maps what they show, and draw the scale of their colours."""
    width, height = figure.get_size_inches()
    figure.text(0.1 / width, 1 - 0.08 / height, TITLE, fontsize=8, va="top")
    across, high = BAR_INCHES
    bar = figure.add_axes((0.15 / width, 1 - 0.4 / height, across / width, high / height))
    scale = figure.colorbar(ScalarMappable(cmap=COLOURS), cax=bar, orientation="horizontal")
    scale.set_ticks([0, 1], labels=["0", "most"])
    bar.tick_params(length=0, labelsize=7, pad=1)
    figure.text((across + 0.35) / width, 1 - 0.3 / height, LEGEND, fontsize=7, va="top")
