"""Tokens of every script in the pictures: as text in an SVG, and by the fonts that this machine has in a PNG."""

from __future__ import annotations

import io
import warnings

import matplotlib
import numpy as np
import pytest
from matplotlib import font_manager

from experiments.heads import fonts, output
from experiments.heads.map_figures import attention_maps
from experiments.heads.section import Maps, Section

CHINESE, SCRIPT_A = "\u4eca\u5929", "\U0001d49c"  # the second: a letter that the default font lacks


@pytest.fixture
def bundled(monkeypatch):
    """A machine with matplotlib's own fonts alone."""
    own = [each for each in font_manager.fontManager.ttflist if matplotlib.get_data_path() in each.fname]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", own)
    fonts._chosen.cache_clear()
    yield
    fonts._chosen.cache_clear()


@pytest.mark.usefixtures("bundled")
def test_a_font_is_added_only_for_what_the_default_lacks():
    default = fonts.fonts_for(["the", "[CLS]"])
    assert default == matplotlib.rcParams["font.family"]
    more = fonts.fonts_for(["the", SCRIPT_A])
    assert more[: len(default)] == default and len(more) == len(default) + 1
    assert fonts.undrawable(["the", SCRIPT_A]) == "" and fonts.undrawable(["the", CHINESE, SCRIPT_A]) == CHINESE


@pytest.mark.usefixtures("bundled")
def test_a_token_is_drawn_by_the_font_that_has_it():
    figure = attention_maps({"1-1": np.eye(2)}, 1, ["the", SCRIPT_A], ["the", SCRIPT_A])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.savefig(io.BytesIO(), format="png")


@pytest.mark.usefixtures("bundled")
def test_a_token_without_a_font_is_named_once_and_is_text_in_the_svg(tmp_path):
    figure = attention_maps({"1-1": np.eye(2)}, 1, [CHINESE, "a"], [CHINESE, "a"])
    shown = Maps([CHINESE, "a"], [CHINESE, "a"], [np.eye(2)[None]])
    sections = [Section("Attention maps", "", {"maps": figure}, maps={"weights": shown})]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        output.save_sections(sections, tmp_path)
    assert (tmp_path / "maps.svg").read_text(encoding="utf-8").count(CHINESE) == 2
    assert output.undrawable_tokens(sections) == CHINESE
