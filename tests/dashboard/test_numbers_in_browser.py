"""The page's arithmetic on numbers worked by hand, in V8 without a browser."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import get_args
from urllib.parse import quote

import pytest

from experiments.statistics.comparison import Word
from tests.fixtures.latex import overfull_boxes

ASSETS = Path(__file__).parents[2] / "experiments" / "dashboard" / "assets"
ROWS = [
    {"name": "multi, heads 6", "names": ["multi-a", "multi-b"], "heads": 6, "loss": 4.5},
    {"name": "talking, heads 24", "names": ["talking-b"], "heads": 24, "loss": None},
]


@pytest.fixture(scope="module")
def js():
    """js("f", *arguments): call a function of state.js, numbers.js, filter.js or export.js."""
    racer = pytest.importorskip("py_mini_racer", reason="mini-racer is not installed: pip install -e '.[test]'")
    context = racer.MiniRacer()
    for name in ("state.js", "numbers.js", "filter.js", "export.js"):
        context.eval((ASSETS / name).read_text())

    def call(name: str, *arguments):
        return json.loads(context.eval(f"JSON.stringify({name}({', '.join(map(json.dumps, arguments))}) ?? null)"))

    call.eval = context.eval
    return call


def test_a_polyline_between_its_points_and_nowhere_else(js):
    xs, ys = [1, 3, 7], [10, 20, 0]
    assert [js("interpolate", xs, ys, x) for x in (1, 2, 3, 6, 7)] == [10, 15, 20, 5, 0]
    assert js("interpolate", xs, ys, 0.5) is None and js("interpolate", xs, ys, 8) is None
    assert js("interpolate", [], [], 1) is None


def test_smoothing_keeps_a_constant_and_starts_at_the_first_value(js):
    assert js("smoothed", [3, 3, 3], 0.9) == pytest.approx([3, 3, 3])
    assert js("smoothed", [4, None, 2], 0.5) == pytest.approx([4, None, (0.25 * 4 + 0.5 * 2) / 0.75])


def test_the_pareto_front_is_what_none_beats_in_both(js):
    points = [(1, 5), (2, 6), (3, 3), (3, 4), (4, 3), (5, 1)]

    def front(points, better):
        found = js("paretoFront", [{"x": x, "y": y} for x, y in points], better)
        return [(point["x"], point["y"]) for point in found]

    assert front(points, "low") == [(1, 5), (3, 3), (5, 1)]
    assert front(points, "high") == [(5, 1)]
    assert front([(1, 1), (9, 2), (8, 3)], "high") == [(1, 1), (9, 2)]
    assert front([], "low") == []


def test_ticks_are_round(js):
    assert js("ticks", 0.3, 9.7, 5, False) == [2, 4, 6, 8]
    assert js("ticks", 4.81, 5.19, 4, False) == [4.9, 5, 5.1]
    # never one alone
    assert js("ticks", 523, 557, 3, False) == [530, 540, 550]
    assert js("ticks", 80, 3000, 4, True) == [100, 200, 500, 1000, 2000]
    assert js("ticks", 1e-4, 1e7, 4, True) == [10.0**power for power in range(-4, 8)]


def test_ticks_of_time_are_whole_minutes_or_hours(js):
    assert js("timeTicks", 0, 1700, 6) == [0, 300, 600, 900, 1200, 1500]
    assert js("timeTicks", 0, 9 * 3600, 5) == [0, 7200, 14400, 21600, 28800]
    assert js("timeTicks", 0, 50, 5) == [0, 10, 20, 30, 40, 50]
    # two that are written alike would be one
    assert js("timeTicks", 0.5, 3.2, 8) == [1, 2, 3]
    assert js("timeTicks", 0.1, 70, 5, True) == [0, 1, 2, 5, 10, 20, 50]


def test_thinning_keeps_both_ends(js):
    assert js("evenly", list(range(9)), 3) == [0, 4, 8]
    assert js("evenly", [1, 2], 3) == [1, 2]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", "multi talking"), ("TALK", "talking"), ("multi-b", "multi"), ("!talk", "multi"), ("m*6", "multi"),
        ("heads=6,12", "multi"), ("heads>6", "talking"), ("heads>=6", "multi talking"), ("heads<=6", "multi"),
        ("heads!=6", "talking"), ("!heads=6", "talking"), ("heads!=6,24", ""), ("loss<5", "multi"), ("loss>5", ""),
        ("heads=2*", "talking"), ('"multi, heads 6"', "multi"), ("multi heads=24", ""), ("loss<", "multi talking"),
        ("!", "multi talking"), ('!"', "multi talking"), ('name="multi, heads 6"', "multi"),
        ('!name="multi, heads 6",other', "talking"), ('name="multi, hea', ""), ('name="multi, heads 6" heads=24', ""),
    ],
)  # fmt: skip
def test_filters(js, text, kept):
    words = f"parsedFilter({json.dumps(text)}, ['name', 'heads', 'loss'], rows).test"
    js.eval(f"var rows = {json.dumps(ROWS)}")
    assert js.eval(f"rows.filter({words}).map((row) => row.name.split(',')[0]).join(' ')") == kept


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("heads=6 multi", []),
        ("haeds=6", ["there is no haeds: did you mean heads?"]),
        ("width=6", ["there is no width"]),
        ("heads=7,24", ["heads is never 7: there are 6, 24"]),
        ("loss<x", ["loss<x: x is no number"]),
        ("heads>24 loss<5", ["heads is never >24: it is from 6 to 24"]),
        ("!name<=5", ["name is never <=5: it is no number"]),
        ("seed=0", ["seeds are averaged: attn dashboard seed=0,1 chooses some"]),
        ("nobody", ["no name has nobody"]),
        ("layers=2", ["all runs have layers 4"]),
        ("lyaers=4", ["there is no lyaers: did you mean layers?"]),
        ("position=rotary", ["there is no position: did you mean model.position?"]),
        ("heads.kind=6", ["there is no heads.kind: did you mean heads?"]),
    ],
)
def test_a_word_that_names_nothing_is_said(js, text, faults):
    columns = ["name", "heads", "loss", "model.position"]
    assert js("parsedFilter", text, columns, ROWS, {"layers": 4})["faults"] == faults


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("heads=24", ["heads=24 matches only runs that are not compared"]),
        ("heads=24,6", ["heads=24 matches only runs that are not compared"]),
        ("talk", ["talk matches only runs that are not compared"]),
        ("multi heads>6", ["heads>6 matches only runs that are not compared"]),
        ("!heads=6", ["nothing that is compared matches all terms"]),
        ("heads=7", ["heads is never 7: there are 6, 24"]),
        ("multi heads=6", []),
    ],
)
def test_a_word_that_matches_only_what_is_left_out_is_said(js, text, faults):
    columns, compared = ["name", "heads", "loss"], ROWS[:1]
    assert js("parsedFilter", text, columns, ROWS, {}, compared)["faults"] == faults


def test_numbers_are_filtered_in_the_units_of_the_page(js):
    column = "peak_memory_bytes"
    rows = [{"name": name, column: size} for name, size in (("a", 386_123_000), ("b", 476_000_000), ("c", None))]

    def kept(text):
        test = f"parsedFilter({json.dumps(column + text)}, [{json.dumps(column)}], {json.dumps(rows)}).test"
        return js.eval(f"{json.dumps(rows)}.filter({test}).map((row) => row.name).join(' ')")

    assert [kept(text) for text in ("<400", ">=476", "=386.123", "=476,1", "!=476")] == ["a", "b", "a", "b", "a c"]
    found = js("parsedFilter", f"{column}<1", [column], rows)
    assert found["faults"] == [f"{column} is never <1: it is from 386.123 to 476"]
    assert js("completions", f"{column}=3", [column], rows) == [f"{column}=386.123"]


def test_a_number_is_found_by_the_digits_that_the_page_shows(js):
    rows = [{"name": "a", "perplexity": 82.1748}, {"name": "b", "perplexity": 90.5}, {"name": "c", "perplexity": None}]
    test = f"parsedFilter('perplexity=82.2', ['perplexity'], {json.dumps(rows)}).test"
    assert js.eval(f"{json.dumps(rows)}.filter({test}).map((row) => row.name).join(' ')") == "a"
    found = js("parsedFilter", "perplexity=7", ["perplexity"], rows)
    assert found["faults"] == ["perplexity is never 7: there are 82.1748, 90.5"]


def test_words_of_which_no_row_has_all_are_said(js):
    found = js("parsedFilter", "multi heads=24", ["name", "heads", "loss"], ROWS)
    assert found["faults"] == ["nothing that is compared matches all terms"]


def test_the_values_that_there_are_stand_in_order(js):
    found = js("parsedFilter", "heads=7", ["name", "heads", "loss"], ROWS[::-1])
    assert found["faults"] == ["heads is never 7: there are 6, 24"]


def test_words_are_completed(js):
    def ends(text):
        return js("completions", text, ["name", "heads", "loss"], ROWS)

    assert ends("multi he") == ["multi heads="] and ends("!l") == ["!loss="]
    assert ends("heads=") == ["heads=6", "heads=24"] and ends("heads=2") == ["heads=24"] and ends("zz") == []
    # a completed value is one word, whatever it contains
    assert ends("name=m") == ['name="multi, heads 6"']
    assert ends('heads=6 name="multi, h') == ['heads=6 name="multi, heads 6"']
    assert ends("heads=6 ")[0] == "heads=6 name="


def test_long_names_are_cut_in_the_middle(js):
    assert js("cut", "talking_heads", 20) == "talking_heads"
    cut = js("cut", "talking_heads-l4-d192-h24-s0", 15)
    assert len(cut) == 15 and cut.startswith("talking") and cut.endswith("h24-s0") and "\u2026" in cut


def test_short_parts_of_a_name_are_never_cut(js):
    name = "dynamically_composed_multi_head, heads {}, position rotary_with_a_long_name"
    shown = [js("cut", name.format(heads), 44) for heads in (6, 24)]
    assert [len(each) <= 44 for each in shown] == [True, True]
    assert "heads 6," in shown[0] and "heads 24," in shown[1] and shown[0].startswith("dynamic")
    # if nothing else helps, the middle of the whole
    assert len(js("cut", ", ".join(20 * ["heads 24"]), 44)) == 44


@pytest.mark.parametrize(
    ("cell", "written"),
    [("=1+1", "'=1+1"), ('=LINK("a","b")', '"\'=LINK(""a"",""b"")"'), ("a\rb", '"a\rb"'), ("-0.1", "-0.1")],
)
def test_no_spreadsheet_takes_a_cell_for_a_formula(js, cell, written):
    assert js("csvCell", cell) == written


def test_a_cell_of_several_lines_is_one_line_in_markdown(js):
    table = {"lines": [["name"], ["a |\n b"]], "units": [""], "numeric": [False], "notes": []}
    assert js("tableText", table, "md").splitlines()[2] == "| a \\| b |"


def test_the_address_keeps_every_choice(js):
    defaults = js("chosenIn", "")
    texts = {key: "some" for key, value in defaults.items() if value is None and key != "columns"}
    changed = (
        defaults | texts | {"columns": ["loss"], "smooth": 0.5, "zoom": {"curves": {"x": [1, 2]}}, "hidden": ["a"]}
    )
    assert {"search", "objective", "against", "chosen"} <= set(texts)
    assert js("chosenIn", quote(json.dumps(changed))) == changed


@pytest.mark.parametrize(
    "text",
    [
        *(quote(json.dumps({key: value})) for key, values in {
            "open": [{}, "a", None], "columns": [5, {}], "zoom": [[], 1], "rows": ["1"], "search": [1], "unknown": [1]
        }.items() for value in values),
        "%7B%22rows", "%", "null", "[1]",
    ],
)  # fmt: skip
def test_what_cannot_be_a_choice_is_left_out_of_an_address(js, text):
    assert js("chosenIn", text) == js("chosenIn", "")


def test_tables_as_text(js):
    lines = [["name", "loss"], ['a,b "c"', "4.5"], ["=x_1 | <5%", "\u22120.1 \u00b12"]]
    table = {"lines": lines, "units": ["", "nats"], "numeric": [False, True], "notes": ["A \u00b1 note."]}
    assert js("tableText", {"lines": lines}, "csv") == 'name,loss\n"a,b ""c""",4.5\n\'=x_1 | <5%,\u22120.1 \u00b12\n'
    assert js("tableText", table, "md").splitlines() == [
        "| name | loss (nats) |", "| --- | ---: |", '| a,b "c" | 4.5 |', "| =x_1 \\| <5% | \u22120.1 \u00b12 |",
        "", "A \u00b1 note.",
    ]  # fmt: skip
    tex = js("tableText", table, "tex")
    assert "\\begin{tabular}{lr}" in tex and "=x\\_1 | $<$5\\% & $-$0.1 $\\pm$2 \\\\" in tex


def test_a_table_as_latex_compiles_and_fits_the_page(js, tmp_path):
    lines = [["Configuration", *["Peak memory"] * 20], ["talking_heads, 50% & more #1", *["1,234.5 \u00b16.7"] * 20]]
    table = {"lines": lines, "units": ["", *["tokens/s"] * 20], "numeric": [False, *[True] * 20], "notes": ["A note."]}
    tex = js("tableText", table, "tex")
    assert r"\toprule" in tex and r"\midrule" in tex and r"\bottomrule" in tex
    # whatever stands before it
    assert overfull_boxes(f"Some words.\n{tex}Others.", ("booktabs", "graphicx"), tmp_path) == []


def test_rows_without_a_value_are_last_either_way(js):
    rows = [{"loss": 5}, {"loss": None}, {"loss": 4}]
    assert [row["loss"] for row in js("sortedBy", rows, "loss")] == [4, 5, None]
    assert [row["loss"] for row in js("sortedBy", rows, "-loss")] == [5, 4, None]
    names = [{"run": "b10"}, {"run": "b9"}]
    assert [row["run"] for row in js("sortedBy", names, "run")] == ["b9", "b10"]


@pytest.mark.parametrize(
    ("value", "column", "text"),
    [
        (5.5e8, "peak_memory_bytes", "550"), (12345.6, "tokens_per_second", "12,346"), (4.5, "loss", "4.5000"),
        (math.e, "perplexity", "2.7"), (3725.4, "wall_seconds", "1:02:05"),
        (None, "loss", "\u2013"), (0.003, "learning_rate", "0.003"), ("<b>", "run", "<b>"),
    ],
)  # fmt: skip
def test_numbers_as_people_read_them(js, value, column, text):
    assert js("shown", value, column) == text


def test_short_numbers_on_axes(js):
    assert [js("short", value) for value in (0.003, 4.12345, 1500, 2.5e6, 1e9)] == [
        "0.003",
        "4.12345",
        "1.5k",
        "2.5M",
        "1G",
    ]


def test_perplexities_on_axes_are_in_full(js):
    assert [js.eval(f"whole({value})") for value in (92.5, 1146.5, 20000)] == ["92.5", "1,146.5", "20,000"]


def test_every_verdict_of_a_table_has_its_sign(js):
    js.eval((ASSETS / "paper_tables.js").read_text())
    signs = json.loads(js.eval("JSON.stringify(VERDICTS)"))
    assert set(signs) == set(get_args(Word))
    assert len(set(signs.values())) == len(signs)
    css = (ASSETS / "page.css").read_text()
    assert ".verdict.holds" in css and ".verdict.reversed" in css
