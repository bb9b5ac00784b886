"""The numbers beside a page: they give the same page again, with verdicts that are decided anew."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from experiments.failures.failure import Mistake
from experiments.files.durable import read_sealed, write_sealed
from experiments.statistics.evidence import Anytime, Planned, Waiting
from experiments.tables.archive import archive, restored
from experiments.tables.rendering.figure import save_figure
from experiments.tables.rendering.index import write_index
from experiments.tables.rendering.render import ENDINGS, as_csv, claim_rows, render, write_all
from experiments.tables.report import Report
from experiments.tables.sources.source import CellOutcome
from tests.tables.known import made, planned_by, untuned_table

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_the_pages_of_results_are_those_of_the_present_code(path):
    """If this fails after a change of words, `python scripts/render_results.py` writes the pages again."""
    report = restored(path)
    for format, ending in ENDINGS.items():
        assert path.with_suffix(f".{ending}").read_text() == render(report, format, figure=f"{path.stem}.svg"), format
    assert (RESULTS / f"{path.stem}_seeds.csv").read_text() == as_csv(report.exact_rows_by_seed())
    # logarithms of step times may differ in the last digit between processors
    written, computed = (RESULTS / f"{path.stem}_claims.csv").read_text(), as_csv(claim_rows(report))
    assert NUMBER.sub("", written) == NUMBER.sub("", computed)
    assert [*map(float, NUMBER.findall(computed))] == pytest.approx([*map(float, NUMBER.findall(written))], abs=1e-12)


def drawn(stem: str, tmp_path, monkeypatch) -> Figure:
    """The figure of a page of results as it is saved."""
    figures, save = [], Figure.savefig

    def noted(figure, *place, **how):
        figures.append(figure)
        save(figure, *place, **how)

    monkeypatch.setattr(Figure, "savefig", noted)
    assert save_figure(restored(RESULTS / f"{stem}.json"), tmp_path / "figure.svg")
    (figure,) = figures
    return figure


@pytest.mark.filterwarnings("error")  # of a layout without room for the axes
@pytest.mark.parametrize(
    "stem", ["shazeer2020_heads", "britz2017_additive", "xiong2020_warmup", "cordonnier2020_collaborative-X1-40-44"]
)
def test_no_text_of_a_figure_leaves_it(stem, tmp_path, monkeypatch):
    figure = drawn(stem, tmp_path, monkeypatch)
    figure.draw_without_rendering()
    sides = (
        (axes.xaxis.label, axes.yaxis.label, axes._right_title, *axes.get_yticklabels()) for axes in figure.get_axes()
    )
    texts = [text for of_axes in sides for text in of_axes]
    assert sum(bool(text.get_text()) for text in texts) >= 3
    for text in texts:
        extent = text.get_window_extent()
        assert extent.x0 >= -2 and extent.x1 <= figure.bbox.width + 2, text


@pytest.mark.parametrize("stem, axis", [("shazeer2020_heads", "yaxis"), ("shazeer2020_projections-C9-30-53", "xaxis")])
def test_a_difference_is_as_long_under_every_scheme_of_a_figure(stem, axis, tmp_path, monkeypatch):
    first, second, _ = drawn(stem, tmp_path, monkeypatch).get_axes()
    low, high = getattr(first, axis).get_view_interval()
    assert high - low == pytest.approx(np.ptp(getattr(second, axis).get_view_interval()))
    assert low != pytest.approx(getattr(second, axis).get_view_interval()[0])


@pytest.mark.parametrize(
    "stem, label, ends",
    [
        ("cordonnier2020_collaborative-X1-40-44", "key size d_k over the variant's largest", (0.125, 1)),
        ("shazeer2020_heads", "heads", (3, 48)),  # whose variants have the same numbers of heads
    ],
)
def test_variants_without_a_common_size_are_compared_by_its_share(stem, label, ends, tmp_path, monkeypatch):
    axes, *_ = drawn(stem, tmp_path, monkeypatch).get_axes()
    assert axes.get_xlabel() == label
    for line in axes.get_legend_handles_labels()[0]:
        places = line.get_xdata()
        assert (places[0], places[-1]) == pytest.approx(ends, rel=0.02)


def test_every_page_of_results_has_its_numbers():
    pages = {path.stem for path in RESULTS.glob("*.md")} - {"README"}
    assert pages and pages == {path.stem for path in RESULTS.glob("*.json")}


def test_the_list_of_results_is_that_of_the_present_code(tmp_path):
    folder = tmp_path / "docs" / "results"
    shutil.copytree(RESULTS, folder)
    for page in ("verdicts.md", "tables.md", "performance.md", "gpu.md"):
        shutil.copy(RESULTS.parent / page, folder.parent)
    assert write_index(folder).read_text() == (RESULTS / "README.md").read_text()


@pytest.mark.usefixtures("heads_table")
@pytest.mark.parametrize("evidence", [None, Planned(), Waiting()])
def test_all_files_of_a_table_come_back_from_its_numbers(tmp_path, evidence):
    report = planned_by(evidence) if evidence else made()
    again = _there_and_back(report, tmp_path / "numbers.json")
    assert (again.plan, again.evidence.name) == (report.plan, report.evidence.name)
    written = write_all(report, tmp_path / "first")
    again = write_all(restored(tmp_path / "first" / "me2026_heads.json"), tmp_path / "second")
    assert [path.name for path in again] == [path.name for path in written]
    for one, other in zip(written, again, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


@pytest.mark.usefixtures("heads_table")
def test_numbers_without_the_machines_of_cells_come_back_without_them(tmp_path):
    path = tmp_path / "numbers.json"
    archive(made(), path)
    content = read_sealed(path)
    write_sealed(path, content | {"by_seed": [dict([*cell.items()][:-1]) for cell in content["by_seed"]]})
    found = restored(path)
    assert {cell.machine for cell in made().by_seed} == {"a machine, 2 threads"}
    assert {cell.machine for cell in found.by_seed} == {None} and not found.machines
    assert render(found, "markdown") == render(made(), "markdown")


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
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"definition": "another"}, "void, because the table changed since"),
        ({"overrides": ["layers=2"]}, "void, because its overrides changed since"),
        ({"chosen_claims": ["C4"]}, "for other claims"),
        ({"rows": ["h8"]}, "void, because its rows changed since"),
        ({"comparisons": ["h8 > h32"]}, "void, because its comparisons changed since"),
        ({"margin": 0.02}, "void, because its margin changed since"),
    ],
)
@pytest.mark.parametrize("evidence", [Planned(), Waiting()])
def test_seeds_are_planned_only_by_a_plan_that_still_describes_the_table(tmp_path, evidence, changes, why):
    planned = planned_by(evidence, **changes)
    path = tmp_path / "numbers.json"
    found = _there_and_back(planned, path)
    assert found.evidence.name == "anytime" and "anytime-valid" in dict(found.facts)["evidence"]
    of_seeds, of_others = (value for name, value in found.facts if name == "plan")
    assert of_seeds.endswith(f"; {why}") and of_others == "planned on 2026-11-21: seeds 6 to 9, 2 comparisons"
    anytime = replace(planned, evidence=Anytime())
    assert found.lines == anytime.lines == made().lines
    assert [claim.word for claim in found.verdicts] == [claim.word for claim in anytime.verdicts]
    archive(found, path)
    assert restored(path).facts == found.facts, "as often as the pages are written again"


@pytest.mark.usefixtures("heads_table")
def test_a_page_lists_the_plans_of_other_pages_of_its_table(tmp_path):
    planned = planned_by(Planned())
    for stem, plan in (("me2026_heads-9-14", planned.plan), ("me2026_heads-20-25", None)):
        archive(replace(planned, plan=plan), tmp_path / f"{stem}.json")
    said = [
        f"{planned.plan.says}; of the page me2026_heads-9-14",
        # which no page follows
        "planned on 2026-11-21: seeds 6 to 9, 2 comparisons; of the page me2026_heads-20-25",
    ]
    written = tmp_path / "me2026_heads.md"
    write_all(made(), tmp_path)
    assert all(f"* plan: {line}\n" in written.read_text() for line in said)
    again = restored(tmp_path / "me2026_heads.json")
    write_all(again, tmp_path)
    assert written.read_text().count("* plan: ") == 2
    assert [value for name, value in again.facts if name == "plan"] == said


@pytest.mark.usefixtures("heads_table")
def test_labels_rates_and_notes_are_those_of_the_present_definition(tmp_path, monkeypatch):
    path = tmp_path / "numbers.json"
    archive(made({("h32", 0): CellOutcome("failed", "no room")}), path)
    table = untuned_table()
    row = table.rows["h8"].model_copy(update={"label": "eight heads"})
    budget = table.budget("nano").model_copy(update={"note": "A new note.", "task": "another task"})
    table = table.model_copy(update={"rows": table.rows | {"h8": row}, "budgets": {"nano": budget}})
    monkeypatch.setattr("experiments.tables.archive.load", lambda name: table)
    found = restored(path)
    assert [line.label for line in found.lines] == ["eight heads", "16 heads", "32 heads"]
    said = dict(found.facts)
    assert said["budget"] == "nano: another task" and said["learning rate of multi_head"] == (
        "0.003 in the rows h8, h16 and h32; by hand"
    )
    assert said["seeds"] == "0-5" and said["code"] == "multi_head 01234567"
    before, untuned, after = found.notes
    assert (before, after) == ("A new note.", "h32, seed 0: failed: no room") and untuned.startswith(
        "The learning rate"
    )


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
    rows = {key: row for key, row in report.request.table.rows.items() if key != "h32"}
    table = report.request.table.model_copy(update={"rows": rows})
    archive(replace(report, request=replace(report.request, table=table)), path)
    with pytest.raises(Mistake, match="the rows of me2026/heads have changed since"):
        restored(path)


@pytest.mark.usefixtures("heads_table")
@pytest.mark.parametrize(
    ("key", "change", "why"),
    [
        ("names_seeds", lambda _: None, "is not what was written: names_seeds: "),
        ("evidence", lambda _: "certain", "is not what was written: evidence: "),
        ("plan", lambda _: {"date": "2026-11-20"}, r"is not what was written: plan\.table: "),
        ("by_seed", lambda cells: [*cells, {}], "has no numbers of row, seed, validation_loss, "),
        ("lines", lambda lines: [line.pop("steps") and line for line in lines], "has no numbers of steps"),
        ("lines", lambda lines: lines[:-1], "the rows of me2026/heads have changed since"),
    ],
)
def test_numbers_of_another_version_are_refused(tmp_path, key, change, why):
    path = tmp_path / "numbers.json"
    archive(made(), path)
    content = read_sealed(path)
    write_sealed(path, content | {key: change(content[key])})
    with pytest.raises(Mistake, match=rf"numbers\.json: {why}"):
        restored(path)
