"""The page as a file, and the command that writes it."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import time
import webbrowser
from html.parser import HTMLParser

import pytest

from experiments.commands import dashboard as command
from experiments.commands.dashboard import write_dashboard
from experiments.dashboard import page
from experiments.dashboard.page import page_data
from experiments.failures.failure import Failure, Mistake
from experiments.processes.interruption import Interrupted


def held(text: str) -> dict:
    """The data of a page."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_fifty_long_runs_are_under_two_megabytes(make, tmp_path):
    for seed in range(50):
        losses = tuple(4 + 1 / (3 + step + seed / 7) for step in range(1000))
        make(f"run-{seed}", seed=seed, losses=losses)
    data = page_data([], tmp_path / "runs")
    assert len(page.page(data).encode()) < 2e6
    assert data["points"] == 200
    assert all(len(run[kind]["loss"]) == 200 for run in data["curves"]["runs"].values() for kind in run)
    (mean,) = data["curves"]["means"].values()
    assert len(mean["validation"]["step"]) == len(mean["validation"]["half"]) == 200


def test_settings_and_measures_are_told_apart(make, tmp_path):
    make("a", learning_rate=0.1)
    make("b", learning_rate=0.2, speed=1234.5678)
    data = page_data([], tmp_path / "runs")
    assert data["settings"] == ["learning_rate"] == data["telling"]
    assert [each["values"] for each in data["configurations"]] == [[0.1], [0.2]]
    means = dict(zip(data["measures"], data["configurations"][1]["means"], strict=True))
    assert means["tokens_per_second"] == 1234.57 and means["loss"] == 4.5
    assert data["shared"]["parameters"] == 10**6 and data["shared"]["heads"] == 6
    assert data["points"] is None and data["comparisons"][0]["unigram"] == 6.5


def test_a_setting_of_several_parts_is_one_value(make, tmp_path):
    for name, parts, seed in (("a", ["x2l"], 0), ("b", ["x2l", "x2w"], 0), ("c", ["x2l", "x2w"], 1)):
        make(name, variant="dynamic", model={"parts": parts}, data={"train": ["x", "y"]}, seed=seed)
    make("d", heads=12, model={"parts": ["x2l", "x2w"]}, data={"train": ["x", "y"]})
    data = page_data([], tmp_path / "runs")
    place = data["settings"].index("model.parts")
    # the script compares values by ===
    assert [each["values"][place] for each in data["configurations"]] == ["[x2l]", "[x2l,x2w]", "[x2l,x2w]"]


def test_large_numbers_keep_the_digits_before_the_point(make, tmp_path):
    for seed, (parameters, memory) in enumerate(((2_500_123, 387_123_456), (2_500_125, 387_123_457))):
        make(str(seed), seed=seed, memory=memory, parameters=parameters)
    data = page_data([], tmp_path / "runs")
    means = dict(zip(data["measures"], data["configurations"][0]["means"], strict=True))
    assert means["parameters"] == 2_500_124 and means["peak_memory_bytes"] in (387_123_456, 387_123_457)


def test_the_perplexity_of_several_seeds_is_that_of_their_mean_loss(make, tmp_path):
    for seed, last in enumerate((3.0, 4.0)):
        make(str(seed), losses=(6.0, last), seed=seed)
    data = page_data([], tmp_path / "runs")
    (only,) = data["configurations"]
    means, errors = (dict(zip(data["measures"], only[name], strict=True)) for name in ("means", "errors"))
    assert (means["loss"], errors["loss"]) == (4.0, 0.5)
    assert means["perplexity"] == pytest.approx(math.exp(4.0), rel=1e-5) and errors["perplexity"] is None


def test_runs_of_different_objectives_are_told_apart(make, tmp_path):
    for seed in (0, 1):
        make(f"a{seed}", heads=6, objective={"kind": "masked"}, seed=seed)
    make("b", heads=12, objective={"kind": "causal"})
    data = page_data([], tmp_path / "runs")
    assert [each["says"] for each in data["comparisons"]] == ["objective.kind masked", "objective.kind causal"]
    assert [each["comparison"] for each in data["configurations"]] == [0, 1]
    assert data["comparisons"][1]["baselines"] == [1] and data["comparisons"][0]["differences"] == {0: {}}


def test_few_configurations_may_be_the_baseline_where_there_are_many(make, tmp_path, monkeypatch):
    for heads in (1, 2, 3, 4):
        make(f"run-{heads}", heads=heads, losses=(6.0, 5.0, 4.5, 4.0 + heads))
    for most, offered in ((100, [0, 1, 2, 3]), (8, [0, 1]), (3, [0])):
        monkeypatch.setattr(page, "DIFFERENCES", most)
        (comparison,) = page_data([], tmp_path / "runs")["comparisons"]
        assert comparison["baselines"] == list(comparison["differences"]) == offered


def test_whole_configurations_share_out_the_curves(make, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "CURVES", 6)
    monkeypatch.setattr(page, "CURVE_NUMBERS", 100)
    for heads in (1, 2, 3, 4, 6):
        for seed in range(2):
            make(f"run-{heads}-{seed}", heads=heads, seed=seed, losses=(6.0, 5.0, 4.5, 4.0 + heads + seed))
    data = page_data([], tmp_path / "runs")
    # three of five, from the lowest loss to the highest, each with all of its seeds
    assert [data["configurations"][int(number)]["name"][-1] for number in data["curves"]["means"]] == ["1", "3", "6"]
    assert len(data["curves"]["runs"]) == 6 and data["points"] == 2
    curve = data["curves"]["means"][0]["training"]
    # the first two losses and the others, by twos, of both seeds
    assert curve["loss"] == [5.5, 5.0] and curve["step"] == [20, 40]
    assert data["curves"]["runs"][0]["training"]["loss"] == [5.5, 4.75]


def test_tables_without_room_are_left_out_and_it_is_said(make, table, tmp_path, monkeypatch):
    make("a")
    for name in ("one", "two", "three"):
        table(name)
    whole = page_data([], tmp_path / "runs")
    assert {each["name"] for each in whole["tables"]} == {"one", "two", "three"} and len(whole["notes"]) == 1
    monkeypatch.setattr(page, "TABLES", len(json.dumps(whole["tables"][0])) + 10)
    data = page_data([], tmp_path / "runs")
    assert len(data["tables"]) == 1 and data["notes"][-1] == "There is no room here for 2 more tables."


def test_names_are_data_and_no_tags(make, tmp_path):
    name = "<img src=x onerror=alert(1)>"
    make(name)
    make("b", variant="</script><script>alert(2)</script>")
    text = page.page(page_data([], tmp_path / "runs"))
    tags = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: tags.append(tag)
    parser.feed(text)
    assert tags.count("script") == 2 and "img" not in tags
    data = held(text)
    assert sorted(row[data["run_columns"].index("run")] for row in data["runs"]) == [name, "b"]


def test_nothing_in_the_page_names_another_file(make, tmp_path):
    make("a")
    text = page.page(page_data([], tmp_path / "runs"))
    assert not re.search(r"(src|href)\s*=\s*[\"']|url\((?!#)|@import|fetch\(|XMLHttpRequest|import\(", text)
    assert set(re.findall(r"https?://[^\s\"'<]+", text)) == {"http://www.w3.org/2000/svg"}


def test_the_command_writes_one_file_and_says_where(make, tmp_path, capsys):
    make("a")
    runs = tmp_path / "runs"
    write_dashboard([], runs, None, watch=False, show=False)
    assert capsys.readouterr().out == f"{runs / 'dashboard.html'}: 1 run\n"
    assert held((runs / "dashboard.html").read_text())["refresh"] == 0
    for wrong in (tmp_path / "nowhere" / "page.html", runs):
        with pytest.raises(Mistake, match=f"--out {wrong}: must be a file in an existing folder"):
            write_dashboard([], runs, wrong, watch=False, show=False)
    os.mkfifo(pipe := tmp_path / "pipe.html")
    with pytest.raises(Failure, match=r"pipe.html: it is not a regular file; choose another --out$"):
        write_dashboard([], runs, pipe, watch=False, show=False)


@pytest.mark.parametrize(("opens", "said"), [(True, ""), (False, "--open: this machine has no browser")])
def test_the_page_is_opened_and_the_user_told_where_nothing_can_open_it(
    make, tmp_path, monkeypatch, capsys, opens, said
):
    make("a")
    opened = []

    def open_page(address):
        opened.append(address)
        return opens

    monkeypatch.setattr(webbrowser, "open", open_page)
    write_dashboard([], tmp_path / "runs", tmp_path / "page.html", watch=False, show=True)
    assert opened == [(tmp_path / "page.html").as_uri()]
    assert capsys.readouterr().err == (f"{said}; open the file in one\n" if said else "")


def test_a_page_replaces_only_a_page(make, tmp_path):
    folder = make("a")
    (text := tmp_path / "text.html").write_text("<!doctype html>\nA text for training.")
    for wrong, said in ((folder / "config.yaml", "must end in .html"), (text, "exists, and is not a page of attn")):
        before = wrong.read_bytes()
        with pytest.raises(Mistake, match=f"^--out {wrong}: {said}"):
            write_dashboard([], tmp_path / "runs", wrong, watch=False, show=False)
        assert wrong.read_bytes() == before
    for _ in range(2):
        write_dashboard([], tmp_path / "runs", tmp_path / "page.html", watch=False, show=False)


def test_watching_rewrites_when_there_is_news_and_ends_quietly(make, tmp_path, monkeypatch):
    folder, out = make("a", finished=False), tmp_path / "page.html"
    seen = []

    def sleep(seconds):
        seen.append((out.stat().st_ino, held(out.read_text())))
        if len(seen) == 2:
            with (folder / "metrics.jsonl").open("a") as file:
                file.write('{"step": 50, "tokens": 5000, "loss": 3.0, "wall_seconds": 5.0}\n')
        if len(seen) == 3:
            raise Interrupted(signal.SIGINT)

    monkeypatch.setattr(time, "sleep", sleep)
    write_dashboard([], tmp_path / "runs", out, watch=True, show=False)
    (first, second, third), last = seen, held(out.read_text())
    assert first[0] == second[0] and third[0] != second[0]
    assert [len(data["curves"]["runs"]["0"]["training"]["loss"]) for _, data in seen] == [4, 4, 5]
    assert first[1]["refresh"] == command.WATCH_SECONDS and last["refresh"] == 0


def test_watching_misses_no_change_while_the_first_page_is_computed(make, tmp_path, monkeypatch):
    folder, compute, pages = make("a", finished=False), command.page_data, []

    def slowly(*arguments):
        pages.append(compute(*arguments))
        with (folder / "metrics.jsonl").open("a") as file:
            file.write('{"step": 50, "tokens": 5000, "loss": 3.0, "wall_seconds": 5.0}\n')
        return pages[-1]

    def sleep(seconds):
        if len(pages) == 2:
            raise Interrupted(signal.SIGINT)
        assert not slept.append(seconds) and len(slept) == 1, "the page was not computed again"

    slept = []
    monkeypatch.setattr(command, "page_data", slowly)
    monkeypatch.setattr(time, "sleep", sleep)
    write_dashboard([], tmp_path / "runs", tmp_path / "page.html", watch=True, show=False)


def test_watching_says_each_remark_once(make, tmp_path, monkeypatch, capsys):
    looks = []

    def sleep(seconds):
        looks.append(seconds)
        if len(looks) == 2:
            make("b", losses=(6.0, float("nan"), 4.5, 4.0), heads=24)
        if len(looks) == 3:
            raise Interrupted(signal.SIGINT)

    make("a", losses=(6.0, float("nan"), 4.5, 4.0))
    monkeypatch.setattr(time, "sleep", sleep)
    write_dashboard([], tmp_path / "runs", tmp_path / "page.html", watch=True, show=False)
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("without a curve: ")]
    assert [line.count("a/metrics.jsonl") for line in said] == [1, 0]


def test_watching_takes_a_tenth_of_a_core_at_most(make, tmp_path, monkeypatch):
    make("a")
    waited, spent = [], iter([0.0, 0.3, 1.0, 3.5, 4.0])

    def sleep(seconds):
        waited.append(seconds)
        if len(waited) == 3:
            raise Interrupted(signal.SIGINT)

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "process_time", lambda: next(spent))
    write_dashboard([], tmp_path / "runs", tmp_path / "page.html", watch=True, show=False)
    assert waited == [command.WATCH_SECONDS, command.WATCH_SECONDS, 25.0]


def test_files_that_are_removed_meanwhile_are_left_out(make, tmp_path):
    make("a")
    runs = tmp_path / "runs"
    (runs / "tables").mkdir()
    (runs / "tables" / "gone.json").symlink_to("nowhere")
    assert page_data([], runs)["tables"] == [] and command.newest(runs)[0] > 0
    assert command.newest(tmp_path / "none") == (0, 0)


def test_a_run_whose_metrics_cannot_be_read_has_no_curve(make, tmp_path, capsys):
    make("a")
    # a result that is right about its files, one of which is not JSON
    make("b", losses=(6.0, float("nan"), 4.5, 4.0), heads=24)
    data = page_data([], tmp_path / "runs")
    assert len(data["configurations"]) == 2
    assert "without a curve: " in (said := capsys.readouterr().err) and "b/metrics.jsonl: NaN is not a number" in said


def test_the_command_line(make, tmp_path, attn):
    make("a")
    make("b", variant="talking_heads", heads=24)
    done = attn("dashboard", "variant=talking_heads,additive", "--out", "page.html")
    assert (done.returncode, done.stdout) == (0, "page.html: 1 run\n"), done.stderr
    refused = attn("dashboard", "variant=additive")
    assert refused.returncode == 2 and "no run in runs/ matches variant=additive" in refused.stderr
