"""What the page compares, in a headless Chromium: finished runs under one set of conditions, paired by seed."""

from __future__ import annotations

import pytest

from experiments.dashboard.page import page_data
from experiments.record.folder import RunFolder
from tests.fixtures.record import leave_result


def sweep(make, seeds: int, better: float = 0.2, **more) -> None:
    """Runs of two variants whose losses differ by `better`, plus a little noise for each seed."""
    for variant in ("multi_head", "talking_heads"):
        for seed in range(seeds):
            last = 4.0 + 0.1 * seed + (0.001 * seed - better if variant == "talking_heads" else 0)
            steps = "-".join(map(str, more.values()))
            make(f"{variant}{steps}-{seed}", (6.0, 5.0 + 0.1 * seed, 4.5, last), variant=variant, seed=seed, **more)


def test_a_cut_run_enters_no_mean_and_is_counted(make, open_runs):
    sweep(make, seeds=4)
    make("cut", (6.0, 5.9, 5.8, 5.7), finished=False, variant="talking_heads", seed=4)
    shown = open_runs()
    assert shown.column("loss")[0].startswith("4.4515") and shown.column("seeds")[0] == "4, 1 not finished"
    assert shown.text("#left") == "Not compared: 1 not finished" and shown.count(".hollow") == 0
    points = "return [...document.querySelectorAll('#curves .line:not(.faint)')].map((line) => line.getAttribute('d'))"
    before = shown.js(points)
    shown.click("#rest")
    # it is there, hollow, and the means are where they were
    assert shown.count("#curves .line.hollow") == shown.count("#speed .symbol.hollow") == 1
    assert shown.column("loss")[0].startswith("4.4515") and "Hollow" in shown.text("#speed .note")
    shown.click("#rest")
    assert shown.js(points) == before and shown.complaints() == []


def test_a_run_without_an_evaluation_has_no_curve(make, open_runs):
    sweep(make, seeds=4)
    make("begun", (6.0,), finished=False, variant="talking_heads", seed=4)
    shown = open_runs()
    shown.click("#rest")
    assert shown.count("#curves .line:not(.faint)") == 2 and shown.count("#curves .line.hollow") == 0
    shown.choose("y", "training loss")
    assert "talking_heads, seed 4" in shown.js("return curves.what.series.map((each) => each.name)")
    assert shown.complaints() == []


def test_a_seed_without_a_speed_has_no_dot(make, open_runs):
    sweep(make, seeds=4)
    make("short", (6.0, 5.0, 4.5, 4.4), variant="multi_head", seed=4, speed=None)
    shown = open_runs()
    # at 0 tokens per second, it would stretch the axis
    assert shown.count("#speed .symbol.faint") == 8 and shown.count("#memory .symbol.faint") == 9
    assert shown.js("return speed.x.low") > 0 and shown.complaints() == []


@pytest.mark.parametrize(
    ("there", "here", "said"),
    [
        ({"max_steps": 40}, {"max_steps": 60}, "max_steps 40"),
        ({"objective": {"kind": "masked"}}, {"objective": {"kind": "causal"}}, "objective.kind masked"),
        ({"data": {"kind": "python_docs"}}, {"data": {"kind": "text"}}, "data.kind python_docs"),
        ({"tokenizer": {"kind": "byte_bpe"}}, {"tokenizer": {"kind": "wordpiece"}}, "tokenizer.kind byte_bpe"),
    ],
)
def test_runs_of_other_conditions_are_compared_apart(make, open_runs, there, here, said):
    sweep(make, seeds=4, **there)
    sweep(make, seeds=2, better=-3, **here)
    shown = open_runs()
    assert shown.text("#left") == "Not compared: 4 of other conditions" and shown.count("tbody tr") == 2
    assert [option.split(",")[0] for option in shown.options("comparison")] == [said, shown.options("comparison")[1]]
    assert "talking_heads is better than multi_head" in shown.text("#answer")
    shown.choose("comparison", "1")
    assert shown.text("#left") == "Not compared: 8 of other conditions" and shown.count("tbody tr") == 2
    answer = shown.text("#answer")
    assert "Of the others, the lowest mean is that of talking_heads" in answer and "higher by" in answer
    key, value = said.replace("objective.kind", "objective").split()
    shown.type(f"{key}={value}")
    assert shown.text("#fault") == f"{key}={value} matches only runs that are not compared"
    shown.click("#rest")
    assert shown.text("#fault") == "" and shown.count("tbody tr") == 2
    shown.type("")
    assert shown.count("tbody tr") == 4 and shown.count("tr.rest") == 2 and shown.complaints() == []


def test_the_forest_says_what_python_computed(make, open_runs, tmp_path):
    sweep(make, seeds=6)
    (comparison,) = page_data([], tmp_path / "runs")["comparisons"]
    (baseline, *_), differences = comparison["baselines"], comparison["differences"]
    (found,) = differences[baseline].values()
    shown = open_runs()
    sign = "\u2212"
    low, high = (f"{sign}{abs(found['mean'] + end * found['half']):.4f}" for end in (-1, 1))
    answer = f"by {abs(found['mean']):.4f} nats of validation loss (perplexity 18% lower; 95% interval {high[1:]} to "
    assert f"{answer}{low[1:]}; 6 shared seeds)" in shown.text("#answer")
    row = shown.text("#forest .row")
    assert f"{sign}0.1975  [{low}, {high}]" in row and row.endswith("6better") and found["word"] == "better"
    # the other way round; the address keeps it
    shown.choose("baseline", "talking_heads")
    assert shown.text("#forest .row").endswith("6worse") and "Nothing is shown to be better" in shown.text("#answer")
    shown.browser.refresh()
    assert shown.js("return document.getElementById('baseline').value") == "talking_heads"
    assert shown.complaints() == []


def test_differences_are_curves_too_and_their_ends_have_the_interval(make, open_runs):
    sweep(make, seeds=6)
    shown = open_runs()
    assert shown.count("#curves .band") == 2 and "95% intervals" in shown.text("#curves .note")
    shown.choose("y", "difference from the baseline")
    assert shown.count("#curves .line") == 1 and shown.count("#curves .whisker") == 1
    assert shown.text("#curves .guide + text") == "multi_head" and shown.count("#curves .band") == 0
    shown.press("#curves svg", "\ue014", "\ue014")
    assert f"difference from the baseline {chr(0x2212)}0.1975" in shown.text("#curves .tip")
    # a smoothed curve does not end at the difference that is tested
    shown.js("smooth.value = 0.9; smooth.dispatchEvent(new Event('input'))")
    assert shown.count("#curves .line") == 1 and shown.count("#curves .whisker") == 0
    assert "The bar" not in shown.text("#curves .note")
    assert shown.complaints() == []


def test_seeds_fold_out_with_status_and_reason(make, open_runs):
    sweep(make, seeds=2)
    folder = make("broken", finished=False, variant="talking_heads", seed=2)
    leave_result(folder, status="failed", reason="disk full", seed=2, config=RunFolder(folder).config())
    shown = open_runs()
    shown.click("[data-fold=talking_heads]")
    runs = shown.js("return [...document.querySelectorAll('tr.run')].map((each) => each.textContent)")
    assert len(runs) == 3 and "failed: disk full" in runs[2] and "4.3000" in runs[0]
    shown.click("[data-run=talking_heads-1]")
    assert shown.text("#chosen b") == "talking_heads" and shown.complaints() == []


def test_one_number_of_heads_is_a_dot_plot(make, open_runs):
    sweep(make, seeds=2)
    shown = open_runs()
    assert shown.box("#heads")["height"] == 0 and shown.count("#losses .row") == 2
    assert shown.count("#losses .seed") == 4 and shown.complaints() == []


def test_layers_are_facets_and_nothing_is_averaged_over_them(make, open_runs):
    for layers in (2, 4):
        for heads in (6, 12):
            make(f"run-{layers}-{heads}", layers=layers, heads=heads, losses=(6.0, 5.0, 4.5, 4.0 + layers / 10))
    shown = open_runs()
    names = "return [...document.querySelectorAll('#heads h3')].map((each) => each.textContent)"
    assert shown.js(names) == ["layers 2", "layers 4"] and shown.count("#heads .line") == 2
    ticks = "return [...document.querySelectorAll(`#heads-${arguments[0]} .axes text`)].map((each) => each.textContent)"
    assert shown.js(ticks, 0) == shown.js(ticks, 1) and shown.complaints() == []
