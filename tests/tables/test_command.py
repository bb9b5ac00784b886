"""`attn table` as a shell runs it: real cells on a tiny text, killed at random, shared with `attn train`."""

from __future__ import annotations

import csv
import io
import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.explain import Mistake
from experiments.tables.command import Options, show_table
from experiments.tables.source import source_of

ROOT = Path(__file__).resolve().parents[2]
TABLE = "bhojanapalli2020/table1"


@pytest.fixture
def short(tiny) -> list[str]:
    # 32 heads need a width of 32 times 2
    return [word for word in tiny if not word.startswith("hidden_size")] + ["hidden_size=64"]


def rows_of(text: str) -> dict[str, dict[str, str]]:
    return {row["row"]: row for row in csv.DictReader(io.StringIO(text))}


def test_a_table_is_made_rendered_and_shared(attn, short, tmp_path):
    done = attn("table", TABLE, "--seeds", "2", "--out", "out", "--wandb", *short)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(tmp_path.glob("runs/*/result.json"))) == 6
    assert "90.89 +- 0.15 (s)" in done.stdout and "C4:" in done.stdout
    assert "W&B offline" in done.stderr and list(tmp_path.glob("runs/wandb/*/run-table-*.wandb"))
    assert (tmp_path / "out" / "bhojanapalli2020_table1.md").read_text().startswith("# More heads of less width")

    # the cells are those of attn train, and in the order of the seeds
    assert [line.split("-s")[1][0] for line in done.stderr.splitlines() if ": done" in line] == list("000111")
    again = attn("train", "experiment=nano_table", "variant=multi_head", "heads=16", "seed=1", *short)
    assert again.returncode == 0 and "validation loss" in again.stdout and "step" not in again.stderr
    assert len(list(tmp_path.glob("runs/*/result.json"))) == 6

    rendered = attn("table", TABLE, "--seeds", "3", "--render-only", "--format", "csv", *short)
    assert rendered.returncode == 0
    rows = rows_of(rendered.stdout)
    assert {row["state"] for row in rows.values()} == {"2 of 3 done, missing"}
    losses = [json.loads(path.read_text())["validation_loss"] for path in tmp_path.glob("runs/*-h16-*/result.json")]
    assert float(rows["h16"]["validation_loss"]) == pytest.approx(sum(losses) / 2)

    # a result of other attention code is refused, not shown
    (path, _) = tmp_path.glob("runs/*-h32-*/result.json")
    path.write_text(path.read_text().replace('"attention_digest": "', '"attention_digest": "0'))
    refused = attn("table", TABLE, "--seeds", "2", "--format", "markdown", *short)
    assert refused.returncode == 3
    assert "1 of 2 done, refused" in refused.stdout and "is another than" in refused.stdout


def test_a_table_killed_at_random_goes_on_where_it_was(attn, short, tmp_path, environment):
    words = [*(word for word in short if not word.startswith("max_steps")), "max_steps=150"]
    command = [sys.executable, str(ROOT / "cli.py"), "table", TABLE, "--seeds", "1", "--format", "csv", *words]
    chance = random.Random()
    for _ in range(2):
        table = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 120
        while table.poll() is None and not list(tmp_path.glob("runs/*/checkpoint/step-*[48].safetensors")):
            assert time.monotonic() < end
            time.sleep(0.01)
        time.sleep(2 * chance.random())
        table.kill()
        table.wait()
    whole = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert whole.returncode == 0, whole.stdout + whole.stderr
    assert len(list(tmp_path.glob("runs/*/result.json"))) == 3
    assert any("going on from step" in path.read_text() for path in tmp_path.glob("runs/*/log.txt"))
    # the same numbers as cells that nobody cut
    uncut = subprocess.run([*command, "--runs", "uncut"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    ours, theirs = rows_of(whole.stdout), rows_of(uncut.stdout)
    assert [row["validation_loss"] for row in ours.values()] == [row["validation_loss"] for row in theirs.values()]


def test_a_dry_run_predicts_from_a_calibration_that_is_kept(attn, short, tmp_path):
    words = ("table", TABLE, "--seeds", "2", "--dry-run", "--format", "csv", *short)
    first = attn(*words)
    assert first.returncode == 0, first.stderr
    rows = list(csv.DictReader(io.StringIO(first.stdout)))
    assert len(rows) == 6 and {row["state"] for row in rows} == {"missing"}
    # 12 steps of 4 sequences of 16 tokens
    assert {row["tokens"] for row in rows} == {"768"}
    assert all(0 < float(row["minutes"]) < 5 and int(row["peak_memory_bytes"]) > 10**7 for row in rows)
    assert first.stderr.count("calibrating") == 3
    assert not (tmp_path / "runs").exists()
    again = attn(*words)
    assert "calibrating" not in again.stderr
    assert again.stdout == first.stdout


def test_a_cell_that_fails_ends_no_table(attn, short):
    # of 64 features 16 heads are 4 wide each, of 32 heads 2; 8 heads of 8 are refused memory for their sequences
    words = [word for word in short if not word.startswith("batch_size")]
    done = attn("table", TABLE, "--seeds", "1", "batch_size=100000", "--format", "csv", *words)
    assert done.returncode == 3
    assert {row["state"] for row in rows_of(done.stdout).values()} == {"0 of 1 done, missing"}
    assert "100,000" in done.stderr or "100000" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["table", "shazeer2020/head"], "did you mean shazeer2020/heads?"),
        (["table", TABLE, "--budget", "tiny"], "must be one of nano, small, medium, paper"),
        (["table", TABLE, "--seeds", "0"], "--seeds 0"),
        (["table", TABLE, "heads=4"], "the table itself sets heads"),
        (["table", TABLE, "seed=4"], "--seeds sets seed"),
        (["table", TABLE, "hiden_size=4"], "did you mean hidden_size?"),
        (["table", TABLE, "hidden_size=16"], "key_size"),
        (["table", TABLE, "data=text", "data.train=absent.txt"], "absent.txt"),
        (["table", TABLE, "--published", "absent.yaml"], "absent.yaml"),
        (["table", "bhojanapalli2020/theorem1", "--published", "x.yaml"], "no published numbers"),
        (["table", "bhojanapalli2020/theorem1", "token=9"], "did you mean tokens?"),
    ],
)
def test_mistakes_are_named_and_change_nothing(attn, tmp_path, words, said):
    done = attn(*words)
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr and "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_rows_made_equal_by_an_override_are_refused():
    rows = {"a": ["heads=2"], "b": ["heads=2"]}
    with pytest.raises(Mistake, match="the rows a and b are the same run"):
        source_of("runs").cells(rows, [0], Path("runs"))


def test_computed_cells_are_kept_each_in_a_file(tmp_path, capsys):
    from rich.console import Console

    source, console = source_of("column_stochastic"), Console(file=io.StringIO())
    words = ["form=free", "tokens=3", "heads=1", "key_size=3", "starts=1"]
    cells = source.cells({"a": words, "b": [*words[:3], "key_size=1", "starts=1"]}, range(2), tmp_path / "runs")
    assert [(cell.row, cell.seed) for cell in cells] == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    source.make(cells[:1], "group", console)
    assert [source.finding(cell).state for cell in cells] == ["done", "missing", "missing", "missing"]
    (kept,) = (tmp_path / "runs" / "tables").iterdir()
    before = kept.stat().st_mtime_ns
    source.make(cells, "group", console)
    assert kept.stat().st_mtime_ns == before
    assert {source.finding(cell).state for cell in cells} == {"done"}
    kept.write_text("{")
    assert source.finding(cells[0]).state == "refused"


def test_the_list_names_every_table_and_what_it_costs(capsys, monkeypatch):
    from experiments.tables import command, definition
    from experiments.tables.source import Prediction

    class Cheap:
        def cells(self, rows, seeds, runs):
            return [None]

        def predict(self, cell, console):
            return Prediction(120.0, 10**6, 5 * 10**8)

    monkeypatch.setattr(command, "source_of", lambda name: Cheap())
    assert show_table(None, [], Options(format="csv")) == 0
    rows = {row["table"]: row for row in csv.DictReader(io.StringIO(capsys.readouterr().out))}
    assert set(rows) == set(definition.names())
    assert rows["shazeer2020/heads"]["nano"] == "18 cells, 36.0 min, 0.5 GB, 18.0M tokens"
