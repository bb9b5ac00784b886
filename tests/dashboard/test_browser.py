"""The page in a headless Chromium: every panel draws, everything that can be clicked works, nothing is fetched."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest

from experiments.commands.dashboard import write_dashboard
from experiments.dashboard.page import page, page_data
from experiments.record.folder import RunFolder
from tests.fixtures.browser import Opened
from tests.fixtures.record import leave_result

EVIL = "<img src=x onerror=document.title='owned'>"
PANELS = ("curves", "speed", "memory", "heads-0")
# pairs of texts of one picture that overlap; what stands upright is the title of the y axis
OVERLAPS = """
const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
return [...document.querySelectorAll("figure:not([hidden]) svg.chart, svg.heat")].flatMap((picture) => {
  const texts = [...picture.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
  return texts.flatMap(([name, box], at) =>
    texts.slice(at + 1).filter(([, other]) => !apart(box, other)).map(([other]) => [name, other]));
});
"""


@pytest.fixture
def open_page(chromium, make, tmp_path):
    """The page of twelve runs, three seeds of two variants with two numbers of heads; one has HTML for a name."""

    def opened(width: int = 1280) -> Opened:
        for variant, better in (("multi_head", 0.0), ("talking_heads", 0.2)):
            for heads in (6, 24):
                for seed in range(3):
                    losses = tuple(4 + 2 / step - better + 0.05 * seed + 0.01 * heads for step in range(1, 9))
                    name = EVIL if (variant, heads, seed) == ("multi_head", 6, 0) else f"{variant}-{heads}-{seed}"
                    speed, memory = 9000 - 3000 * 5 * better - 40 * heads + seed, 5e8 + 1e9 * better + 1e6 * heads
                    make(name, losses, variant=variant, heads=heads, seed=seed, speed=speed, memory=memory)
        write_dashboard([], tmp_path / "runs", tmp_path / "page.html", watch=False, show=False)
        return Opened(chromium, tmp_path / "page.html", width)

    return opened


def test_every_panel_draws_and_nothing_else_is_loaded(open_page):
    shown = open_page()
    for panel in PANELS:
        assert shown.count(f"#{panel} .symbol") > 0, panel
        assert shown.count(f"#{panel} .axes text") > 4, panel
    # three seeds have no interval: they are drawn as thin lines and small dots
    assert shown.count("#curves .line:not(.faint)") == 4 and shown.count("#curves .line.faint") == 12
    assert shown.count("#curves .band") == 0 and shown.count("#curves .label") == 4
    assert shown.count("#speed .symbol:not(.faint)") == shown.count("#memory .symbol:not(.faint)") == 4
    assert shown.count("#speed .symbol.faint") == 12
    # multi_head and then talking_heads with 6 heads: the means of the others are beaten in both
    assert shown.count("#speed path.front") == shown.count("#memory path.front") == 1
    assert (shown.count("#speed .ring"), shown.count("#memory .ring")) == (2, 2)
    # variant, heads; loss, speed, memory: the seed has no axis
    assert shown.count("#parallel .axis") == 5 and shown.count("#parallel .line") == 4
    assert shown.count("tbody tr") == 4 and shown.text("#count") == "4 configurations, 12 of 12 runs"
    assert shown.count("#forest .row") == 3 and shown.box("#losses")["height"] == 0
    assert "hidden_size 96" in shown.text("#shared")
    assert shown.complaints() == []
    assert len(shown.requests()) == 1


def test_every_logged_number_smoothing_and_logarithms(open_page):
    shown = open_page()
    assert {"tokens per second", "peak memory (bytes)"} <= set(shown.options("y"))
    shown.choose("y", "tokens per second")
    assert shown.count("#curves .line") == 4 and "Tokens per second" in shown.text("#curves svg")
    shown.choose("y", "training loss")
    title = "return [...document.querySelectorAll('#curves .title')].map((each) => each.textContent).join()"
    line = "return document.querySelector('#curves .line:not(.faint)').getAttribute('d')"
    before = shown.js(line)
    shown.js("smooth.value = 0.9; smooth.dispatchEvent(new Event('input'))")
    assert shown.js(line) != before and "weight of the past is 0.9" in shown.text("#curves .note")
    shown.click("#logx"), shown.click("#logy")
    assert shown.js(title) == "Tokens, logarithmic,Training loss (nats per predicted token), logarithmic"
    assert shown.complaints() == []


def test_pointing_at_one_x_tells_all_curves(open_page):
    shown = open_page()
    box = shown.box("#curves svg")
    shown.hover(box["x"] + 0.4 * box["width"], box["y"] + 0.5 * box["height"])
    assert shown.count("#curves .tip .swatch") == 4 and shown.count("#curves .tip b") == 1
    assert shown.text("#curves .tip div").startswith("tokens ") and shown.complaints() == []


def test_columns_are_chosen_and_pinned_and_stay_in_sight(open_page):
    shown = open_page(700)
    shown.click("[data-pin=loss]")
    order = "return [...document.querySelectorAll('thead [data-column]')].map((each) => each.dataset.column)"
    assert shown.js(order)[:2] == ["name", "loss"]
    cells = "[...document.querySelectorAll('tbody tr:first-child > *')]"
    lefts = f"return {cells}.map((cell) => cell.getBoundingClientRect().left)"
    before = shown.js(lefts)
    shown.js("document.querySelector('#table .scroll').scrollLeft = 300")
    after = shown.js(lefts)
    assert after[:2] == pytest.approx(before[:2]) and after[3] < before[3]
    shown.js("document.querySelector('#columns input').click()")
    assert "seeds" not in shown.js(order) and shown.complaints() == []


def test_what_is_saved_is_what_is_shown(open_page):
    shown = open_page()
    lines = shown.js("return tableText(table.numbers(), 'csv')").splitlines()
    assert lines[0].startswith("configuration,seeds") and len(lines) == 5
    assert lines[1].startswith('"talking_heads, heads 6",3') and ",4.66," in lines[1]
    text = "return tableText(table.text(), arguments[0])"
    title, rule, first, *_ = shown.js(text, "md").splitlines()
    assert "| Validation loss (nats per predicted token) |" in title and rule.startswith("| --- | --- |")
    assert first.startswith("| talking_heads, heads 6 | 3 |") and "| 4.6600 \u00b10.0289 |" in first
    assert r"talking\_heads, heads 6 & 3" in shown.js(text, "tex") and r"4.6600 $\pm$0.0289" in shown.js(text, "tex")
    for panel in ("curves", "forest", "parallel"):
        picture = ElementTree.fromstring(shown.js(f"return pictureText(document.querySelector('#{panel} svg'))"))
        styled = [
            each.get("style") for each in picture.iter() if each.get("class", "").startswith(("line", "interval"))
        ]
        assert "var(" not in " ".join(filter(None, styled)) and float(picture.get("width")) > 500
    shown.js("window.saved = []; save = (name, blob) => saved.push([name, blob.size])")
    for button in shown.browser.find_elements("css selector", "#forest .tools button"):
        button.click()
    shown.wait("return saved.length === 2")
    assert {name for name, size in shown.js("return saved") if size > 1000} == {"forest.svg", "forest.png"}
    assert shown.complaints() == []


def test_the_heads_of_the_chosen_run(open_page, make, measured):
    measured(make("multi_head-7-0", heads=7), talking=False)
    measured(make("talking_heads-7-0", heads=7, variant="talking_heads"), value_head=True)
    shown = open_page()
    visible = "return !document.getElementById(arguments[0]).hidden"
    # the first in the table's order that has any
    assert shown.text("#whose b") == "multi_head-7-0" and "2 runs here" in shown.text("#whose")
    assert shown.count("#measures .cell") == 3 and not shown.js(visible, "projections")
    shown.press("#measures svg", "\ue014", "\ue014")
    assert "layer 1, head 2: r12" in shown.text("#measures .tip")
    shown.press("#measures svg", "\ue015")
    assert "layer 1, head 2" in shown.text("#measures .tip")
    shown.choose("measure", "gradient")
    assert "From 0.5" in shown.text("#measures .note") and shown.count("#plane .symbol") == 3
    shown.type("talking_heads-7-0")
    shown.click("tbody tr button[data-name]")
    assert shown.text("#whose b") == "talking_heads-7-0"
    # the first layer's are as many; in the second a value head is not the softmax head of its number
    shown.press("#measures svg", "\ue014")
    assert shown.text("#measures .tip div") == "layer 1, head 2: r12" and "entropy" in shown.text("#measures .tip")
    shown.press("#measures svg", "\ue015")
    assert shown.text("#measures .tip div") == "layer 2, value head 2" and "entropy" not in shown.text("#measures .tip")
    assert shown.count("#projections .cell") == 4 * 6
    shown.press("#projections svg", "\ue014", "\ue015")
    assert shown.text("#projections .tip div:last-child") == "head 2 into head 1: 21"
    shown.type("multi_head-24-1")
    shown.click("tbody tr button[data-name]")
    assert "has not measured" in shown.text("#whose") and not shown.js(visible, "measures")
    assert shown.complaints() == [] and len(shown.requests()) == 1


def test_the_papers_tables_and_their_claims(open_page, table):
    table("paper/heads", title=EVIL)
    shown = open_page()
    assert shown.text("#papers summary b") == EVIL
    marks = "return [...document.querySelectorAll('#papers summary .verdict')].map((each) => each.textContent).join()"
    assert shown.js(marks) == "\u2713 C7,? C8"
    assert shown.text("#papers tbody tr:last-child") == "th64.10001.2" and shown.count("#papers tbody tr") == 2
    assert shown.text("#papers ul li") == "th6 > mh6: +0.1" and shown.count("img") == 0
    # the table of runs is another
    assert shown.count("#table tbody tr") == 4
    assert shown.complaints() == [] and len(shown.requests()) == 1


def test_a_name_with_html_stays_text(make, open_runs):
    make(EVIL, variant=EVIL)
    make("b", seed=1, variant=EVIL)
    make("c", variant="multi_head")
    shown = open_runs()
    shown.type("<img")
    assert shown.js("return document.querySelector('tbody button[data-name]').title") == EVIL
    shown.click("tbody button[data-name]")
    shown.click("tbody .fold")
    assert shown.text("#chosen b") == EVIL and EVIL in shown.js("return document.querySelector('[data-run]').title")
    shown.press("#speed svg", "\ue014")
    assert EVIL in shown.text("#speed .tip")
    assert shown.count("img") == 0 and shown.browser.title == "attn: comparison of runs"
    assert shown.complaints() == []


def test_the_legend_hides_a_variant_everywhere(open_page):
    shown = open_page()
    shown.click("[data-group=multi_head]")
    assert [shown.count(f"#{panel} .symbol:not(.faint)") for panel in ("speed", "memory", "heads")] == [2, 2, 2]
    assert shown.count("#curves .line:not(.faint)") == 2 and shown.count("#parallel .line") == 2
    assert set(shown.column("variant")) == {"talking_heads"}
    shown.click("[data-group=multi_head]", shiftKey=True)
    assert set(shown.column("variant")) == {"multi_head"}
    shown.click("#clear")
    assert shown.count("tbody tr") == 4 and shown.complaints() == []


def test_curves_of_loss_and_perplexity_against_tokens_steps_and_time(open_page):
    shown = open_page()
    titles = set()
    each = "[...document.querySelectorAll('#curves .axes .title')].map((title) => title.textContent)"
    for y in ("validation loss", "validation perplexity", "training loss", "training perplexity"):
        for x in ("tokens", "step", "seconds"):
            shown.choose("y", y)
            shown.choose("x", x)
            assert shown.count("#curves .line:not(.faint)") == 4
            titles.add(shown.js(f"return {each}.join()"))
    assert len(titles) == 12 and "Time (h:mm:ss),Training perplexity, logarithmic" in titles
    shown.choose("lines", "runs")
    assert shown.count("#curves .line") == 12 and shown.count("#curves .band") == 0
    shown.choose("by", "heads")
    assert shown.count("#curves .line") == 12 and shown.text("#legend button").startswith("6")
    assert shown.complaints() == []


def test_zoom_by_mouse_button_and_keyboard_is_in_the_address(open_page):
    shown = open_page()
    ticks = "return [...document.querySelectorAll('#curves .axes text')].map((each) => each.textContent).join()"
    whole = shown.js(ticks)
    shown.drag("#curves svg", (0.3, 0.4), (0.6, 0.8))
    zoomed = shown.js(ticks)
    assert zoomed != whole
    shown.browser.refresh()
    assert shown.js(ticks) == zoomed
    shown.js("document.querySelector('#curves svg').dispatchEvent(new MouseEvent('dblclick'))")
    assert shown.js(ticks) == whole
    shown.click("#curves .tools button")
    assert shown.js(ticks) != whole
    shown.press("#curves svg", "0")
    assert shown.js(ticks) == whole
    shown.press("#curves svg", "+")
    assert shown.js(ticks) != whole and shown.complaints() == []


def test_the_keyboard_reads_points_and_chooses_configurations(open_page):
    shown = open_page()
    shown.press("#memory svg", "\ue014")
    first = shown.text("#memory .tip")
    tip, point = (shown.box(f"#memory {part}") for part in (".tip", ".cursor"))
    assert abs(tip["x"] - point["x"]) < 40 + tip["width"] and abs(tip["y"] - point["y"]) < 40 + tip["height"]
    shown.press("#memory svg", "\ue014", "\ue014")
    assert shown.text("#memory .tip") != first
    shown.press("#memory svg", "\ue015", "\ue007")
    assert shown.count("tr[aria-selected=true]") == 1 and shown.count("#speed .symbol.selected") == 1
    assert "differs from the baseline in" in shown.text("#chosen")
    shown.press("#forest .row", "\ue015")
    assert shown.js("return document.activeElement === document.querySelectorAll('#forest .row')[1]")
    shown.press("body", "/")
    assert shown.js("return document.activeElement.id") == "filter"
    shown.js("document.activeElement.blur()")
    shown.press("body", "t")
    assert shown.js("return document.documentElement.style.colorScheme") == "dark"
    assert shown.complaints() == []


def test_the_keyboard_goes_on_from_the_point_that_was_chosen_or_zoomed_to(open_page):
    shown = open_page()
    up, left, right, enter = "\ue013", "\ue012", "\ue014", "\ue007"
    shown.press("#curves svg", right, up, right)
    read = shown.text("#curves .tip")
    assert read.startswith("talking_heads, heads 24") and "tokens 4,000" in read
    shown.press_key(enter, "+")
    ring = "return document.querySelector('#curves .cursor').getAttribute('visibility')"
    assert shown.text("#curves .tip") == read and shown.js(ring) == "visible"
    shown.press_key(left)
    before = shown.text("#curves .tip")
    assert before.startswith("talking_heads, heads 24") and "tokens 2,000" in before
    # there is no such point among the losses of training
    shown.choose("y", "training loss")
    assert shown.js("return document.querySelector('#curves .tip').hidden") and shown.complaints() == []


def test_what_a_finger_meets_is_read_after_it_is_lifted(open_page, make, measured):
    measured(make("multi_head-48-0", heads=48))
    shown = open_page(390)
    tap = """
const picture = document.querySelector(`${arguments[0]} svg:is(.chart, .heat)`);
const box = picture.querySelector(".symbol:not(.faint), .cell").getBoundingClientRect();
const place = {clientX: box.x + box.width / 2, clientY: box.y + box.height / 2};
const target = arguments[2] ? document.body : picture;
// the events of a finger, in the order of the standard
for (const kind of arguments[1])
  target.dispatchEvent(new PointerEvent(kind, {bubbles: true, pointerType: "touch", ...place}));
return document.querySelector(`${arguments[0]} .tip`).hidden;
"""
    for panel in ("#speed", "#measures"):
        assert not shown.js(tap, panel, ["pointerdown", "pointerup", "pointerout", "pointerleave"], False)
        # until the page is scrolled, or something else is met
        assert shown.js(tap, panel, ["pointerdown", "pointermove", "pointercancel", "pointerleave"], False)
        assert not shown.js(tap, panel, ["pointerdown", "pointerup", "pointerleave"], False)
        assert shown.js(tap, panel, ["pointerdown"], True)
    assert shown.complaints() == []


def test_a_range_on_an_axis_keeps_its_configurations_in_every_panel(open_page):
    shown = open_page()
    shown.press("#parallel .axis:nth-of-type(3)", "\ue013")
    assert set(shown.column("heads")) == {"6"} and shown.count("#speed .symbol:not(.faint)") == 2
    shown.press("#parallel .axis:nth-of-type(3)", "\ue00c")
    assert shown.count("tbody tr") == 4
    shown.drag("#parallel .axis:nth-of-type(3) .grip", (0.5, 0.02), (0.5, 0.4))
    assert set(shown.column("heads")) == {"24"}
    assert shown.complaints() == []


def test_the_table_sorts_and_filters(open_page):
    shown = open_page()
    losses = shown.column("loss")
    assert losses == sorted(losses)
    shown.click("[data-column=loss]")
    assert shown.column("loss") == losses[::-1]
    assert shown.js("return document.querySelector('th[aria-sort=descending]').textContent").startswith(
        "Validation loss"
    )
    shown.type("heads>=24 !multi")
    assert shown.column("heads") == ["24"] and shown.count("#speed .symbol:not(.faint)") == 1
    shown.type("haeds=3")
    assert shown.js("return document.getElementById('filter').getAttribute('aria-invalid')") == "true"
    assert shown.text("#fault") == "there is no haeds: did you mean heads?"
    assert shown.count("tbody tr") == 4
    shown.type("hea")
    assert "heads=" in shown.js(
        "return [...document.querySelectorAll('#completions option')].map((each) => each.value)"
    )
    assert shown.complaints() == []


def test_what_was_chosen_is_kept_when_the_page_is_loaded_again(open_page):
    shown = open_page()
    shown.click("[data-group=multi_head]")
    shown.choose("x", "step")
    shown.type("heads=24")
    shown.browser.refresh()
    assert shown.text("#count").startswith("1 of 4 configurations, 3 of 12 runs")
    assert shown.js("return document.getElementById('x').value") == "step"
    assert shown.js("return document.getElementById('filter').value") == "heads=24"


def test_what_is_folded_is_in_the_address(open_page, table):
    table("paper/heads"), table("paper/sizes")
    shown = open_page()
    parts = ["#groups", ".choice", "#paper-tables > :first-child", "#paper-tables > :last-child"]
    unfolded = "return arguments[0].map((part) => document.querySelector(part).open)"
    assert shown.js(unfolded, parts) == [True, False, True, False] and shown.js("return location.hash") == ""
    for part in parts:
        shown.click(f"{part} > summary")
    assert shown.js(unfolded, parts) == [False, True, False, True]
    shown.wait("return Object.keys(state.unfolded).length === 4")
    shown.browser.refresh()
    assert shown.js(unfolded, parts) == [False, True, False, True]
    # another address over that of the page
    shown.js("location.hash = encodeURIComponent(JSON.stringify({filter: 'heads=24', unfolded: {groups: true}}))")
    shown.wait("return document.readyState === 'complete' && typeof state !== 'undefined' && state.filter")
    assert shown.js(unfolded, parts) == [True, False, True, False] and set(shown.column("heads")) == {"24"}
    assert shown.complaints() == []
    # values that cannot be, in an address that somebody edited
    shown.js("location.hash = encodeURIComponent(JSON.stringify({filter: null, zoom: null, rows: 'x', sort: 'heads'}))")
    shown.wait("return document.readyState === 'complete' && typeof state !== 'undefined' && state.sort === 'heads'")
    assert shown.js("return [state.filter, typeof state.zoom, typeof state.rows]") == ["", "object", "number"]
    assert len(shown.column("heads")) == 4 and shown.complaints() == []


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_sticks_out(open_page, width):
    shown = open_page(width)
    assert shown.js("return document.documentElement.scrollWidth") <= width
    assert shown.count("#heads .symbol") == 4 and shown.complaints() == []
    assert shown.js("return document.getElementById('groups').open") == (width > 760)


def test_a_printed_page_cuts_nothing_off(open_page):
    shown = open_page()
    drawn = shown.js("return document.querySelector('#parallel svg').getBoundingClientRect().right")
    # the width of a sheet of A4 between its margins; what is drawn already is not drawn anew for it
    size = {"width": 720, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    shown.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        shown.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        parts = "['#parallel svg', '#table table'].map((name) => document.querySelector(name))"
        edges = shown.js(f"return {parts}.map((part) => part.getBoundingClientRect().right)")
        assert drawn > 720 and max(edges) <= 720, edges
        # what a sheet of paper has no use for
        for part in (".left label", ".keys", ".tools", "header .controls"):
            assert shown.box(part)["height"] == 0, part
        assert shown.box("#written")["height"] > 0
        seen = "return document.querySelector('#parallel .note').innerText"
        assert shown.js(seen) == "A line is a configuration, and its outcomes are means."
        # a page never ends between the head of the table and its first rows
        style = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
        assert shown.js(style, "#table tbody tr", "breakBefore") == "avoid"
        assert shown.js(style, "#shared", "breakAfter") == "avoid"
        # buttons are missing where the head is repeated, so its names are texts
        heads = "[...document.querySelectorAll('#table th[data-title]')]"
        named = f"return {heads}.map((each) => getComputedStyle(each, '::before').content)"
        assert {'"name"', '"Perplexity"'} <= set(shown.js(named)) and shown.box("#table thead button")["height"] == 0
    finally:
        shown.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


@pytest.mark.parametrize("width", [360, 1280])
def test_texts_stand_apart_and_in_their_sheet(open_page, make, measured, width):
    measured(make("talking_heads-7-0", heads=7, variant="talking_heads"))
    shown = open_page(width)
    # long numbers beside a title, a guide at the bottom, more maps than fit into a line
    shown.js("""
      for (const chart of [curves, memory])
        chart.draw({x: {title: "x"}, y: {title: "Validation loss (nats per predicted token)"},
          guides: [{y: 6.5411, name: "guide"}],
          series: [{group: 0, symbols: true, points: [{x: 523, y: 6.5412}, {x: 557, y: 6.5419}]}]});
      const values = Array.from({length: 6}, () => Array(6).fill(0.5));
      const names = ["P_l", "P_w", "P_l P_w"];
      const tiles = names.flatMap((name) => [1, 2, 3].map((layer) => ({title: `${name}, layer ${layer}`, values})));
      projections.draw({tiles, across: 3, range: [0, 1], text: () => []});
    """)
    assert shown.js(OVERLAPS) == []
    # each matrix begins a line of its own
    tops = shown.js(
        "return [...document.querySelectorAll('#projections .title')].map((each) => each.getAttribute('y'))"
    )
    assert tops[2] != tops[3] and tops[5] != tops[6] and (tops[0] == tops[2]) == (width > 500)
    # the menu of measures, and what hangs below the plot
    outside = """
      const inside = (a, b) => a.left >= b.left && a.right <= b.right && a.top >= b.top && a.bottom <= b.bottom;
      return [...document.querySelectorAll("figure select, figure > svg text")]
        .filter((each) => !inside(each.getBoundingClientRect(), each.closest("figure").getBoundingClientRect()))
        .map((each) => each.id || each.textContent);
    """
    assert shown.js(outside) == []
    clipped = "return document.querySelector('#curves .guide + text').getBBox().y + 15 < curves.y.start"
    assert shown.js(clipped) and shown.complaints() == []


def test_a_long_legend_leaves_room_for_the_page(open_page, make):
    for heads in range(30):
        make(f"many-{heads}", variant="multi_head", heads=heads + 100)
    shown = open_page()
    shown.choose("by", "name")
    assert shown.count("#legend button") == 21 and shown.box("header")["height"] < 200


def test_a_watched_page_loads_itself_again(chromium, make, tmp_path):
    path = tmp_path / "page.html"
    make("a")
    path.write_text(page(page_data([], tmp_path / "runs", refresh=1)))
    shown = Opened(chromium, path)
    assert shown.text("#pause") == "Live: pause" and shown.text("#count") == "1 configuration, 1 of 1 run"
    make("b", seed=1)
    path.write_text(page(page_data([], tmp_path / "runs")))
    shown.wait("return document.querySelector('#count')?.textContent.includes('2 runs')")
    assert shown.text("#count") == "1 configuration, 2 of 2 runs"
    assert shown.js("return document.getElementById('pause').hidden")


@pytest.mark.campaign
def test_ten_thousand_runs_are_small_and_quick(chromium, make, tmp_path):
    for number in range(10_000):
        heads, variant, rate = 6 * 2 ** (number // 6 % 3), f"variant{number // 18 % 5}", number // 90 / 1000
        losses = (6.0, 5.0, 4.5, 4 + math.sin(number) ** 2)
        make(f"run-{number}", losses, variant=variant, heads=heads, seed=number % 6, learning_rate=rate)
    text = page(page_data([], tmp_path / "runs"))
    assert len(text) < 3e6
    path = tmp_path / "page.html"
    path.write_text(text)
    shown = Opened(chromium, path)
    assert "10,000 of 10,000 runs" in shown.text("#count") and "configurations have their curves" in shown.text(
        "#curves"
    )
    assert shown.count("#parallel .line") == 400 and "400 of 1,667 lines" in shown.text("#parallel .note")
    assert shown.count("tbody tr") == 100 and "The first 100 of 1,667 rows" in shown.text("#table .note")
    shown.click("#table .note button")
    assert shown.count("tbody tr") == 200
    shown.choose("by", "learning_rate")
    assert shown.count("#legend button") == 21 and "others" in shown.text("#legend")
    # a third of a second on a quiet machine
    spent = "const start = performance.now(); draw(); document.body.offsetHeight; return performance.now() - start"
    assert min(shown.js(spent) for _ in range(5)) < 1000 and shown.complaints() == []


@pytest.mark.parametrize(("kind", "has_unit"), [("classification", True), ("regression", False)])
def test_a_squared_error_has_no_unit(chromium, make, tmp_path, kind, has_unit):
    for name, loss in (("a", 2.0), ("b", 1.5)):
        for seed in range(4):
            task = {"name": "pairs", "kind": kind}
            folder = make(f"{name}{seed}", (4.0, 3.0, 2.5, loss + seed / 100), seed=seed, variant=name, task=task)
            result = RunFolder(folder).result().to_dict() | {"perplexity": None, "scores": {"pearson": 0.5}}
            leave_result(folder, **result)
    write_dashboard(["task=pairs"], tmp_path / "runs", tmp_path / "page.html", watch=False, show=False)
    shown = Opened(chromium, tmp_path / "page.html")
    shown.choose("y", "difference from the baseline")
    assert ("nats" in shown.text("main")) == has_unit
    assert "0.5000" in shown.text("#answer") and not shown.complaints()


def test_the_page_of_a_task_shows_scores_and_no_perplexity(chromium, make, tmp_path):
    make("pretrained")
    for name, score, loss in (("squad-a", 61.5, 2.0), ("squad-b", 70.25, 1.5)):
        folder = make(name, (4.0, 3.0, 2.5, loss), variant=name[-1], task={"name": "squad"})
        result = RunFolder(folder).result().to_dict() | {"perplexity": None, "scores": {"f1": score}}
        leave_result(folder, **result)
    write_dashboard(["task=squad"], tmp_path / "runs", tmp_path / "page.html", watch=False, show=False)
    shown = Opened(chromium, tmp_path / "page.html")
    assert sorted(shown.column("f1")) == ["61.5", "70.25"] and "task squad" in shown.text("#shared")
    assert shown.count("#speed .symbol") == shown.count("#memory .symbol") == shown.count("#curves .line") == 2
    assert "perplexity" not in shown.text("main").lower() and "Loss against speed" in shown.text("main")
    assert not any(
        "predicted token" in shown.text(place) for place in ("#shared", "thead", "#curves", "#heads", "#parallel")
    )
    assert not shown.complaints()


def test_runs_without_any_number_leave_the_page_whole(chromium, make, tmp_path):
    make("a", losses=(6.0,), finished=False)
    write_dashboard([], tmp_path / "runs", tmp_path / "page.html", watch=False, show=False)
    shown = Opened(chromium, tmp_path / "page.html")
    assert "None of these runs has reached an evaluation" in shown.text("#curves svg")
    assert shown.count("tbody tr") == 1 and shown.complaints() == []
