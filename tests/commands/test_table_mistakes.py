"""What `attn table` refuses: claims, seeds, settings, files and folders, each by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from experiments.commands.frame.options import TableOptions
from experiments.commands.table import check_sizes, request_of, seeds_of
from experiments.failures.failure import Failure, Mistake
from experiments.tables.definition import folder
from experiments.tables.definition.request import Request, load
from experiments.tables.sources.choose import source_of
from tests.fixtures.tables import NAME

TABLE = "shazeer2020/projections"


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        (["c4"], "'c4': me2026/heads makes no such claim at the budget nano (did you mean C4?)\n  its claims are C4"),
        (["C4", "C4"], "'C4': is given 2 times"),
    ],
)
def test_a_claim_that_the_table_does_not_make_is_refused(attn, heads_table, claims, said):
    refused = attn("table", NAME, *(word for claim in claims for word in ("--claim", claim)))
    assert (refused.returncode, refused.stderr) == (2, f"attn table: --claim {said}\n")


def test_a_claim_without_a_comparison_at_the_budget_is_refused(attn):
    refused = attn("table", "bhojanapalli2020/figure1", "--claim", "wider")
    why = "the budget nano of bhojanapalli2020/figure1 has the rows of none of its comparisons"
    assert (refused.returncode, refused.stderr) == (
        2,
        f"attn table: --claim 'wider': {why}\n  give a larger --budget\n",
    )


def test_a_place_for_the_page_that_cannot_be_written_is_named_before_the_training():
    with pytest.raises(Failure, match=r"^/proc/page: "):
        request_of(TABLE, [], TableOptions(out=Path("/proc/page")))


@pytest.mark.parametrize("asked", ["--dry-run", "--plan=4"])
def test_a_file_that_is_missing_is_named_before_anything_is_measured(attn, tmp_path, heads_table, asked):
    done = attn("table", NAME, asked, "data=text", "data.train=missing.txt")
    assert done.returncode == 2 and done.stdout == ""
    assert "data.train=missing.txt: there is no such file" in done.stderr and "cost of" not in done.stderr
    assert not list(tmp_path.glob("runs/*"))


def test_rates_that_were_not_tuned_are_named_by_a_plan_and_refused_where_seeds_are_added(
    attn, short, tmp_path, heads_table
):
    table = folder.TABLES / f"{heads_table}.yaml"
    table.write_text(re.sub("tried: {.*?}", "tried: {}", table.read_text()))
    refused = attn("table", NAME, "--until-resolved", *short)
    assert refused.returncode == 2 and not list(tmp_path.glob("runs/*"))
    tuning = rf"no learning rate was tuned\n  attn table {NAME} --tune .*max_steps=\d+.* finds the rates"
    assert re.search(tuning, refused.stderr)
    done = attn("table", NAME, "--plan", "4", *short)
    assert done.returncode == 0 and Path(done.stdout.strip()).is_file()
    assert re.search("The learning rate of multi_head was not tuned with .*max_steps=.*, so its rows can", done.stderr)


def test_a_plan_is_not_made_where_the_library_that_decides_it_is_missing(attn, tmp_path, heads_table, monkeypatch):
    monkeypatch.setattr("experiments.failures.missing_extra.find_spec", lambda name: None)
    done = attn("table", NAME, "--plan", "4")
    assert done.returncode == 2 and "--plan needs scipy\n  pip install" in done.stderr
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.parametrize(
    ("of", "part", "said"),
    [
        ("score", "h8 > h16 > h32 by hh", "the row h8 has no size hh .did you mean h.*; it has h_k, h, h_v, d_k, "),
        ("score", "h8 > h16 > h32 by layers", "the first and the last side do not differ in layers"),
        ("parameters", "h16 - h8 = layer * h", "there is no size 'layer'"),
    ],
)
def test_a_claim_about_sizes_that_rows_do_not_have_is_refused_before_the_training(heads_table, of, part, said):
    table = load(heads_table)
    claims = {"sizes": table.claims["C4"].model_copy(update={"of": of, "parts": [part]})}
    request = Request(heads_table, table.model_copy(update={"claims": claims}), "nano", range(1))
    with pytest.raises(Mistake, match=said):
        check_sizes(request, source_of(request))


def test_seeds_by_their_number_or_by_the_first_and_the_last():
    assert [*seeds_of("3")] == [0, 1, 2]
    assert [*seeds_of("24-26")] == [24, 25, 26]
    assert seeds_of("0-2") == seeds_of("3")
    assert [*seeds_of("4294967295-4294967295")] == [2**32 - 1]
    with pytest.raises(Mistake, match="the last seed must be at most 4294967295"):
        seeds_of("4294967295-4294967296")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["shazeer2020/head"], "did you mean shazeer2020/heads?"),
        (["heads_t5"], "did you mean shazeer2020/heads_t5?"),
        ([TABLE, "--budget", "tiny"], "must be one of nano, small, medium, paper"),
        ([TABLE, "--budget", "smal"], "did you mean small?"),
        ([TABLE, "--out", __file__], "is not a folder\n  name a folder"),
        ([TABLE, "--seeds", "0"], "--seeds 0: must be a number of seeds, from 1 on, or FIRST-LAST"),
        ([TABLE, "--seeds", "five"], "--seeds five"),
        ([TABLE, "--seeds", "7-6"], "--seeds 7-6"),
        ([TABLE, "variant=multi_head"], "the table itself sets variant"),
        (["bhojanapalli2020/theorem1", "--tune"], "has a rate to tune"),
        (["bhojanapalli2020/theorem1", "--workers", "2"], "--workers 2: these cells are computed one after the other"),
        ([TABLE, "--dry-run", "--format", "latex"], "--format latex: a list is printed as table, markdown or csv"),
        (["--format", "latex"], "--format latex: a list"),
        ([TABLE, "seed=4"], "--seeds sets seed"),
        ([TABLE, "hiden_size=4"], "did you mean hidden_size?"),
        ([TABLE, "hidden_size=8"], "key_size"),
        ([TABLE, "trainer.guard_limit=9"], "trainer.guard_limit=9: nothing reads it with trainer.guard=stop"),
        ([TABLE, "model.sinusoidal_base=9"], "nothing reads it with model.position=relative and model.position=rotary"),
        ([TABLE, "data=text", "data.train=absent.txt"], "absent.txt"),
        ([TABLE, "--published", "absent.yaml"], "absent.yaml"),
        ([TABLE, "--format", "html"], "--format html: must be one of table, markdown, csv, latex"),
        (["bhojanapalli2020/theorem1", "--published", "x.yaml"], "no published numbers"),
        (["bhojanapalli2020/theorem1", "token=9"], "did you mean tokens?"),
        (["max_steps=2"], "which table?"),
    ],
)
def test_mistakes_are_named_and_change_nothing(attn, tmp_path, words, said):
    done = attn("table", *words)
    assert done.returncode == 2, done.output
    assert said in done.stderr and "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_link_to_nothing_is_no_folder_for_the_results(attn, tmp_path):
    (tmp_path / "link").symlink_to("nothing")
    done = attn("table", "bhojanapalli2020/theorem1", "--out", "link", "--render-only")
    assert done.returncode == 2 and "--out link: is not a folder" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_a_mistake_in_every_row_is_said_once(attn):
    said = attn("table", TABLE, "hiden_size=4").stderr
    assert said.count("there is no setting 'hiden_size'") == 1 and "none: " not in said


@pytest.mark.parametrize(
    ("kind", "said"), [("loop", "Too many levels of symbolic links"), ("file", "a file stands where a folder should")]
)
def test_runs_that_cannot_be_read_end_the_search_for_seeds(attn, tmp_path, heads_table, kind, said):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    done = attn("table", heads_table, "--render-only", "--runs", kind)
    assert done.returncode == 1 and said in done.stderr and done.stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "loop"]


def test_a_folder_that_computed_cells_can_not_have_is_named(attn, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "computed").write_text("in the way")
    done = attn("table", "bhojanapalli2020/theorem1", "--seeds", "1")
    assert done.returncode == 1 and "a file stands where a folder should be" in done.stderr
    assert "Traceback" not in done.stderr
