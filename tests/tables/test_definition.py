"""The YAML file of a table: what is wrong with it is named, and a new table needs no edit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from experiments.commands.frame.options import TableOptions
from experiments.commands.table import show_table
from experiments.failures.failure import Mistake
from experiments.tables.definition import folder, published
from experiments.tables.definition.folder import TABLES, checked, names
from experiments.tables.definition.request import Request, load
from experiments.tables.definition.table import Table
from experiments.tables.sources.choose import source_of


def test_numbers_that_were_read_in_the_paper_are_no_copies():
    tree = yaml.safe_load((TABLES / "cordonnier2020" / "published.yaml").read_text())
    tree["tables"]["nmt"]["copies"] = 1
    with pytest.raises(Mistake, match=r"tables\.nmt.*copies: numbers that are primary have none"):
        checked(tree, published.Paper, "published.yaml")


def broken(**changes) -> str:
    tree = yaml.safe_load((TABLES / "xiong2020" / "warmup.yaml").read_text())
    for place, value in changes.items():
        branch = tree
        *path, last = place.split("__")
        for key in path:
            branch = branch[key]
        branch[last] = value
    with pytest.raises(Mistake) as caught:
        checked(tree, Table, "warmup.yaml")
    return str(caught.value)


def test_a_wrong_yaml_is_refused_by_name():
    assert "did you mean post_warm6?" in broken(baseline="post_warm5")
    assert "did you mean pre_none6?" in broken(claims__C10__parts=["pre_non6 > post_warm6"])
    assert "budgets.nano.rows" in broken(budgets__nano__rows=["post_warm6", "absent"])
    assert "the baseline" in broken(budgets__nano__rows=["pre_warm6"])
    assert "budgets.nano.margin" in broken(budgets__nano__margin={"value": 0.0, "reason": "none"})
    assert "margin" in broken(margin={"value": 0.1})
    assert "there is no scheme 'rotory'" in broken(budgets__nano__positions={"rotory": ""})
    assert "seeds" in broken(budgets__nano__seeds=0)
    # a key of the table, of a budget and of a claim
    assert "there is no setting 'tittle' (did you mean title?)" in broken(tittle="x")
    assert "there is no setting 'budgets.nano.margn' (did you mean margin?)" in broken(budgets__nano__margn={})
    assert "there is no setting 'claims.C10.part' (did you mean parts?)" in broken(claims__C10__part=[])
    assert "rowss" in broken(rowss={})
    assert "not a comparison" in broken(claims__C10__parts=["pre_none6"])
    assert "Value error" not in broken(baseline="post_warm5") + broken(budgets__nano__margin=None)
    assert broken(budgets__nano__seeds=0) == "warmup.yaml: budgets.nano.seeds = 0: must be at least 1"
    tuned = {"chosen": 1e-3, "where": "here", "tried": {"1e-3": 5.0, "3e-3": 4.0}}
    assert "not the best of those tried" in broken(budgets__nano__learning_rates={"post": tuned})
    unclaimed = {"says": "it", "parts": ["pre_none6 > pre_warm6"]}
    assert broken(claims__C10=unclaimed) == "warmup.yaml: claims.C10.origin is missing"
    assert "a number stands for a score, but this claim is of step_time" in broken(
        claims__C10={"says": "it", "origin": "paper", "of": "step_time", "parts": ["pre_none6 > 0.1"]}
    )
    for of, part in (
        ("parameters", "pre_none6 ~ pre_warm6"),
        ("parameters", "pre_none6 >~ pre_warm6"),
        ("parameters", "pre_none6 > pre_warm6 > post_warm6 by h"),
        ("score", "pre_none6 - pre_warm6 = 1"),
        ("step_time", "pre_none6 - pre_warm6 = 1"),
    ):
        told = broken(claims__C10={"says": "it", "origin": "paper", "of": of, "parts": [part]})
        assert f"a claim of {of} compares two sides with" in told, (of, part)
    medium = yaml.safe_load((TABLES / "bhojanapalli2020" / "table1.yaml").read_text())["budgets"]["medium"]
    assert "did you mean finetune.squad.scores" in broken(budgets__medium=medium | {"score": "finetune.sqad.scores.f1"})
    assert "this budget has no such fine-tuning" in broken(budgets__medium=medium | {"columns": ["finetune.squad.f1"]})
    assert "can't stand in for finetune.squad" in broken(budgets__medium=medium | {"diverged": "unigram_loss"})
    assert "trains nothing that could be fine-tuned" in broken(source="column_stochastic", budgets__medium=medium)
    told = broken(budgets__nano__learning_rates={"pots": tuned | {"tried": {}}})
    for place in ("budgets.nano.score", "budgets.nano.diverged", "budgets.nano.columns", "columns"):
        value = ["validaton_loss"] if place.endswith("columns") else "validaton_loss"
        told_number = broken(**{place.replace(".", "__"): value})
        assert f"{place}: result.json has no number 'validaton_loss' (did you mean validation_loss?)" in told_number
    for score, said in (
        ("parameters", "parameters has several numbers; did you mean parameters.total?"),
        ("text_scores", "text_scores has several numbers; write text_scores.NAME"),
        ("mfu.total", "mfu is one number, without 'total'; did you mean mfu?"),
    ):
        assert f"budgets.nano.score: {said}" in broken(budgets__nano__score=score)
    assert "the family post has no learning rate (did you mean pots?)" in told
    without = {"label": "a row", "overrides": "norm=pre"}
    assert "the row post_warm12 has no family; there are: pots" in broken(
        rows__post_warm12=without, budgets__nano__learning_rates={"pots": tuned | {"tried": {}}}
    )
    assert "no set 'maskd' (did you mean masked?)" in broken(budgets__nano__learning_rates="maskd")


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("pre_none6 < post_warm6", "there is no sign <; write >, >~, ~ or =, with what is better first"),
        ("pre_none6 >= post_warm6", "there is no sign >="),
        ("pre_none6 == post_warm6", "there is no sign =="),
        ("pre_none6 > a_row", "there is no row 'a_row'; there are: post_warm6, "),
    ],
)
def test_a_comparison_that_cannot_be_read_names_what_can_stand_there(part, said):
    assert said in broken(claims__C10__parts=[part])


@pytest.mark.parametrize(
    ("place", "overrides", "said"),
    [
        ("rows__pre_warm6", "norm=pre seed=3", "rows.pre_warm6.overrides: --seeds sets seed"),
        ("rows__pre_warm6", "norm=pre norm=post", "rows.pre_warm6.overrides: norm is given 2 times"),
        ("budgets__nano", "data='a", """budgets.nano.overrides: "data='a": a quotation mark has no partner"""),
        ("budgets__nano", "runs=elsewhere", "budgets.nano.overrides: --runs sets runs"),
    ],
)
def test_an_override_that_nothing_would_read_is_refused(place, overrides, said):
    assert said in broken(**{f"{place}__overrides": overrides})


def test_keys_that_yaml_reads_as_something_else_are_named():
    row = {"label": "a row", "overrides": "norm=pre"}
    assert "rows: the key false (yes, no, on and off without quotation marks are" in broken(rows={False: row})
    told = broken(rows__pre_warm6=yaml.safe_load("{label: a row, overrides: heads=2,4}"))
    assert "rows.pre_warm6: there is no setting 4; a text with a comma needs quotation marks" in told


def test_every_family_has_a_rate_under_every_scheme():
    rate = {"chosen": 1e-3, "where": "here", "tried": None}
    schemes = {key: {"label": key, "overrides": f"model.position={key}"} for key in ("relative", "rotary")}

    def told(*names: str) -> str:
        rates = dict.fromkeys(("pre", "pre_without_warmup", *names), rate)
        return broken(positions=schemes, budgets__nano__learning_rates=rates)

    assert "post@rotry: the budget has no scheme 'rotry' (did you mean rotary?)" in told("post", "post@rotry")
    assert "the family post has no learning rate under the scheme rotary" in told("post@relative")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b"  one:", b"\tone:", "line 10: while scanning for the next token, found character '\\t' that cannot start"),
        (b"shows: that", b"shows: that: it", "line 3: mapping values are not allowed here"),
        (b"second head", b"second t\xeate", "line 3: the byte 0xea is not UTF-8"),
        (b"  two:", b"  one:", "line 11: the key one is given twice"),
        (b"  nano:", b"  tiny:", "budgets: the key tiny must be one of nano, small, medium, paper"),
    ],
)
def test_a_slip_in_a_file_is_named_with_its_line_and_hides_no_other_table(
    old, new, said, tmp_path, monkeypatch, capsys
):
    broken = write_tables(tmp_path, monkeypatch, {"slip": MINE.encode().replace(old, new), "mine": MINE.encode()})
    with pytest.raises(Mistake, match=re.escape(f"{broken}: {said}")):
        load("me2026/slip")
    show_table(None, [], TableOptions(runs=tmp_path / "runs", format="csv"))
    shown = capsys.readouterr()
    assert [line.split(",")[0] for line in shown.out.splitlines()][:2] == ["table", "me2026/mine"]
    assert "slip" not in shown.out and shown.err.startswith(f"left out: {broken}: {said}")


def test_a_file_without_a_key_is_refused(tmp_path, monkeypatch):
    broken = write_tables(tmp_path, monkeypatch, {"slip": b"# nothing yet\n"})
    with pytest.raises(Mistake, match=re.escape(f"{broken}: has no keys; it must be a mapping")):
        load("me2026/slip")


def write_tables(folder_of_tables: Path, monkeypatch, contents: dict[str, bytes]) -> Path:
    """Write tables of a paper, which are then the only ones; the path of the first."""
    monkeypatch.setattr(folder, "TABLES", folder_of_tables)
    paths = [folder_of_tables / "me2026" / f"{name}.yaml" for name in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    return paths[0]


MINE = """
title: Mine
shows: that a second head helps
paper: Somebody 2026
source: runs
published: {table: "1", metric: ppl, better: lower}
baseline: one
margin: {value: 0.01, reason: made for the test}
rows:
  one: {label: one head, overrides: heads=1, published: one}
  two: {label: two heads, overrides: heads=2, published: two}
claims:
  M1: {says: Two are better, origin: paper, parts: [two > one]}
budgets:
  nano: {task: masked tokens, seeds: 2, overrides: max_steps=5}
"""
PRINTED = """
paper: Somebody 2026
tables:
  "1":
    setup: a small model
    verification: primary
    source: the paper's page 3
    metrics: [ppl]
    rows: {one: {ppl: 9.5}, two: {ppl: 9.1}}
"""


def test_a_table_of_the_current_folder_is_told_how_it_is_added(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Mistake) as caught:
        folder.check_name("me2026/mine")
    assert str(caught.value).endswith("; plugins=FOLDER and --config-dir FOLDER add tables of yours")
    (own := tmp_path / "conf" / "table" / "me2026").mkdir(parents=True)
    (own / "mine.yaml").write_text(MINE)
    with pytest.raises(Mistake, match=r"'me2026/mine'\n  --config-dir conf adds conf/table/me2026/mine\.yaml; "):
        folder.check_name("me2026/mine")


def test_a_new_table_is_two_new_files_and_no_edit(tmp_path, monkeypatch, capsys):
    (tmp_path / "me2026").mkdir()
    (tmp_path / "me2026" / "mine.yaml").write_text(MINE)
    (tmp_path / "me2026" / "published.yaml").write_text(PRINTED)
    monkeypatch.setattr(folder, "TABLES", tmp_path)
    assert names() == ["me2026/mine"]
    source = source_of(Request("me2026/mine", load("me2026/mine"), "nano", range(1)))
    assert [source.settings(cell).heads for cell in source.cells([0])] == [1, 2]
    options = TableOptions(mode="--render-only", runs=tmp_path / "runs", format="markdown")
    assert show_table("me2026/mine", ["logger.wandb=off"], options) == 0
    shown = capsys.readouterr().out
    assert "9.5 (p)" in shown and "9.1 (p)" in shown and "**M1, not resolved.** Two are better." in shown
    assert "0 of 2 done, missing" in shown
    (tmp_path / "me2026" / "published.yaml").unlink()
    with pytest.raises(Mistake, match=r"conf/table/me2026/published\.yaml, here, in plugins=FOLDER or in --config-dir"):
        show_table("me2026/mine", [], options)
    alone = MINE.replace('published: {table: "1", metric: ppl, better: lower}', "")
    with pytest.raises(Mistake, match=r"rows\.one\.published: the table itself has no key published"):
        checked(yaml.safe_load(alone), Table, "mine.yaml")
