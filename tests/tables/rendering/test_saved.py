"""Every rendering also saves the table as JSON and Markdown; each is always complete, either the old or the new one."""

from __future__ import annotations

import json

import pytest

from experiments.commands.frame.options import TableOptions
from experiments.commands.table import show_table
from experiments.failures.failure import Failure
from experiments.files.durable import read_sealed
from experiments.tables.rendering import saved
from experiments.tables.rendering.render import render
from experiments.tables.rendering.saved import as_json, save
from experiments.tables.rendering.sentences import details
from tests.fixtures.tables import NAME
from tests.tables.known import done, made

JSON = "me2026-heads-nano.json"
TEXT = "me2026-heads-nano.md"
pytestmark = pytest.mark.usefixtures("heads_table")


def test_a_table_is_saved_by_its_name_and_budget(tmp_path):
    save(made(), tmp_path)
    assert sorted(path.name for path in (tmp_path / "tables").iterdir()) == sorted([JSON, TEXT])
    assert (tmp_path / "tables" / TEXT).read_text() == render(made(), "markdown")
    found = read_sealed(tmp_path / "tables" / JSON)
    assert (found["name"], found["budget"]) == (NAME, "nano")
    assert found == json.loads(json.dumps(as_json(made())))


def test_it_reads_as_people_see_it():
    found = as_json(made())
    (rows,) = found["tables"]
    assert [row["row"] for row in rows] == ["h8", "h16", "h32"]
    assert rows[0]["published squad_f1"] == "90.89 +- 0.15 (s)" and rows[1]["rank (paper's)"] == "3 (2)"
    assert rows[1]["heads"] == "16" and rows[0]["memory_bytes"] == "500 MB"
    assert all(isinstance(value, str) for rows in found["tables"] for row in rows for value in row.values())
    (claim,) = found["claims"]
    assert (claim["key"], claim["word"]) == ("C4", "reversed")
    assert claim["lines"] == [text for _, text in details(made().verdicts[0], made())]
    assert any("95% interval" in line for line in found["notes"])


def test_a_later_rendering_takes_its_place(tmp_path):
    save(made(), tmp_path)
    save(made({("h32", seed): done(3.0 + seed / 100) for seed in range(6)}), tmp_path)
    assert len(list((tmp_path / "tables").iterdir())) == 2
    assert read_sealed(tmp_path / "tables" / JSON)["tables"][0][2]["validation_loss"].startswith("3.0250")


def test_a_table_with_other_overrides_is_saved_beside_it(tmp_path):
    overrides = ("data=text", "data.train=/of/me/a.txt", "logger.wandb=off")
    for each in ((), overrides, overrides[::-1], overrides[:2], ("logger.wandb=off",)):
        save(made(overrides=each), tmp_path)
    found = [read_sealed(path) for path in (tmp_path / "tables").glob("*.json")]
    assert {each["name"] for each in found} == {NAME, f"{NAME} data=text data.train=a.txt"} and len(found) == 2


def test_what_is_cut_leaves_the_old_one_whole(tmp_path, monkeypatch):
    save(made(), tmp_path)
    before = (tmp_path / "tables" / JSON).read_bytes()

    def cut(path, other):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.replace", cut)
        with pytest.raises(KeyboardInterrupt):
            save(made({("h8", 0): done(9.0)}), tmp_path)
    assert (tmp_path / "tables" / JSON).read_bytes() == before
    assert len(list((tmp_path / "tables").iterdir())) == 2, "and nothing half-written"


@pytest.mark.parametrize(
    ("in_the_way", "remedy"),
    [("runs/tables", r"set runs= \(or --runs\) to another folder"), ("out", "choose another --out")],
)
def test_a_folder_that_can_not_be_made_is_said_with_the_option_that_chooses_another(tmp_path, in_the_way, remedy):
    (tmp_path / "runs").mkdir()
    (tmp_path / in_the_way).touch()
    options = TableOptions(mode="--render-only", runs=tmp_path / "runs", seeds="2", out=tmp_path / "out" / "there")
    with pytest.raises(Failure, match=f"a file stands where a folder should be; remove it, or {remedy}$"):
        show_table(NAME, ["logger.wandb=off"], options)


def test_render_only_saves_it_too(tmp_path, monkeypatch):
    monkeypatch.setattr(saved, "as_json", lambda report: {"rows": [line.state for line in report.lines]})
    options = TableOptions(mode="--render-only", runs=tmp_path / "runs", seeds="2")
    assert show_table(NAME, ["logger.wandb=off"], options) == 0
    found = read_sealed(tmp_path / "runs" / "tables" / JSON)
    assert found == {"rows": ["0 of 2 done, missing"] * 3}
