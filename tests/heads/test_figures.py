"""Pictures that can be read: whole steps, and legends that stand beside what they explain."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from experiments.heads import figures
from experiments.heads.measures.distance import embed_in_plane


def test_steps_are_whole():
    figure = figures.spread_curves({"all equal": [0.0, 1e-15, 1e-15], "each its own": [1.0, 1.1, 1.2]})
    FigureCanvasAgg(figure).draw()
    assert all(tick == round(tick) for tick in figure.axes[0].get_xticks())


def test_the_legend_of_relations_covers_no_row():
    names = [f"relation {number}" for number in range(12)]
    figure = figures.relation_accuracies(
        names, np.full(12, 0.2), np.tile([0.1, 0.3], (12, 1)), np.full(12, 0.95), 12 * ["1-10"]
    )
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    (axes,) = figure.axes
    legend = axes.get_legend().get_window_extent()
    assert not any(legend.overlaps(text.get_window_extent()) for text in [*axes.texts, axes.title])


def test_colours_show_differences_and_nothing_where_there_are_none():
    assert figures.colour_range(np.array([[0.12, 0.16], [0.13, np.nan]])) == (0.12, 0.16)
    assert figures.colour_range(np.array([[4.16, 4.1601]])) == (0, 4.1601)
    assert figures.colour_range(np.zeros((2, 3))) == (0, 1)


def test_pictures_side_by_side_have_the_same_scales():
    low, high = ({"entropy": np.array([[0.1, top]]), "confidence": np.array([[0.2, top / 2]])} for top in (0.4, 1.6))
    alike = [figures.layer_head_heatmaps(panels) for panels in (low, high)]
    figures.share_scales(alike)
    limits = [[image.get_clim() for axes in figure.axes for image in axes.images] for figure in alike]
    assert limits[0] == limits[1] == [(0.1, 1.6), (0, 0.8)]
    curves = [
        figures.pruning_curve({"by gradient": ([2, 0], [4.0, top])}, ([2, 0], [4, 4], [4, top]), 6.0)
        for top in (5.0, 9.0)
    ]
    figures.share_scales(curves)
    (one,), (other,) = (figure.axes for figure in curves)
    # heads are counted down from left to right in both
    assert one.get_ylim() == other.get_ylim() and one.get_ylim()[1] > 9 and one.get_xlim()[0] > one.get_xlim()[1]
    for figure in (*alike, *curves):
        FigureCanvasAgg(figure).draw()


def test_the_plane_has_the_unit_of_the_distances():
    points = embed_in_plane(np.array([[0, 0.5], [0.5, 0]]))
    assert abs(np.linalg.norm(points[0] - points[1]) - 0.5) < 1e-3
    plane, within = figures.head_plane(points, [1, 2], [1, 1], {1: 0.5}).axes
    assert plane.get_xlabel() == plane.get_ylabel() == "distance in two dimensions (nats)"
    assert within.get_ylabel() == "divergence (nats)"


@pytest.mark.parametrize(("apart", "shown"), [(1e-6, 1e-3), (0.3, 0.3)])
def test_heads_that_hardly_differ_lie_on_each_other(apart, shown):
    points = apart * np.array([[-0.5, 0.2], [0.5, -0.2], [0.1, 0.0]])
    plane = figures.head_plane(points, [1, 1, 2], [1, 2, 1], {1: apart}).axes[0]
    FigureCanvasAgg(plane.figure).draw()
    assert shown <= np.ptp(plane.get_xlim()) < 3 * shown


def test_the_names_of_ranks_and_their_legend_cover_no_head():
    ranks = np.array([12 * [16.0], 12 * [17.0]])
    by_stage = {"for QK^T": ranks, "before the softmax": ranks}
    figure = figures.effective_ranks(by_stage, {"key size d_k = 16": 16, "length N = 64": 64})
    FigureCanvasAgg(figure).draw()
    (axes,) = figure.axes
    plot = axes.get_window_extent()
    beside = [*axes.texts, axes.get_legend()]
    assert not any(plot.overlaps(each.get_window_extent()) for each in beside)
    assert not axes.get_legend().get_window_extent().overlaps(axes.title.get_window_extent())


def test_colour_bars_side_by_side_have_the_same_numbers():
    # or their scales would seem to differ
    alike = [figures.layer_head_heatmaps({"entropy": np.array([ends])}) for ends in ([0.4, 3.2], [0.2, 4.1])]
    figures.share_scales(alike)
    for figure in alike:
        FigureCanvasAgg(figure).draw()
    one, other = (list(figure.axes[-1].get_yticks()) for figure in alike)
    assert one == other
