"""How the page looks, in a headless Chromium: runs made to mislead, wide screens, pictures that leave the page."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

NOISE = (0.010, -0.012, 0.004, -0.006, 0.009, -0.005)  # of a seed, beside the baseline
# the height of a part of a picture, as a share of the plot between the first and the last line of its grid
HEIGHT = """
const box = (selector) => document.querySelector(`#curves ${selector}`).getBoundingClientRect();
return box(arguments[0]).height / (document.querySelector("#curves svg").getBoundingClientRect().height - 52);
"""


@pytest.fixture
def sweep(make):
    """sweep(variant, gain, seeds): six seeds or fewer, each `gain` lower than its baseline, but for some noise."""

    def leave(variant: str, gain: float = 0.0, seeds: int = 6, scale: float = 1.0, **more) -> None:
        for seed in range(seeds):
            last = 4.0 + 0.1 * seed - gain + (scale * NOISE[seed] if gain else 0)
            losses = (6.0 - gain, 5.0 - gain + 0.1 * seed, 4.5 - gain, last)
            make(f"{variant}-{more.get('heads')}-{seed}", losses, variant=variant, seed=seed, **more)

    return leave


def test_the_lowest_mean_without_a_verdict_is_told_beside_the_best(sweep, open_runs):
    sweep("multi_head")
    sweep("talking_heads", 0.2)
    sweep("lucky", 0.3, scale=30)
    answer = open_runs().text("#answer")
    assert answer.startswith(
        "talking_heads is better than multi_head by 0.2000 nats of validation loss (perplexity 18% lower; "
    )
    assert ". The lowest mean is that of lucky, lower by 0.3000 nats" in answer and ": not resolved" in answer


def test_means_over_other_seeds_are_hollow_and_on_no_front(sweep, open_runs):
    sweep("multi_head", speed=5000.0)
    # faster and with a lower mean, because its seeds are those of a low loss
    sweep("lucky", -0.05, seeds=3, speed=6000.0)
    shown = open_runs()
    assert shown.column("loss")[0].startswith("4.65") and shown.count("tr.rest") == 1
    assert shown.text("tr.rest th").endswith("lucky") and shown.js("return !document.getElementById('unlike').hidden")
    assert shown.count("#speed .ring") == 1 and shown.count("#speed .symbol.hollow") == 1
    assert "Hollow symbols are means over other seeds than the baseline's." in shown.text("#speed .note")
    assert shown.count("#parallel .line.hollow") == 1 and "Dotted lines are means" in shown.text("#parallel .note")
    assert shown.count("#losses .symbol.hollow") == 1 and "compare only their differences" in shown.text(
        "#curves .note"
    )
    saved = shown.js("return tableText(table.text(), 'md')")
    assert "| lucky * | 3 |" in saved and "*: over other seeds than the baseline's." in saved
    assert "lucky, higher by 0.05" in shown.text("#answer") and shown.complaints() == []


def test_one_lucky_seed_is_hollow_and_does_not_squeeze_the_others(sweep, open_runs):
    sweep("multi_head")
    sweep("talking_heads", 0.06, scale=0.1)
    sweep("lucky", 2.5, seeds=1)
    shown = open_runs()
    answer = shown.text("#answer")
    assert answer.startswith("talking_heads is better than multi_head by 0.0600 nats") and "lucky" not in answer
    assert shown.count("#forest [data-name=lucky] .beyond") == 1
    assert "Hollow means have no interval" in shown.text("#forest .note")
    assert shown.count("#forest [data-name=talking_heads] .symbol:not(.hollow)") == 1
    assert shown.complaints() == []


def test_the_answer_is_about_a_mean_with_an_interval_rather_than_about_one_lucky_seed(sweep, open_runs):
    sweep("multi_head")
    sweep("talking_heads", 0.02, scale=3)
    sweep("lucky", 0.7, seeds=1)
    shown = open_runs()
    answer = shown.text("#answer")
    assert "the lowest mean with an interval is that of talking_heads, lower by 0.02" in answer
    # which is lower all the same
    assert shown.text("#forest .row .name") == "lucky" and shown.complaints() == []


def test_curves_have_hollow_symbols_where_seeds_are_other_ones(sweep, open_runs):
    sweep("multi_head")
    sweep("lucky", 0.7, seeds=2)
    shown = open_runs()
    assert shown.count("#curves .symbol.hollow") == 2 and "Hollow symbols" in shown.text("#curves .note")
    # a difference is paired
    shown.choose("y", "difference from the baseline")
    assert shown.count("#curves .symbol.hollow") == 0 and shown.complaints() == []


def test_a_name_stands_where_its_line_ends_and_nothing_leads_on_as_if_the_line_did(sweep, open_runs):
    sweep("multi_head", heads=6)
    for heads in (6, 24):
        sweep("talking_heads", 0.1, heads=heads)
    shown = open_runs()
    ends = shown.js(
        "const box = (each) => each.getBoundingClientRect().toJSON();"
        "const texts = [...document.querySelectorAll('#heads .label')];"
        "const lines = [...document.querySelectorAll('#heads .leader')];"
        "return texts.map((text, place) => [text.textContent, box(text).x, box(lines[place]).width])"
    )
    (short, long) = sorted(ends, key=lambda end: end[1])
    assert (short[0], long[0]) == ("multi_head", "talking_heads") and max(short[2], long[2]) < 60
    assert short[1] < shown.box("#heads .chart")["width"] / 4


def test_the_reasons_why_runs_are_not_compared_are_said(make, sweep, open_runs):
    sweep("multi_head", seeds=2)
    edited = make("edited", variant="talking_heads") / "result.json"
    edited.write_text(edited.read_text().replace("4.5", "3.5"))
    make("nan", variant="talking_heads", seed=1, status="nan")
    make("cut", variant="talking_heads", seed=2, finished=False)
    shown = open_runs()
    said = shown.text("#left").removeprefix("Not compared: ").split(", ")
    assert sorted(said) == ["1 diverged", "1 edited afterwards", "1 not finished"]
    shown.click("#rest")
    # in full, in as many lines as it takes
    assert sorted(map(len, shown.column("seeds"))) == [1, len("0, 1 diverged, 1 not finished, 1 edited afterwards")]
    assert shown.complaints() == []


def test_what_the_baseline_is_better_than_is_said(sweep, open_runs):
    sweep("multi_head", speed=300.0)
    for variant in ("worse", "bad"):
        sweep(variant, -0.2, speed=100.0, cells_at_once=2)
    sweep("alone", -0.3, seeds=1)
    shown = open_runs()
    assert ", which is better than 2 of the 3 others. Of the others" in shown.text("#answer")
    # one pair is no comparison that a verdict could rest on
    assert "allow for 2 comparisons" in shown.text("#forest .note")
    assert shown.complaints() == []


def test_on_a_phone_the_columns_of_the_table_stand_beside_its_names(sweep, open_runs):
    sweep("a_variant_whose_name_is_as_long_as_they_come")
    sweep("another_variant_whose_name_is_as_long")
    shown = open_runs(390)
    assert shown.box("#table tbody th")["width"] < 0.5 * 390 and shown.box("#table tbody td")["right"] < 390
    # nothing is better, and the arrow that says where better is has no room
    assert shown.count("#forest .row") == 1 and shown.complaints() == []


def test_rows_without_a_verdict_do_not_squeeze_the_others(make, sweep, open_runs):
    sweep("multi_head")
    sweep("talking_heads", 0.2)
    # as high as single-token frequencies
    sweep("stuck", -2.4)
    shown = open_runs()
    row = "#forest [data-name=stuck]"
    assert shown.text(f"{row} .verdict") == "not tested" and "+2.4" in shown.text(row)
    assert shown.count(f"{row} .beyond") == 1 and shown.count(f"{row} .symbol") == shown.count(f"{row} .seed") == 0
    places = "const [low, high] = [0, -0.2].map((each) => forest.scale.pixel(each)); return low - high"
    assert shown.js(places) > shown.js("return forest.scale.end - forest.scale.start") / 2
    assert shown.count("#forest [data-name=talking_heads] .symbol") == 1 and shown.complaints() == []
    # without a verdict, but near enough
    sweep("diverges", 0.4)
    make("nan", variant="diverges", seed=6, status="nan")
    shown = open_runs()
    row = "#forest [data-name=diverges]"
    assert shown.text(f"{row} .verdict") == "not tested" and shown.count(f"{row} .symbol") == 1


def test_a_far_guide_is_named_at_the_edge_and_leaves_the_curves_their_room(make, open_runs):
    # evaluated twice: 4.02 and 4.0, far below the 6.5 of single-token frequencies
    make("a", losses=(3.6, 3.52, 3.51, 3.5))
    shown = open_runs()
    assert shown.text("#curves text.guide") == "\u25b4 single-token frequencies: 6.5000"
    assert shown.count("#curves line.guide") == 0 and shown.js(HEIGHT, ".line") > 0.8
    make("b", losses=(6.5, 5.0, 4.5, 4.0), seed=1)
    shown = open_runs()
    assert shown.text("#curves text.guide") == "single-token frequencies" and shown.count("#curves line.guide") == 1


def test_on_a_wide_screen_panels_fill_their_place(sweep, open_runs):
    for heads in (6, 12):
        sweep("multi_head", heads=heads)
        sweep("talking_heads", 0.2, heads=heads)
    shown = open_runs(3840)
    panels = ["forest", "curves", "speed", "memory", "heads", "parallel"]
    boxes = {name: shown.box(f"#{name}") for name in panels}
    for name, box in boxes.items():
        (bottom,) = shown.js(
            "return [Math.max(...[...document.querySelectorAll(`#${arguments[0]} svg text`)]"
            ".map((text) => text.getBoundingClientRect().bottom))]", name,
        )  # fmt: skip
        assert box["bottom"] - bottom < 60, name
    assert boxes["curves"]["top"] == boxes["forest"]["top"] and boxes["curves"]["bottom"] == boxes["speed"]["bottom"]
    assert boxes["heads"]["height"] == pytest.approx(boxes["parallel"]["height"])
    assert shown.js("return document.documentElement.scrollWidth") <= 3840 and shown.complaints() == []


@pytest.mark.parametrize("width", [390, 1280, 3840])
def test_with_heads_and_tables_nothing_sticks_out(make, measured, table, open_runs, width):
    measured(make("a"), sides=True)
    table("paper/heads", title="A long title. " * 30)
    shown = open_runs(width)
    page = "Emulation.setEmulatedMedia"
    colours = "const style = getComputedStyle(document.body); return [style.color, style.backgroundColor]"
    try:
        for theme in ("dark", "light"):
            features = [{"name": "prefers-color-scheme", "value": theme}]
            shown.browser.execute_cdp_cmd(page, {"features": features})
            assert shown.js("return document.documentElement.scrollWidth") <= width
            text, sheet = (sum(map(int, each[4:-1].split(","))) for each in shown.js(colours))
            assert (text > sheet) == (theme == "dark")
        shown.browser.execute_cdp_cmd(page, {"media": "print"})
        assert shown.js("return document.documentElement.scrollWidth") <= width
    finally:
        shown.browser.execute_cdp_cmd(page, {"media": "", "features": []})
    assert shown.complaints() == []


def test_each_kind_of_attention_of_an_encoder_decoder_is_shown(make, measured, open_runs):
    measured(make("a"), sides=True)
    shown = open_runs()
    names = [
        "self-attention of the encoder",
        "self-attention of the decoder",
        "attention of the decoder to the encoder",
    ]
    assert shown.options("attention") == names
    shown.choose("measure", "previous")
    assert shown.text("#measures .note") == "All are 0.25."
    shown.choose("attention", "cross")
    # between two sequences there is no previous token, and the menu says what is shown instead
    assert shown.text("#measures .note").startswith(
        "From 21.1"
    ) and "weight on the previous token" not in shown.options("measure")
    assert shown.js("return document.getElementById('measure').value") == "entropy"
    shown.browser.refresh()
    assert shown.js("return document.getElementById('attention').value") == "cross"
    assert shown.count("#plane .symbol") == 3 and shown.count("#projections .cell") == 4 * 6
    assert shown.complaints() == []


def test_a_zoom_of_each_chart_is_in_the_address(sweep, measured, make, open_runs):
    sweep("multi_head", heads=6)
    sweep("multi_head", heads=12)
    measured(make("measured", variant="multi_head", heads=6, seed=7))
    shown = open_runs()
    ticks = "return [...document.querySelectorAll(`${arguments[0]} .axes text`)].map((each) => each.textContent).join()"
    for chart in ("#heads-0", "#plane", "#speed"):
        whole = shown.js(ticks, chart)
        shown.press(f"{chart} svg.chart", "+")
        zoomed = shown.js(ticks, chart)
        shown.browser.refresh()
        assert shown.js(ticks, chart) == zoomed != whole, chart
    assert shown.complaints() == []


def test_heat_maps_are_saved_in_colours_that_every_program_reads(make, measured, open_runs):
    measured(make("a", variant="talking_heads"))
    shown = open_runs()
    assert shown.count("#measures .tools button") == shown.count("#projections .tools button") == 2
    picture = ElementTree.fromstring(shown.js("return pictureText(document.querySelector('#measures svg'))"))
    fills = {each.get("style").split(";")[0] for each in picture.iter() if each.get("class") == "cell"}
    assert len(fills) == 3 and all(fill.startswith("fill:rgb(") for fill in fills), fills


def test_any_of_fifteen_configurations_can_be_the_baseline(make, open_runs):
    for number in range(15):
        make(f"run-{number}", losses=(6.0, 5.0, 4.5, 4 + number / 10), variant=f"variant{number}")
    shown = open_runs()
    assert len(shown.options("baseline")) == 15
    shown.choose("baseline", "variant7")
    assert shown.count("#forest .row") == 14 and shown.complaints() == []


def test_names_say_no_conditions_that_all_that_are_compared_share(make, open_runs):
    for kind in ("masked", "causal"):
        for variant in ("multi_head", "talking_heads"):
            make(f"{kind}-{variant}", variant=variant, objective={"kind": kind})
    shown = open_runs()
    shown.choose("comparison", "1")
    named = shown.js("return [...document.querySelectorAll('#answer b')].map((each) => each.textContent)")
    assert named[:2] == ["multi_head", "talking_heads"] and "objective.kind" not in shown.text("#forest")
    assert "These are the runs with objective.kind" in shown.text("#answer") and shown.count("#forest .row") == 1
    shown.click("#rest")
    names = "return [...document.querySelectorAll('tbody [data-name]')].map((each) => each.title)"
    others = ["multi_head (objective.kind causal)", "talking_heads (objective.kind causal)"]
    assert sorted(shown.js(names)) in (
        sorted(["multi_head", "talking_heads", *others]),
        sorted(["multi_head", "talking_heads", *(name.replace("causal", "masked") for name in others)]),
    )
    assert shown.complaints() == []


def test_what_all_that_are_compared_share_stands_above_the_table(sweep, open_runs):
    sweep("multi_head", max_steps=40, speed=5000.0)
    sweep("talking_heads", 0.2, max_steps=40, speed=6000.0)
    sweep("multi_head", seeds=2, heads=6, max_steps=60)
    shown = open_runs()
    columns = "return [...document.querySelectorAll('thead [data-column]')].map((each) => each.dataset.column)"
    assert "max_steps 40" in shown.text("#shared") and "max_steps" not in shown.js(columns)
    assert {"loss", "tokens_per_second"} <= set(shown.js(columns))
    # with those of other conditions it differs
    shown.click("#rest")
    assert "max_steps 40" not in shown.text("#shared") and "max_steps" in shown.js(columns)
    assert shown.complaints() == []


def test_pictures_are_drawn_anew_for_a_sheet_and_then_for_the_screen(sweep, open_runs):
    sweep("multi_head", seeds=2)
    sweep("talking_heads", 0.2, seeds=2)
    shown = open_runs(3840)
    drawn = "return [forest, speed].map((each) => each.surface.viewBox.baseVal.width)"
    screen = shown.js(drawn)
    shown.js("dispatchEvent(new Event('beforeprint'))")
    forest, speed = shown.js(drawn)
    assert 760 < forest < 1050 < screen[0] and speed < forest / 2
    shown.js("dispatchEvent(new Event('afterprint'))")
    assert shown.js(drawn) == screen and shown.complaints() == []


def test_forty_rows_leave_room_for_the_answer_on_the_first_sheet(make, open_runs):
    for variant in range(42):
        for seed in range(2):
            make(f"{variant}-{seed}", (6.0, 5.0, 4.5, 4 + variant / 100), variant=f"variant{variant}", seed=seed)
    shown = open_runs()
    shown.js("dispatchEvent(new Event('beforeprint'))")
    drawn = shown.js("return forest.surface.viewBox.baseVal.height / forest.surface.viewBox.baseVal.width")
    # a sheet of letter paper is 1.36 times as high as wide between its margins
    assert shown.count("#forest .row") == 40 and drawn < 0.9 and shown.complaints() == []


def test_pictures_are_printed_as_wide_as_the_sheet_whatever_they_were_on_the_screen(sweep, open_runs):
    sweep("multi_head", seeds=2)
    sweep("talking_heads", 0.2, seeds=2)
    shown = open_runs(1280)
    shown.js("for (const each of [parallel, forest]) each.surface.style.width = '1200px'")
    shown.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        for panel in ("forest", "parallel"):
            assert shown.box(f"#{panel} > svg, #{panel} .scroll svg")["width"] == pytest.approx(
                shown.js("return document.querySelector(`#${arguments[0]} figcaption`).clientWidth", panel), abs=1
            )
    finally:
        shown.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_on_a_phone_a_row_of_the_first_panel_says_its_interval(sweep, open_runs):
    sweep("multi_head", seeds=4)
    sweep("talking_heads", 0.2, seeds=4)
    shown = open_runs(390)
    found = shown.text("#forest .row .numbers")
    low, high = re.findall(r"[\u2212+]\d\.\d{4}", found)[1:]
    assert found.startswith("\u2212") and f"[{low}, {high}]" in found and found.endswith("; seeds 4")
    # the sentence says by how much the loss is lower
    assert f"95% interval {high[1:]} to {low[1:]}" in shown.text("#answer")
    text, bar, row = (shown.box(f"#forest .row {part}") for part in (".numbers", ".symbol", ".back"))
    assert bar["bottom"] <= text["top"] and text["bottom"] <= row["bottom"] and text["right"] <= row["right"]
    assert shown.complaints() == []


def test_plus_and_minus_stand_for_the_standard_error_everywhere_and_brackets_for_the_interval(sweep, open_runs):
    sweep("multi_head", seeds=4)
    sweep("talking_heads", 0.2, seeds=4)
    shown = open_runs()
    heads = shown.js(
        "return [...document.querySelectorAll('#table thead th')].map((head) => [head.textContent,"
        " [...document.querySelectorAll(`#table tbody td:nth-child(${head.cellIndex + 1})`)]"
        ".some((cell) => cell.textContent.includes('\u00b1'))])"
    )
    assert any(has for _, has in heads) and all(("\u00b1 standard error" in head) == has for head, has in heads)
    assert "\u00b1" not in shown.text("#losses") and re.search(r"\[\d\.\d{4}, \d\.\d{4}\]", shown.text("#losses .row"))
    assert shown.complaints() == []


def test_a_mean_lies_where_its_seeds_do_although_it_is_rounded(sweep, open_runs):
    for variant in ("multi_head", "talking_heads"):
        sweep(variant, seeds=4, memory=381_984_768.0)
    shown = open_runs()
    lefts = (
        "return [...document.querySelectorAll('#memory .symbol')].map((each) => each.getBoundingClientRect())"
        ".map((box) => box.x + box.width / 2)"
    )
    found = shown.js(lefts)
    assert max(found) - min(found) < 1
    ticks = "return [...document.querySelectorAll('#memory .axes text')].map((each) => each.textContent)"
    assert len(set(shown.js(ticks))) == len(shown.js(ticks)) and shown.complaints() == []
