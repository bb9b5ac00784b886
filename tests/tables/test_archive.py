"""The numbers beside a page: they give the same page again, with verdicts that are decided anew."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.failures.failure import Mistake
from experiments.statistics.evidence import Planned, Waiting
from experiments.tables.archive import archive, restored
from experiments.tables.rendering.index import write_index
from experiments.tables.rendering.render import ENDINGS, as_csv, claim_rows, render, write_all
from experiments.tables.report import Report, without_unnamed_scheme
from experiments.tables.seed_plan import SeedPlan, comparisons_of
from tests.tables.test_report import LOSSES, made

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_the_pages_of_results_are_those_of_the_present_code(path):
    """If this fails after a change of words, `python scripts/render_results.py` writes the pages again."""
    report = restored(path)
    for format, ending in ENDINGS.items():
        assert path.with_suffix(f".{ending}").read_text() == render(report, format, figure=f"{path.stem}.svg"), format
    assert (RESULTS / f"{path.stem}_seeds.csv").read_text() == as_csv(without_unnamed_scheme(report.by_seed))
    # logarithms of step times may differ in the last digit between processors
    written, computed = (RESULTS / f"{path.stem}_claims.csv").read_text(), as_csv(claim_rows(report))
    assert NUMBER.sub("", written) == NUMBER.sub("", computed)
    assert [*map(float, NUMBER.findall(computed))] == pytest.approx([*map(float, NUMBER.findall(written))], abs=1e-12)


def test_every_page_of_results_has_its_numbers():
    pages = {path.stem for path in RESULTS.glob("*.md")} - {"README"}
    assert pages and pages == {path.stem for path in RESULTS.glob("*.json")}


def test_the_list_of_results_is_that_of_the_present_code(tmp_path):
    folder = tmp_path / "docs" / "results"
    shutil.copytree(RESULTS, folder)
    for page in ("verdicts.md", "tables.md"):
        shutil.copy(RESULTS.parent / page, folder.parent)
    assert write_index(folder).read_text() == (RESULTS / "README.md").read_text()


@pytest.mark.usefixtures("heads_table")
@pytest.mark.parametrize("evidence", [None, Planned(), Waiting()])
def test_all_files_of_a_table_come_back_from_its_numbers(tmp_path, evidence):
    report = made()
    plan = SeedPlan(
        date="2026-11-20T10:00:00+00:00", table=report.request.name, budget="nano", seeds=[0, 1, 2, 3, 4, 5],
        rows=list(LOSSES), comparisons=comparisons_of(report.request), margin=0.01, definition="a", cells="b", code="c",
    )  # fmt: skip
    report = replace(report, evidence=evidence or report.evidence, plan=plan if evidence else None)
    assert _there_and_back(report, tmp_path / "numbers.json").plan == report.plan
    written = write_all(report, tmp_path / "first")
    again = write_all(restored(tmp_path / "first" / "me2026_heads.json"), tmp_path / "second")
    assert [path.name for path in again] == [path.name for path in written]
    for one, other in zip(written, again, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def _there_and_back(report: Report, path: Path) -> Report:
    archive(report, path)
    return restored(path)


@pytest.mark.usefixtures("heads_table")
def test_the_claims_that_were_chosen_come_back(tmp_path):
    report = made()
    report = replace(report, request=replace(report.request, chosen_claims=["C4"]))
    restored_report = _there_and_back(report, tmp_path / "numbers.json")
    assert restored_report.request.command() == "attn table me2026/heads --budget nano --claim C4"


@pytest.mark.usefixtures("heads_table")
def test_planned_seeds_decide_only_the_comparisons_that_were_planned(tmp_path, monkeypatch):
    planned = replace(made(), evidence=Planned())
    assert _there_and_back(planned, tmp_path / "numbers.json").evidence.name == "planned"
    monkeypatch.setattr("experiments.tables.archive.comparisons_of", lambda request: ["h8 > h32"])
    with pytest.raises(Mistake, match="the comparisons or the margin of me2026/heads have changed since its seeds"):
        restored(tmp_path / "numbers.json")


@pytest.mark.usefixtures("heads_table")
def test_numbers_that_were_changed_or_whose_table_has_changed_are_refused(tmp_path):
    path = tmp_path / "numbers.json"
    archive(made(), path)
    content = json.loads(path.read_text())
    content["by_seed"][0]["validation_loss"] -= 0.5
    path.write_text(json.dumps(content))
    with pytest.raises(Mistake, match=r"numbers\.json: is not what was written"):
        restored(path)
    report = made()
    archive(replace(report, lines=report.lines[1:]), path)
    with pytest.raises(Mistake, match="the rows of me2026/heads have changed since"):
        restored(path)
