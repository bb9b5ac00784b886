"""Numbered discs stand apart, near their places, the same every time."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from experiments.heads import figures
from experiments.heads.numbered_discs import DIAMETER, NumberedDiscs, moved_apart

LOW, HIGH = np.zeros(2), np.full(2, 100.0)


def distances(places):
    return np.linalg.norm(places[:, None] - places[None], axis=2)[np.triu_indices(len(places), 1)]


def test_discs_that_are_apart_stay():
    places = np.array([[10.0, 10], [20, 10], [50, 90]])
    assert np.array_equal(moved_apart(places, 10, LOW, HIGH), places)


def test_of_two_discs_at_one_place_the_second_moves_up_by_its_diameter():
    places = np.array([[50.0, 50], [50, 50]])
    assert moved_apart(places, 10, LOW, HIGH) == pytest.approx(np.array([[50, 50], [50, 60.1]]))


def test_a_disc_that_moves_takes_no_place_of_one_that_stays():
    # the third is where the second would go
    places = np.array([[50.0, 50], [50, 50], [50, 60.5]])
    moved = moved_apart(places, 10, LOW, HIGH)
    assert np.array_equal(moved[[0, 2]], places[[0, 2]]) and distances(moved).min() >= 10


@pytest.mark.parametrize("corner", [(0.0, 0.0), (100.0, 50.0), (50.0, 50.0)])
def test_many_at_one_place_stand_apart_within_the_box(corner):
    moved = moved_apart(np.tile(corner, (36, 1)), 10, LOW, HIGH)
    assert distances(moved).min() >= 10 and moved.min() >= 0 and moved.max() <= 100
    # they are no further out than discs that fill a quarter of their area would be
    assert np.linalg.norm(moved - corner, axis=1).max() < 10 * 2 * np.sqrt(36)


def test_where_nothing_is_free_discs_stay():
    places = np.full((3, 2), 2.0)
    assert np.array_equal(moved_apart(places, 10, np.zeros(2), np.full(2, 4.0)), places)


@pytest.mark.parametrize("spread", [0.0, 1e-6, 0.1])
def test_numbers_of_alike_heads_are_apart_in_the_picture_and_the_legend_covers_none(spread):
    points = spread * np.random.default_rng(0).normal(size=(48, 2))
    layers = [1 + number // 24 for number in range(48)]
    figure = figures.head_plane(points, layers, [1 + number % 24 for number in range(48)], {1: 0.1, 2: 0.2})
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    plane = figure.axes[0]
    (discs,) = [each for each in plane.get_children() if isinstance(each, NumberedDiscs)]
    boxes = [text.get_window_extent() for text in discs.texts]
    assert sorted(text.get_text() for text in discs.texts) == sorted(2 * [str(1 + head) for head in range(24)])
    assert not [(i, j) for i, one in enumerate(boxes) for j, other in enumerate(boxes) if i < j and one.overlaps(other)]
    legend = plane.get_legend().get_window_extent()
    assert not any(legend.overlaps(box) for box in boxes)
    # the line of each head begins at its place and ends in its disc
    places = plane.transData.transform(points)
    starts, ends = (np.array([line[end] for line in discs.lines.get_segments()]) for end in (0, -1))
    assert starts == pytest.approx(places) and ends == pytest.approx(np.array(discs.discs.get_offsets()))
    assert distances(ends).min() >= canvas.get_renderer().points_to_pixels(DIAMETER)
