"""The list of results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.files.durable import read_sealed, write_sealed
from experiments.statistics.evidence import Planned, Waiting
from experiments.tables.archive import archive
from experiments.tables.definition.request import load
from experiments.tables.rendering.index import write_index
from experiments.tables.rendering.render import write_all
from experiments.tables.report import Report
from experiments.tables.sources.source import CellOutcome
from tests.fixtures.tables import NAME
from tests.tables.known import LOSSES, STEP_TIMES, done, made, planned_by, table_under

pytestmark = pytest.mark.usefixtures("heads_table")


def with_claims(table=None, **changes: dict):
    """The table with other claims. changes: by claim, what it does not share with the table's own."""
    table = table or load(NAME)
    own = table.claims["C4"]
    return table.model_copy(update={"claims": {key: own.model_copy(update=of) for key, of in changes.items()}})


def page(report: Report, folder: Path, stem: str = "me2026_heads") -> Path:
    """The page of a report, of which the list reads the numbers alone."""
    path = folder / f"{stem}.md"
    path.touch()
    archive(report, path.with_suffix(".json"))
    return path


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


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
    for ending in ("md", "json"):
        written = tmp_path / "results" / f"me2026_heads.{ending}"
        written.rename(written.with_stem("me2026_heads-small-4-5"))
    write_index(tmp_path / "results")
    assert f"attn table {NAME}" not in index.read_text(), "it has been run, at another budget"


def test_the_list_of_results_links_to_pages_that_are_there(tmp_path):
    (tmp_path / "verdicts.md").touch()
    index = write_all(made(), tmp_path / "results")[-1].read_text()
    assert "[How a claim is decided](../verdicts.md) explains the verdicts, and `docs/tables.md`" in index


def test_a_claim_whose_verdict_differs_between_schemes_lists_them(tmp_path, monkeypatch):
    table = with_claims(table_under("learned", "rotary"), one={"parts": ["h8 > h16"]}, two={"parts": ["h8 > h32"]})
    monkeypatch.setattr("experiments.tables.archive.load", lambda name: table)
    noisy = [3.0, 5.0, 3.5, 4.5, 3.2, 5.2]
    places = ("h16@learned", "h32@learned", "h32@rotary")
    changes = {(place, seed): done(loss) for place in places for seed, loss in enumerate(noisy)}
    page(made(changes, table=table), tmp_path)
    index = write_index(tmp_path).read_text()
    assert "| **not resolved** (learned: not resolved, rotary: holds) |" in index and "| **not resolved** |" in index


def test_the_size_of_a_claim_that_depends_on_positions_is_given_under_each(tmp_path, monkeypatch):
    table = with_claims(table_under("learned", "rotary"), one={"parts": ["h8 > h16", "h8 > h32"]})
    monkeypatch.setattr("experiments.tables.archive.load", lambda name: table)
    better = {("h16@learned", seed): done(loss - 0.25) for seed, loss in enumerate(LOSSES["h8"])}
    noise = {("h16@learned", 0): done(LOSSES["h8"][0] - 0.26)}
    page(made(better | noise, table=table), tmp_path)
    (line,) = [line for line in write_index(tmp_path).read_text().splitlines() if line.startswith(f"| {NAME} |")]
    assert cells(line)[4] == "**depends** (learned: reversed, rotary: holds)"
    learned, rotary = cells(line)[5].split("; ")
    assert learned.startswith("learned: validation_loss +0.252 [")
    assert rotary.startswith("rotary: validation_loss -0.313 to -0.217 [-0.3")


def test_the_size_of_an_open_claim_covers_all_comparisons_that_do_not_hold_yet(tmp_path, monkeypatch):
    others = {f"other {number}": {"parts": ["h8 > h32"]} for number in range(4)}
    table = with_claims(open={"parts": ["h8 > h16", "h8 > h32"]}, **others)
    monkeypatch.setattr("experiments.tables.archive.load", lambda name: table)
    by = {"h16": (0.10, 0.13, 0.16, 0.10, 0.20, 0.04), "h32": (-0.1, 0.1, 0.2, -0.2, 0.1, -0.16)}
    changes = {(row, seed): done(LOSSES["h8"][seed] + more) for row, of in by.items() for seed, more in enumerate(of)}
    found = made(changes, table=table)
    (verdict, *_), path = found.verdicts, page(found, tmp_path)
    compared = verdict.findings[""].comparisons
    assert verdict.word == "not resolved" and [each.word() for each in compared] == ["holds", "not resolved"]
    assert "h8 < h16 (+-0.11, holds only without Holm's correction) and h8 < h32" in verdict.why
    low, high = (bound(each.interval[end] for each in compared) for end, bound in ((0, min), (1, max)))
    size = f"validation_loss -0.122 to +{compared[1].mean:.3g} [{low:+.3g}, {high:+.3g}]"
    assert f"](me2026_heads.md) | Somebody 2026 | **not resolved** | {size} |" in write_index(path.parent).read_text()


def test_the_list_of_results_says_what_the_better_sides_have_more_of(tmp_path, monkeypatch):
    parts = {"one": ["h8 > h16"], "two": ["h8 > h16", "h8 > h32"], "three": ["h32 > h16"]}
    table = with_claims(**{key: {"parts": of_claim} for key, of_claim in parts.items()})
    monkeypatch.setattr("experiments.tables.archive.load", lambda name: table)
    sizes = {"h8": 30, "h16": 20, "h32": 15}
    changes = {
        (row, seed): done(loss, parameters={"total": sizes[row]})
        for row, losses in LOSSES.items()
        for seed, loss in enumerate(losses)
    }
    seconds = {
        row: {turn: second + 1e-4 * (turn % 3) for turn in range(12)}
        for row, second in (("h8", 0.2), ("h16", 0.1), ("h32", 0.1))
    }
    page(made(changes, table=table, step_times=STEP_TIMES._replace(seconds=seconds)), tmp_path)
    index = write_index(tmp_path).read_text()
    one, two, three = (cells(line)[5] for line in index.splitlines() if line.startswith(f"| {NAME} |"))
    assert one.endswith(
        "]; the better side has 1.50 times the parameters; the better side takes 2.00 times the time of a step"
    )
    assert "; the better side has up to 2.00 times the parameters" in two
    assert two.endswith("; the better side takes 2.00 times the time of a step") and three.endswith("]")


def test_the_list_of_results_says_how_many_claims_hold_and_by_how_much(tmp_path, monkeypatch):
    table = with_claims(
        one={"parts": ["h8 > h16"]},
        two={"parts": ["h32 > h8", "h8 > h16"]},
        time={"parts": ["h16 > h8", "h32 > h8"], "of": "step_time"},
        none={"parts": ["h48 > h8"]},
        ours={"parts": ["h8 > h32"], "origin": "this project"},
        proved={"parts": ["h8 > h32"], "origin": "check", "says": "It must be"},
    )
    monkeypatch.setattr("experiments.tables.archive.load", lambda name: table)
    noise = [0.0, 0.0001, 0.0, -0.0001, 0.0002, 0.0]
    more = {"h16": 0.005, "h32": 0.25}
    changes = {
        (row, seed): done(LOSSES["h8"][seed] + by + noise[seed]) for row, by in more.items() for seed in range(6)
    }
    seconds = {
        row: {turn: second + 1e-4 * (turn % 3) for turn in range(12)}
        for row, second in (("h8", 0.1), ("h16", 0.2), ("h32", 0.3))
    }
    found = made(changes, table=table, step_times=STEP_TIMES._replace(seconds=seconds))
    page(found, tmp_path).with_suffix(".svg").touch()
    index = write_index(tmp_path).read_text()
    assert "Of 5 claims, 3 hold, 1 is reversed and 1 is not tested." in index
    assert "Of 1 check of the code, 1 holds." in index
    by = [cells(line) for line in index.splitlines() if line.startswith(("| claimed by", "| a paper", "| this proj"))]
    assert by == [
        ["claimed by", "claims", "holds", "reversed", "not tested"],
        ["a paper itself", "4", "2", "1", "1"],
        ["this project", "1", "1", "0", "0"],
    ]
    claims, _, checks = index.partition("## Checks of the code")
    assert "| this project | **holds**" in claims and "It must be" not in claims and "| proved |" in checks
    rows = [cells(line) for line in claims.splitlines() if "Somebody 2026 |" in line]
    interval = "[{:+.3g}, {:+.3g}]".format(*found.verdicts[0].findings[""].comparisons[0].interval)
    assert rows[0] == [
        NAME,
        "one",
        "[The more heads the worse](me2026_heads.md)",
        "Somebody 2026",
        "**holds**",
        f"validation_loss -0.00503 {interval}, less than the margin",
        "6 seeds",
        "nano",
        "[figure](me2026_heads.svg)",
    ]
    assert [row[5:7] for row in rows[1:]] == [
        ["validation_loss +0.25 [+0.25, +0.25]", "6 seeds"],
        ["step time x2.00 to x3.00 [x2.00, x3.00]", "12 rounds"],
        ["", "0 seeds"],
    ]


def test_a_page_without_claims_is_listed(tmp_path, monkeypatch):
    table = with_claims()
    monkeypatch.setattr("experiments.tables.archive.load", lambda name: table)
    page(made(table=table), tmp_path)
    assert "| [me2026_heads](me2026_heads.md) |  | no claim |" in write_index(tmp_path).read_text()


@pytest.mark.parametrize("incomplete", ["me2026_heads-4-7", "me2026_heads"])
def test_a_claim_of_several_pages_is_counted_once_and_a_page_of_one_claim_makes_no_table(tmp_path, incomplete):
    stems = {"me2026_heads-C4": ["C4"], "me2026_heads-4-7": [], "me2026_heads": []}
    (counted,) = {stem for stem, chosen in stems.items() if not chosen} - {incomplete}
    noisy = {("h32", seed): done(loss) for seed, loss in enumerate((3.9, 4.9, 4.2, 4.6, 4.1, 5.5))}
    for stem, chosen in stems.items():
        found = made(noisy if stem == counted else {("h8", 0): CellOutcome("missing")} if stem == incomplete else {})
        page(replace(found, request=replace(found.request, chosen_claims=chosen)), tmp_path, stem)
    index = write_index(tmp_path).read_text()
    assert "Of 1 claim, 1 is not resolved." in index and "## Tables without results" not in index
    seeds = {"me2026_heads-C4": "6 seeds", incomplete: "5 to 6 seeds"}
    others = "; ".join(f"[another page]({stem}.md): reversed, {count}" for stem, count in seeds.items())
    (line,) = [line for line in index.splitlines() if "The more heads" in line]
    assert f"[The more heads the worse]({counted}.md) | Somebody 2026 | **not resolved**; {others} |" in line
    for stem in ("me2026_heads-4-7", "me2026_heads"):
        (tmp_path / f"{stem}.md").unlink()
    index = write_index(tmp_path).read_text()
    assert "Of 1 claim, 1 is reversed." in index
    count = load(NAME).budgets["nano"].seeds * len(LOSSES)
    assert f"* `attn table {NAME} --until-resolved` ({count}): " in index


def test_a_page_of_planned_seeds_counts_before_one_of_the_whole_table(tmp_path):
    noisy = made({("h32", seed): done(loss) for seed, loss in enumerate((3.9, 4.9, 4.2, 4.6, 4.1, 5.5))})
    of_claim = replace(made(), request=replace(noisy.request, chosen_claims=["C4"]))
    page(noisy, tmp_path)
    for evidence, counted in ((Waiting(), "not resolved"), (Planned(), "reversed")):
        page(planned_by(evidence, of_claim), tmp_path, "me2026_heads-C4-0-5")
        assert f"Of 1 claim, 1 is {counted}." in write_index(tmp_path).read_text()


def test_of_two_pages_of_planned_seeds_the_one_with_more_pairs_counts(tmp_path):
    noisy = made({("h32", seed): done(loss) for seed, loss in enumerate((3.9, 4.9, 4.2, 4.6, 4.1, 5.5))})
    fewer = made({(row, 5): CellOutcome("missing") for row in LOSSES})
    of_claim = replace(noisy, request=replace(noisy.request, chosen_claims=["C4"]))
    page(planned_by(Planned(), fewer), tmp_path)
    page(planned_by(Planned(), of_claim), tmp_path, "me2026_heads-C4-0-5")
    index = write_index(tmp_path).read_text()
    assert "**not resolved**; [another page](me2026_heads.md): reversed, 5 seeds |" in index


def test_pages_whose_numbers_cannot_be_read_are_named_and_other_files_are_not(tmp_path):
    page(made(), tmp_path)
    changed = page(made(), tmp_path, "me2026_heads-4-7").with_suffix(".json")
    changed.write_text(changed.read_text().replace("4.3", "4.2"))
    for stem, text in (("notes", "["), ("list", "[]")):
        (tmp_path / f"{stem}.md").touch()
        (tmp_path / f"{stem}.json").write_text(text)
    old = page(made(), tmp_path, "me2026_heads-8-9").with_suffix(".json")
    write_sealed(old, {key: value for key, value in read_sealed(old).items() if key != "names_seeds"})
    (tmp_path / "other.md").touch()
    write_sealed(tmp_path / "other.json", {"name": "of another program"})
    (tmp_path / "alone.json").write_text("[")
    (tmp_path / "README.md").write_text("an earlier list")
    index = write_index(tmp_path).read_text()
    assert "Of 1 claim, 1 is reversed." in index
    _, _, named = index.partition("## Pages whose numbers cannot be read\n\n")
    assert [line.partition("]")[0] for line in named.splitlines()] == [
        f"* [{stem}" for stem in ("list", "me2026_heads-4-7", "me2026_heads-8-9", "notes", "other")
    ]
    assert "other.json: is not what was written: table: Field required" in named
