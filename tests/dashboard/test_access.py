"""The page without a mouse and without good eyes: contrast, focus, and the names of pictures."""

from __future__ import annotations

import re

import pytest

from experiments.dashboard.page import ASSETS

STYLE = (ASSETS / "page.css").read_text(encoding="utf-8")
RULES = re.findall(r"([^{}]+)\{([^{}]*)\}", re.sub(r"/\*.*?\*/", "", STYLE, flags=re.S))
READABLE = 4.5  # the contrast of text that WCAG 2 asks for (level AA)
THEMES = ("light", "dark")


def custom_properties(theme: str) -> dict[str, str]:
    """The colours of a theme: name -> #rrggbb."""
    values = {}
    for name, value in re.findall(r"--(\w+): ([^;]+);", STYLE):
        pair = re.fullmatch(r"light-dark\((#\w+), (#\w+)\)", value)
        values[name] = pair[1 + THEMES.index(theme)] if pair else value
    return values


def luminance(colour: str) -> float:
    """The relative luminance of #rrggbb (WCAG 2)."""
    shares = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def text_colours() -> set[str]:
    """The custom properties in which the style sheet sets text, in HTML by `color` and in pictures by `fill`."""
    names = set()
    for selector, body in RULES:
        names |= set(re.findall(r"(?<![\w-])color: var\(--(\w+)\)", body))
        if re.search(r"\btext\b|\.label", selector):
            names |= set(re.findall(r"fill: var\(--(\w+)\)", body))
    return names


def test_contrast_is_that_of_the_standard():
    assert contrast("#000000", "#ffffff") == pytest.approx(21) and contrast("#777777", "#777777") == 1
    # the darkest grey that is readable on white, and the next one
    assert contrast("#767676", "#ffffff") > READABLE > contrast("#777777", "#ffffff")


@pytest.mark.parametrize("theme", THEMES)
def test_every_colour_of_text_is_readable_on_the_page_and_on_its_sheets(theme):
    known, names = custom_properties(theme), text_colours()
    assert {"text", "faint", "better", "worse", "page"} <= names
    # a tip is written in the colour of the page on that of text
    assert contrast(known["page"], known["text"]) >= READABLE
    found = {
        (name, under): contrast(known[name], known[under])
        for name in names - {"page"} for under in ("page", "sheet", "hover", "chosen")
    }  # fmt: skip
    assert {pair: ratio for pair, ratio in found.items() if ratio < READABLE} == {}


def test_no_text_is_made_transparent():
    faded = [selector.strip() for selector, body in RULES if re.search(r"(?<![\w-])opacity: 0?\.", body)]
    texts = [selector for selector in faded if re.search(r"\btext\b|label|button$|small|note|\.pin", selector)]
    assert texts == []


@pytest.fixture
def shown(make, measured, table, open_runs):
    for variant, better in (("multi_head", 0.0), ("talking_heads", 0.2)):
        for seed in range(2):
            measured(make(f"{variant}-{seed}", (6.0, 5.0, 4.5, 4.0 - better + 0.1 * seed), variant=variant, seed=seed))
    make("cut", variant="talking_heads", seed=2, finished=False)
    table("paper/heads")
    return open_runs()


def test_tab_reaches_every_control_and_shows_where_it_is(shown):
    controls = "button, select, input, summary, [tabindex='0'], a[href]"
    expected = shown.js(
        "return [...document.querySelectorAll(arguments[0])].filter((each) => each.checkVisibility())"
        ".map((each, place) => (each.dataset.place = place))", controls,
    )  # fmt: skip
    found = {}
    # the mark of focus: an outline, or the frame of a row of intervals
    focused = """
      const at = document.activeElement;
      const style = getComputedStyle(at.querySelector(":scope > .back") ?? at);
      const isFramed = style.stroke !== "none" && style.stroke !== "" && parseFloat(style.strokeWidth) >= 2;
      return [at.dataset.place ?? null, at.outerHTML.slice(0, 80),
        (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1) || isFramed];
    """
    shown.js("document.body.focus()")
    for _ in range(len(expected) + 5):
        shown.press_key("\ue004")
        place, element, is_marked = shown.js(focused)
        if place is not None:
            found[int(place)] = (element, is_marked)
    assert set(expected) - set(found) == set()
    assert [element for element, is_marked in found.values() if not is_marked] == []
    assert shown.complaints() == []


def test_every_picture_has_a_name_and_says_what_it_shows(shown):
    pictures = shown.js("""
      return [...document.querySelectorAll("figure svg.chart, svg.forest, svg.heat, svg.bars")]
        .filter((each) => each.checkVisibility())
        .map((each) => [each.getAttribute("aria-label"), each.getAttribute("role"),
          document.getElementById(each.getAttribute("aria-describedby"))?.textContent ?? ""]);
    """)
    assert len(pictures) >= 8 and all(name and role and len(said) > 10 for name, role, said in pictures), pictures
    rows = shown.js("return [...document.querySelectorAll('#forest .row')].map((each) => each.ariaLabel)")
    assert rows and all("nats" in row and "not resolved" in row for row in rows)
    menus = shown.js(
        "return [...document.querySelectorAll('select, input')].filter((each) => !each.labels?.length)"
        ".map((each) => each.id)"
    )
    assert menus == [] and shown.complaints() == []
