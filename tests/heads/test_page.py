"""The page of the heads in a browser, and what is said while its sections are made."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from experiments.commands import heads
from experiments.heads import figures, output, sections
from experiments.heads.options import HeadsOptions
from experiments.heads.section import Column, Maps, Section
from experiments.heads.sections import importance, rank
from tests.fixtures.browser import Opened


@pytest.mark.parametrize(("scheme", "lightness"), [("light", 255), ("dark", 33)])
def test_pictures_have_the_colour_of_their_card_in_the_light_and_in_the_dark(chromium, tmp_path, scheme, lightness):
    picture = figures.layer_head_heatmaps({"entropy (nats)": np.ones((2, 4))})
    path = tmp_path / "index.html"
    output.write_page(
        path, [Column("a run", "about it", [Section("Which heads matter", "a text", {"importance": picture})])]
    )
    opened = Opened(chromium, path, scheme=scheme)
    card = opened.js("return getComputedStyle(document.querySelector('section')).backgroundColor")
    assert [int(part) for part in card[4:-1].split(", ")] == pytest.approx(3 * [lightness], abs=6)
    filtered = opened.js("return getComputedStyle(document.querySelector('section img')).filter")
    # white is turned into 1 - 0.87 = 0.13 of 255
    assert filtered == {"light": "none", "dark": "invert(0.87) hue-rotate(180deg)"}[scheme]


def test_progress_names_the_section_that_is_made(monkeypatch):
    monkeypatch.setattr(importance, "make", lambda run, options: None)
    monkeypatch.setattr(rank, "make", lambda run, options: None)
    for module in (importance, rank):
        module.make.__module__ = module.__name__
    monkeypatch.setattr(sections, "SECTIONS", (importance.make, rank.make))
    shown = []
    display = SimpleNamespace(stage=lambda *stage: shown.append(stage))
    assert heads._sections(SimpleNamespace(name="a run"), HeadsOptions(), display) == []
    assert shown == [("heads of a run: importance", 0, 2), ("heads of a run: rank", 1, 2), ("heads of a run", 2, 2)]


def test_the_colours_of_a_map_have_their_scale_below_it(chromium, tmp_path):
    maps = {"weights": Maps(["a", "b"], ["c", "d"], [np.array([[[0.0, 0.25], [0.5, 0.25]]])])}
    path = tmp_path / "index.html"
    output.write_page(path, [Column("a run", "about it", [Section("Attention maps", "a text", maps=maps)])])
    opened = Opened(chromium, path)
    assert opened.complaints() == []
    # the ends of the scale have the colours of 0 and of the largest weight
    colours = opened.js(
        "const picture = document.querySelector('.enlarged'), context = picture.getContext('2d');"
        "const size = window.devicePixelRatio || 1;"
        "const at = (x, y) => [...context.getImageData(x * size, y * size, 1, 1).data].join();"
        "const left = 14 + 6.6, cell = 280, bottom = picture.height / size;"
        "return [at(left + 0.5 * cell, left + 0.5 * cell), at(21, bottom - 25),"
        " at(left + 0.5 * cell, left + 1.5 * cell), at(21 + 199, bottom - 25)]"
    )
    assert colours[0] == colours[1] == "255,255,255,255" and colours[2] == colours[3] != colours[0]


@pytest.mark.parametrize("width", [390, 1280, 3840])
def test_pictures_are_large_enough_and_wide_screens_are_used(chromium, tmp_path, width):
    picture = figures.layer_head_heatmaps({"entropy (nats)": np.ones((2, 4))})
    path = tmp_path / "index.html"
    made = [Section(f"Section {number}", "a text", {f"picture_{number}": picture}) for number in range(4)]
    output.write_page(path, [Column("a run", "about it", made)])
    opened = Opened(chromium, path, width)
    # a letter of 7 points is at least 6 high
    assert opened.box("figure img")["width"] > 600
    assert opened.js("return document.documentElement.scrollWidth") <= width
    lefts = opened.js("return [...document.querySelectorAll('section')].map((each) => each.getBoundingClientRect().x)")
    assert len(set(lefts)) == (4 if width == 3840 else 1) and opened.complaints() == []
    # two runs stay below their names
    output.write_page(tmp_path / "beside.html", 2 * [Column("a run", "about it", made)])
    beside = Opened(chromium, tmp_path / "beside.html", width)
    places = "return [...document.querySelectorAll(arguments[0])].map((each) => each.getBoundingClientRect().x)"
    assert len(set(beside.js(places, "section"))) == 1
    if width > 760:
        names, pictures = (beside.js(places, place) for place in ("h1", "figure"))
        assert pictures == pytest.approx(4 * names, abs=60)
