"""`attn table` on a tiny text: its cells are those of `attn train`, and what was made is shown, kept and replaced."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from experiments.bench import rounds
from experiments.bench.rounds import Timing
from experiments.bench.worker import Turn
from experiments.commands.frame.options import TableOptions
from experiments.commands.table import show_table
from experiments.failures.exit_code import ExitCode
from experiments.record.folder import RunFolder
from experiments.tables import paper_differences, step_times, until_resolved
from experiments.tables.rendering.render import write_all
from experiments.tables.sources.runs import Runs
from experiments.tables.sources.source import Outcomes
from tests.fixtures.record import leave_result
from tests.fixtures.tables import NAME, rows_of
from tests.tables.known import made

TABLE = "shazeer2020/projections"
# the row h16 of the test's table
CELL = ["experiment=nano_table", "objective.rate=0.4", "learning_rate=3e-3", "variant=multi_head", "heads=16"]


def test_a_table_is_made_rendered_and_shared(attn, short, tmp_path, heads_table, monkeypatch):
    # the bench is tried where it stands; here each row takes a tenth of a second
    turn = Turn(0.1, 10**6, ["sdpa"], 0.25)
    monkeypatch.setattr(
        rounds, "timed", lambda contenders, count: [Timing([turn] * count, turn, None)] * len(contenders)
    )
    short = [*(word for word in short if not word.startswith("max_steps")), "max_steps=4"]
    done = attn("table", NAME, "--seeds", "2", "--out", "out", "--wandb", *short)
    assert done.returncode == 0, done.output
    assert len(list(tmp_path.glob("runs/*/result.json"))) == 6
    assert "90.89 +- 0.15 (s)" in done.stdout and "C4, not " in done.stdout
    # nobody is logged in
    logged, not_sent = (line for line in done.stderr.splitlines() if "W&B" in line)
    assert logged == "W&B offline: runs/wandb" and "the report in W&B was not updated: " in not_sent
    (mirrored,) = tmp_path.glob("runs/wandb/offline-*/run-table-*.wandb")
    (saved,) = tmp_path.glob("runs/tables/*.json")
    assert mirrored.name == f"run-table-{saved.stem}.wandb" and saved.stem.startswith("me2026-heads-nano-")
    assert len(list(mirrored.parent.glob("files/media/table/*.table.json"))) == 2, "the rows, and the claims"
    assert (tmp_path / "out" / "me2026_heads.md").read_text().startswith("# More heads of less width")
    # what the comparison page reads
    assert json.loads(saved.read_text())["name"].startswith(f"{NAME} ")

    # the cells are those of attn train, and in the order of the seeds
    assert [line.split("-s")[1][0] for line in done.stderr.splitlines() if ": done" in line] == list("000111")
    row = [*CELL, "trainer.compile=false"]
    again = attn("train", *row, "seed=1", *short)
    assert again.returncode == 0 and "validation loss" in again.output and "step" not in again.stderr
    assert len(list(tmp_path.glob("runs/*/result.json"))) == 6

    # a step of each row is timed once
    assert "timing a step of 3 rows" in done.stderr, done.output
    assert "step times: medians of 12 interleaved rounds" in done.stdout and "100 ms" in done.stdout
    assert "waited 25% of its time for a core" in done.stdout

    rendered = attn("table", NAME, "--seeds", "3", "--render-only", "--format", "csv", *short)
    assert rendered.returncode == 0
    rows = rows_of(rendered.stdout)
    assert {row["state"] for row in rows.values()} == {"2 of 3 done, missing"}
    losses = [json.loads(path.read_text())["validation_loss"] for path in tmp_path.glob("runs/*-h16-*/result.json")]
    assert float(rows["h16"]["validation_loss"]) == pytest.approx(sum(losses) / 2)

    # earlier seeds that have begun count too, because nobody may choose between seeds
    second = attn("table", NAME, "--seeds", "1-1", "--render-only", "--format", "markdown", *short)
    assert second.returncode == 0 and "--seeds 1-1" in second.stdout and "* seeds: 0-1\n" in second.stdout
    assert (tmp_path / "runs/tables" / f"{saved.stem}-1-1.json").exists()

    # a result of other attention code is refused, not shown
    (path, _) = tmp_path.glob("runs/*-h32-*/result.json")
    result = RunFolder(path.parent).result().to_dict()
    leave_result(path.parent, **result | {"code_digest": "0" * 64})
    refused = attn("table", NAME, "--seeds", "2", "--format", "markdown", *short)
    assert refused.returncode == 3
    assert "1 of 2 done, refused" in refused.stdout and "has changed since" in refused.stdout


def test_the_settings_of_the_budget_paper_are_composed_once_for_all_reports(tmp_path, monkeypatch, capsys):
    composed, compose_rows = [], paper_differences.source_of
    monkeypatch.setattr(paper_differences, "source_of", lambda *asked: composed.append(asked) or compose_rows(*asked))
    monkeypatch.setattr(Runs, "check", lambda source: None)

    def thrice(request, source, report, *rest):
        for _ in range(3):
            report(Outcomes(source))

    monkeypatch.setattr(until_resolved, "until_resolved", thrice)
    assert show_table(TABLE, [], TableOptions(mode="--until-resolved", runs=tmp_path)) == ExitCode.SWEEP_FAILED
    assert len(composed) == 1 and "set-up (at --budget paper): " in capsys.readouterr().out


def test_the_list_of_results_replaces_no_page_of_the_user(attn, tmp_path, heads_table):
    (tmp_path / "README.md").write_text("# My project\n")
    refused = attn("table", NAME, "--out", ".")
    assert refused.returncode == 2 and "would replace README.md, which attn has not written" in refused.stderr
    assert (tmp_path / "README.md").read_text() == "# My project\n" and not (tmp_path / "runs").exists()


def test_a_page_is_replaced_by_one_of_the_same_settings_only(attn, tmp_path, heads_table):
    out = tmp_path / "out"
    write_all(made(overrides=("data=text", "data.train=/of/me/a.txt")), out)
    page = (out / "me2026_heads.md").read_bytes()
    text = ["data=text", "data.train=b/a.txt", "logger.wandb=off"]
    for overrides in ([], [*text, "layers=2"], ["data.train=other.txt", "data=text"]):
        refused = attn("table", NAME, "--out", "out", *overrides)
        said = "--out out: me2026_heads.md there was made with data=text data.train=a.txt\n"
        assert refused.returncode == 2 and said in refused.stderr, overrides
    assert (out / "me2026_heads.md").read_bytes() == page and not (tmp_path / "runs").exists()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "a.txt").write_text("a text")
    replaced = attn("table", NAME, "--seeds", "2", "--render-only", "--out", "out", *reversed(text))
    assert replaced.returncode == 0 and (out / "me2026_heads.md").read_bytes() != page, replaced.output
    write_all(made(), out)
    refused = attn("table", NAME, "--out", "out", "layers=2")
    assert refused.returncode == 2 and "there was made without overrides" in refused.stderr
    # the numbers say it, whatever became of the page
    (out / "me2026_heads.md").write_text("attn table me2026/heads layers=2\n")
    assert attn("table", NAME, "--out", "out", "layers=2").stderr == refused.stderr
    (out / "me2026_heads.json").write_text("{}")
    refused = attn("table", NAME, "--out", "out", "--render-only")
    assert refused.returncode == 2 and "me2026_heads.json: is not what was written" in refused.stderr


def test_a_cell_that_fails_ends_no_table(attn, short, tmp_path, heads_table, monkeypatch):
    monkeypatch.setattr(step_times, "measure", lambda *_: step_times.NOT_MEASURED)
    words = [*CELL, *short]
    (cell,) = Runs({"h16": words}, Path("runs")).cells([0])
    damaged = tmp_path / "runs" / cell.name
    damaged.mkdir(parents=True)
    (damaged / "result.json").write_text("{")
    done = attn("table", NAME, "--seeds", "1", "--format", "csv", *short)
    assert done.returncode == 3, done.output
    states = {row: found["state"] for row, found in rows_of(done.stdout).items()}
    assert states == {"h8": "done", "h16": "0 of 1 done, refused", "h32": "done"}
    assert f"{cell.name}: " in done.stderr and "result.json" in done.stderr
    # and so of any other file of a cell
    (facts,) = tmp_path.glob("runs/*-h8-*/environment.json")
    facts.write_text("{")
    shown = attn("table", NAME, "--seeds", "1", "--format", "csv", "--render-only", *short)
    assert shown.returncode == 0, shown.output
    assert rows_of(shown.stdout)["h8"]["state"] == "0 of 1 done, refused"


def test_what_can_not_be_kept_is_still_shown(attn, short, tmp_path, heads_table):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "tables").write_text("in the way")
    shown = attn("table", NAME, "--render-only", "--format", "csv", *short)
    assert set(rows_of(shown.stdout)) == {"h8", "h16", "h32"}
    assert shown.returncode == 1 and "a file stands where a folder should be" in shown.stderr


def test_what_is_computed_is_shown_without_scipy_and_not_computed(attn, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    shown = attn("table", "bhojanapalli2020/theorem1", "--render-only")
    assert shown.returncode == 0, shown.stderr
    made = attn("table", "bhojanapalli2020/theorem1")
    assert made.returncode == 2 and "a fit by least squares needs scipy" in made.stderr
    planned = attn("table", "bhojanapalli2020/theorem1", "--dry-run")
    assert planned.returncode == 0 and "200 of unknown length" in planned.stdout, planned.stderr
