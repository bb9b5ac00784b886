"""Pictures that can be read: whole steps, and legends that stand beside what they explain."""

from __future__ import annotations

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg

from experiments.heads import figures


def test_steps_are_whole():
    figure = figures.spreads({"all equal": [0.0, 1e-15, 1e-15], "each its own": [1.0, 1.1, 1.2]})
    FigureCanvasAgg(figure).draw()
    assert all(tick == round(tick) for tick in figure.axes[0].get_xticks())


def test_the_legend_of_relations_covers_no_row():
    names = [f"relation {number}" for number in range(12)]
    figure = figures.relations(names, np.full(12, 0.2), np.full(12, 0.95), 12 * ["1-10"])
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    (axes,) = figure.axes
    legend = axes.get_legend().get_window_extent()
    assert not any(legend.overlaps(text.get_window_extent()) for text in [*axes.texts, axes.title])
