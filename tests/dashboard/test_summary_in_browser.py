"""What a reader sees first: the answer, and a legend of what is compared."""

from __future__ import annotations

import math
import re

import pytest


@pytest.fixture
def sweep(make):
    """sweep(variant, gain, seeds): runs whose loss is `gain` lower than the baseline's, give or take some noise."""

    def leave(variant: str, gain: float = 0.0, seeds: int = 4, **more) -> None:
        for seed in range(seeds):
            noise = 0.003 * (-1) ** seed if gain else 0
            losses = (6.0, 5.0, 4.5, 4.0 + 0.1 * seed - gain + noise)
            make(f"{variant}-{more.get('max_steps')}-{seed}", losses, variant=variant, seed=seed, **more)

    return leave


@pytest.mark.parametrize("gain", [0.2, -0.2])
def test_the_first_screen_says_by_how_much_and_how_surely(sweep, open_runs, gain):
    sweep("multi_head")
    sweep("talking_heads", gain)
    shown = open_runs()
    answer = shown.text("#answer")
    says, share, low, high = re.search(
        r"by ([\d.]+) nats of validation loss \(perplexity (\d+)% \w+; "
        r"95% interval ([\d.]+) to ([\d.]+); 4 shared seeds\)",
        answer,
    ).groups()
    assert float(says) == 0.2 and float(low) < 0.2 < float(high)
    assert float(share) == pytest.approx(100 * abs(math.expm1(-gain)), abs=0.5)
    assert ("is better than multi_head" in answer) == (gain > 0) and ("perplexity 18% lower" in answer) == (gain > 0)
    assert ("which is better than the other" in answer) == (gain < 0)
    # the sentence and the first row stand in the first screen
    assert shown.box("#answer")["bottom"] < 800 and shown.box("#forest .row")["bottom"] < 800
    assert shown.complaints() == []


def test_many_configurations_leave_the_answer_in_the_first_screen(make, open_runs):
    for variant in range(6):
        for heads in (6, 24):
            for position in ("learned_positions", "rotary_positions_with_a_long_name"):
                make(
                    f"{variant}-{heads}-{position}", (6.0, 5.0, 4.5, 4 - variant / 10), heads=heads,
                    variant=f"variant_with_a_long_name_{variant}", model={"position": position},
                )  # fmt: skip
    shown = open_runs()
    assert shown.box("#answer")["bottom"] < 500 and shown.box("#forest .row")["bottom"] < 800
    names = shown.js("return [...document.querySelectorAll('#forest .name')].map((each) => each.textContent)")
    assert len(set(names)) == len(names) == 23
    # the loss needs no scrolling
    assert shown.box("#table tbody tr:first-child td:nth-child(3)")["right"] < 1280 and shown.complaints() == []


def test_a_single_configuration_is_told_without_a_comparison(sweep, open_runs):
    sweep("multi_head")
    sweep("talking_heads", 0.2)
    shown = open_runs()
    shown.type("variant=multi_head")
    assert shown.text("#answer").startswith("There is nothing to compare multi_head with. Its validation loss is 4.65")
    assert shown.text("#forest .note") == "The baseline is multi_head." and shown.complaints() == []


def test_what_would_be_better_alone_is_told_in_words(sweep, open_runs):
    sweep("multi_head")
    for number in range(5):
        sweep(f"variant{number}", 0.1 + number / 100)
    answer = open_runs().text("#answer")
    assert ": better compared alone, not resolved among 5 comparisons; about" in answer


def test_the_answer_says_which_runs_it_is_about(sweep, open_runs):
    for steps in (40, 60, 80):
        sweep("multi_head", max_steps=steps)
        sweep("talking_heads", 0.2, max_steps=steps)
    shown = open_runs()
    says = shown.js("return comparison().says")
    assert f"These are the runs with {says}. Compare selects those of 2 other conditions." in shown.text("#answer")
    # which is no part of what is compared
    assert shown.js("return [...document.querySelectorAll('#legend small')].map((each) => each.textContent)") == [
        "1",
        "1",
    ]


def test_the_legend_names_groups_of_which_something_is_compared(make, sweep, open_runs):
    sweep("multi_head")
    sweep("talking_heads", 0.2)
    for variant in ("cut", "stopped"):
        make(variant, variant=variant, finished=False)
    make("elsewhere", variant="elsewhere", max_steps=60)
    shown = open_runs()
    names = "return [...document.querySelectorAll('#legend button')].map((each) => each.dataset.group)"
    hollow = (
        "return [...document.querySelectorAll('#legend .symbol.hollow')]"
        ".map((each) => each.closest('button').dataset.group)"
    )
    left = "3 groups have nothing that is compared"
    assert shown.js(names) == ["multi_head", "talking_heads"] and left in shown.text("#legend")
    assert shown.js(hollow) == []
    colours = "return [...document.querySelectorAll('#forest .row > path')].map((each) => each.style.fill)"
    before = shown.js(colours)
    shown.click("#rest")
    rest = ["cut", "elsewhere", "stopped"]
    assert shown.js(names) == sorted(["multi_head", "talking_heads", *rest]) and shown.js(hollow) == rest
    assert left not in shown.text("#legend") and shown.text("[data-group=cut] small") == "not compared"
    assert shown.js(colours) == before and shown.complaints() == []


def test_heads_at_one_place_name_each_other(make, measured, open_runs):
    measured(make("a"))
    shown = open_runs()
    shown.js("data.heads[0][''].plane = [[1, 1, 0, 0], [1, 2, 0.0005, 0], [2, 1, 0.3, 0]]; draw()")
    shown.press("#plane svg.chart", "\ue014")
    assert "at the same place (layer-head): 1-2" in shown.text("#plane .tip")
    shown.press("#plane svg.chart", "\ue015")
    assert "layer 2, head 1" in shown.text("#plane .tip") and "same place" not in shown.text("#plane .tip")
