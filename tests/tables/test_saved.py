"""Every rendering leaves the table for others to show: as JSON and Markdown, the old one or the new one, whole."""

from __future__ import annotations

import json

import pytest

from experiments.commands.table import TableOptions, show_table
from experiments.record.durable import RunFolderError, read_sealed
from experiments.tables.rendering import saved
from experiments.tables.rendering.render import render, sentences
from experiments.tables.rendering.saved import as_shown, save
from tests.tables.test_report import done, made

TABLE = "bhojanapalli2020/table1"
NAME = "bhojanapalli2020-table1-nano.json"
TEXT = "bhojanapalli2020-table1-nano.md"


def test_a_table_is_saved_by_its_name_and_budget(tmp_path):
    save(made(), tmp_path)
    assert sorted(path.name for path in (tmp_path / "tables").iterdir()) == sorted([NAME, TEXT])
    assert (tmp_path / "tables" / TEXT).read_text() == render(made(), "markdown")
    found = read_sealed(tmp_path / "tables" / NAME)
    assert (found["name"], found["budget"]) == (TABLE, "nano")
    assert found == json.loads(json.dumps(as_shown(made())))


def test_it_reads_as_people_see_it():
    found = as_shown(made())
    names, scores, costs = found["tables"]
    assert [row["row"] for row in scores] == ["h8", "h16", "h32"]
    assert scores[0]["published_squad_f1"] == "90.89 +- 0.15 (s)" and scores[1]["rank_deviation"] == "1"
    assert names[1]["h_k"] == "16" and costs[0]["peak_memory_bytes"] == "500 MB"
    assert all(isinstance(value, str) for rows in found["tables"] for row in rows for value in row.values())
    (claim,) = found["claims"]
    assert (claim["key"], claim["word"]) == ("C4", "fails")
    assert claim["lines"] == [line.strip() for line in sentences(made().verdicts[0])[1:]]
    assert any("95% t interval" in line for line in found["notes"])


def test_a_later_rendering_takes_its_place(tmp_path):
    save(made(), tmp_path)
    save(made({("h32", seed): done(3.0 + seed / 100) for seed in range(3)}), tmp_path)
    assert len(list((tmp_path / "tables").iterdir())) == 2
    assert read_sealed(tmp_path / "tables" / NAME)["tables"][1][2]["validation_loss"] == "3.0100"


def test_what_is_cut_leaves_the_old_one_whole(tmp_path, monkeypatch):
    save(made(), tmp_path)
    before = (tmp_path / "tables" / NAME).read_bytes()

    def cut(path, other):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.replace", cut)
        with pytest.raises(KeyboardInterrupt):
            save(made({("h8", 0): done(9.0)}), tmp_path)
    assert (tmp_path / "tables" / NAME).read_bytes() == before
    assert len(list((tmp_path / "tables").iterdir())) == 2, "and nothing half-written"


def test_a_folder_that_can_not_be_written_is_said_in_a_line(tmp_path):
    (tmp_path / "tables").write_text("in the way")
    with pytest.raises(RunFolderError, match="a file stands where a folder should be"):
        save(made(), tmp_path)


def test_render_only_saves_it_too(tmp_path, monkeypatch):
    monkeypatch.setattr(saved, "as_shown", lambda report: {"rows": [line["state"] for line in report.lines]})
    options = TableOptions(render_only=True, runs=tmp_path / "runs", seeds="2")
    assert show_table(TABLE, ["logger.wandb=off"], options) == 0
    found = read_sealed(tmp_path / "runs" / "tables" / NAME)
    assert found == {"rows": ["0 of 2 done, missing"] * 3}
