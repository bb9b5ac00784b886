"""The list of results."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.files.durable import write_sealed
from experiments.tables.rendering.index import write_index
from experiments.tables.rendering.render import write_all
from tests.fixtures.tables import NAME
from tests.tables.known import made

pytestmark = pytest.mark.usefixtures("heads_table")


def test_files_of_one_budget_do_not_replace_those_of_another(tmp_path):
    nano = made()
    for budget, seeds, stem in (
        ("nano", range(6), "me2026_heads"),
        ("small", range(6), "me2026_heads-small"),
        ("small", range(4, 6), "me2026_heads-small-4-5"),
    ):
        request = replace(nano.request, budget_name=budget, seeds=seeds)
        assert request.result_stem == stem
    assert replace(nano.request, chosen_claims=["C4"]).result_stem == "me2026_heads-C4"
    index = write_all(nano, tmp_path / "results")[-1]
    (tmp_path / "results" / "me2026_heads.md").rename(tmp_path / "results" / "me2026_heads-small-4-5.md")
    write_index(tmp_path / "results")
    assert f"attn table {NAME}" not in index.read_text(), "it has been run, at another budget"


def test_the_list_of_results_links_to_pages_that_are_there(tmp_path):
    (tmp_path / "verdicts.md").touch()
    index = write_all(made(), tmp_path / "results")[-1].read_text()
    assert "[How a claim is decided](../verdicts.md) explains the verdicts, and `docs/tables.md`" in index


def test_a_claim_whose_verdict_differs_between_schemes_lists_them(tmp_path):
    shared, own = "paper,budget,claim,says,verdict,positions,word,paired_by,origin", "comparison,comparison_word"
    header = f"{shared},{own},mean,low,high,pairs\n"
    lines = [
        f"P,nano,{claim},it helps,not resolved,{scheme},{word},seed,paper,loss: a < b,{word},-0.2,-0.5,0.1,4\n"
        for claim, second in (("one", "holds"), ("two", "not resolved"))
        for scheme, word in (("learned", "not resolved"), ("rotary", second))
    ]
    (tmp_path / "p_t.md").touch()
    (tmp_path / "p_t_claims.csv").write_text(header + "".join(lines))
    index = write_index(tmp_path).read_text()
    assert "| **not resolved** (learned: not resolved, rotary: holds) |" in index and "| **not resolved** |" in index


COMPARED = "paper,budget,claim,says,verdict,paired_by,origin,comparison,comparison_word,small,mean,low,high,pairs\n"


def test_the_list_of_results_says_how_many_parameters_more_the_better_sides_have(tmp_path):
    header = COMPARED.replace("small", "more_parameters")
    line = "P,nano,{},it helps,holds,seed,paper,loss: a < b,holds,{},-0.25,-0.375,-0.125,4\n".format
    lines = [line("one", 1.5), line("two", 1.25), line("two", 1.908), line("two", ""), line("three", "")]
    (tmp_path / "p_t.md").touch()
    (tmp_path / "p_t_claims.csv").write_text(header + "".join(lines))
    index = write_index(tmp_path).read_text()
    assert "loss -0.25 [-0.375, -0.125]; the better side has 1.50 times the parameters |" in index
    assert "; the better side has up to 1.91 times the parameters |" in index and "-0.125] |" in index


def test_the_list_of_results_says_how_many_claims_hold_and_by_how_much(tmp_path):
    lines = (
        "P,nano,one,it helps,holds,seed,paper,loss: a < b,holds,True,-0.25,-0.375,-0.125,4",
        "P,nano,two,both help,reversed,seed,paper,loss: a < b,reversed,False,0.5,0.25,0.75,4",
        "P,nano,two,both help,reversed,seed,paper,loss: a < c,holds,False,-0.125,-0.2,-0.05,4",
        "P,nano,time,it takes longer,holds,round,paper,log step time: a > b,holds,False,0.693147,0.6,0.8,12",
        "P,nano,time,it takes longer,holds,round,paper,log step time: a > c,holds,False,1.098612,1.0,1.2,12",
        "P,nano,none,nobody knows,not tested,seed,paper,loss: a < d,not tested,False,,,,0",
        "P,nano,ours,we wonder,holds,seed,this project,loss: a < e,holds,False,-0.5,-0.6,-0.4,4",
        "P,nano,proved,it must be,holds,seed,check,loss: a < f,holds,False,-0.5,-0.6,-0.4,4",
    )
    (tmp_path / "p_t.md").touch(), (tmp_path / "p_t.svg").touch()
    (tmp_path / "p_t_claims.csv").write_text(COMPARED + "\n".join(lines))
    index = write_index(tmp_path).read_text()
    assert "Of 5 claims, 3 hold, 1 is reversed and 1 is not tested." in index
    assert "Of the 4 that a paper makes itself, 2 hold, 1 is reversed and 1 is not tested." in index
    assert "Of 1 check of the code, 1 holds." in index
    claims, _, checks = index.partition("## Checks of the code")
    assert "| this project | **holds**" in claims and "it must be" not in claims and "| proved |" in checks
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in claims.splitlines() if "P |" in line]
    assert [row[4] for row in rows] == [
        "loss -0.25 [-0.375, -0.125], less than the margin",
        "loss +0.5 [+0.25, +0.75]",
        "step time x2.00 to x3.00",
        "",
    ]
    assert rows[0] == [
        "one",
        "[it helps](p_t.md)",
        "P",
        "**holds**",
        "loss -0.25 [-0.375, -0.125], less than the margin",
        "4 seeds",
        "nano",
        "[figure](p_t.svg)",
    ]


@pytest.mark.parametrize("incomplete", ["me2026_heads-4-7", "me2026_heads"])
def test_a_claim_of_several_pages_is_counted_once_and_a_page_of_one_claim_makes_no_table(tmp_path, incomplete):
    stems = {"me2026_heads-C4": ["C4"], "me2026_heads-4-7": [], "me2026_heads": []}
    (counted,) = {stem for stem, chosen in stems.items() if not chosen} - {incomplete}
    for stem, chosen in stems.items():
        (tmp_path / f"{stem}.md").touch()
        missing = stem == incomplete
        cells = [{"seed": seed, "state": "missing" if missing and seed else "done"} for seed in range(4)]
        write_sealed(tmp_path / f"{stem}.json", {"chosen_claims": chosen, "lines": [{}], "by_seed": cells})
        verdict = "not resolved" if stem == counted else "holds"
        line = f"P,nano,C4,it helps,{verdict},seed,paper,loss: a < b,{verdict},False,-0.25,-0.375,-0.125,4"
        (tmp_path / f"{stem}_claims.csv").write_text(f"{COMPARED}{line}\n")
    # files that have nothing to do with a table
    (tmp_path / "notes.md").touch()
    (tmp_path / "notes.json").write_text("[")
    index = write_index(tmp_path).read_text()
    assert "Of 1 claim, 1 is not resolved." in index and "## Tables without results" not in index
    others = f"[another page]({incomplete}.md): holds, 4 seeds; [another page](me2026_heads-C4.md): holds, 4 seeds"
    (line,) = [line for line in index.splitlines() if "it helps" in line]
    assert f"[it helps]({counted}.md) | P | **not resolved**; {others} |" in line
    for stem in ("me2026_heads-4-7", "me2026_heads"):
        (tmp_path / f"{stem}.md").unlink()
    index = write_index(tmp_path).read_text()
    assert "Of 1 claim, 1 holds." in index and f"attn table {NAME} --until-resolved" in index
