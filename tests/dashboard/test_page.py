"""The page as a file, and the command that writes it."""

from __future__ import annotations

import json
import re
import signal
import time
from html.parser import HTMLParser

import pytest

from experiments.commands import dashboard as command
from experiments.commands.dashboard import write_dashboard
from experiments.dashboard import page
from experiments.dashboard.page import page_data
from experiments.settings.mistake import Mistake
from experiments.training.interruption import Interrupted


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
    assert all(len(curve["training"]) == len(curve["validation"]) == 200 for curve in data["curves"].values())


def test_settings_and_measures_are_told_apart(make, tmp_path):
    make("a", learning_rate=0.1)
    make("b", learning_rate=0.2, speed=1234.5678)
    data = page_data([], tmp_path / "runs")
    assert {"variant", "heads", "seed", "learning_rate"} <= set(data["settings"])
    assert not {"loss", "perplexity", "status", "backend", "tokens", "run"} & set(data["settings"])
    rows = [dict(zip(data["columns"], row, strict=True)) for row in data["rows"]]
    assert [row["learning_rate"] for row in rows] == [0.1, 0.2]
    assert rows[1]["tokens_per_second"] == 1234.57 and rows[0]["parameters"] == 10**6
    assert data["points"] is None and data["unigram"] == 6.5


def test_runs_of_different_objectives_are_told_apart(make, tmp_path):
    make("a", heads=6, objective={"kind": "masked"})
    make("b", heads=12, objective={"kind": "causal"})
    data = page_data([], tmp_path / "runs")
    assert data["columns"][0] == data["settings"][0] == "objective"
    assert [row[0] for row in data["rows"]] == ["masked", "causal"]
    assert "different objectives" in data["notes"][1]
    alike = page_data(["objective=causal"], tmp_path / "runs")
    assert "objective" not in alike["columns"] and len(alike["notes"]) == 1


def test_many_runs_share_out_the_curves(make, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "CURVES", 3)
    monkeypatch.setattr(page, "CURVE_POINTS", 6)
    for seed in range(5):
        make(f"run-{seed}", seed=seed)
    data = page_data([], tmp_path / "runs")
    assert len(data["rows"]) == 5 and list(data["curves"]) == [0, 2, 4] and data["points"] == 2
    # losses 6, 5, 4.5, 4 by twos, and the evaluations as they are
    assert [point[-1] for point in data["curves"][0]["training"]] == [5.5, 4.25]
    assert [point[-1] for point in data["curves"][0]["validation"]] == [5.5, 4.5]


def test_tables_without_room_are_left_out_and_it_is_said(make, table, tmp_path, monkeypatch):
    make("a")
    for name in ("one", "two", "three"):
        table(name)
    whole = page_data([], tmp_path / "runs")
    assert {each["name"] for each in whole["tables"]} == {"one", "two", "three"} and len(whole["notes"]) == 1
    monkeypatch.setattr(page, "TABLES", len(json.dumps(whole["tables"][0])) + 10)
    data = page_data([], tmp_path / "runs")
    assert len(data["tables"]) == 1 and data["notes"][-1] == "2 more tables have no room here."


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
    assert sorted(row[data["columns"].index("run")] for row in data["rows"]) == [name, "b"]


def test_nothing_in_the_page_names_another_file(make, tmp_path):
    make("a")
    text = page.page(page_data([], tmp_path / "runs"))
    assert not re.search(r"(src|href)\s*=|url\((?!#)|@import|fetch\(|XMLHttpRequest|import\(", text)
    assert set(re.findall(r"https?://[^\s\"'<]+", text)) == {"http://www.w3.org/2000/svg"}


def test_the_command_writes_one_file_and_says_where(make, tmp_path, capsys):
    make("a")
    runs = tmp_path / "runs"
    write_dashboard([], runs, None, watch=False, show=False)
    assert capsys.readouterr().out == f"{runs / 'dashboard.html'}: 1 run\n"
    assert held((runs / "dashboard.html").read_text())["refresh"] == 0
    for wrong in (tmp_path / "nowhere" / "page.html", runs):
        with pytest.raises(Mistake, match=f"--out {wrong}: must be a file in a folder"):
            write_dashboard([], runs, wrong, watch=False, show=False)


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
    assert [len(data["curves"]["0"]["training"]) for _, data in seen] == [4, 4, 5]
    assert first[1]["refresh"] == command.WATCH_SECONDS and last["refresh"] == 0


def test_the_command_line(make, tmp_path, attn):
    make("a")
    make("b", variant="talking_heads", heads=24)
    done = attn("dashboard", "variant=talking_heads,additive", "--out", "page.html")
    assert (done.returncode, done.stdout) == (0, "page.html: 1 run\n"), done.stderr
    refused = attn("dashboard", "variant=additive")
    assert refused.returncode == 2 and "no run in runs/ matches variant=additive" in refused.stderr
    refused = attn("dashboard", "--wandb", "--out", "page.html")
    assert refused.returncode == 2 and "leave out --out" in refused.stderr
