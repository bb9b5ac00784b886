"""Pages that are generated from the code are up to date, and what other pages quote and link to exists."""

from __future__ import annotations

import ast
import csv
import re
import runpy
import shutil
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from experiments.bench.answer import seeds_to_resolve
from experiments.config.compose import compose
from experiments.record.result_numbers import FIELDS
from experiments.statistics.evidence import mean_and_deviation

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
# links in Markdown, without those to other sites
LINKS = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]+))?\)")


@pytest.mark.parametrize("name", ["settings", "variants"])
def test_a_page_that_is_written_by_a_script_is_that_of_today(name):
    page = runpy.run_path(str(ROOT / "scripts" / f"write_{name}.py"))["page"]()
    assert (DOCS / f"{name}.md").read_text(encoding="utf-8") == page, f"run python scripts/write_{name}.py"


def test_the_pictures_of_the_variants_are_those_of_today():
    script = runpy.run_path(str(ROOT / "scripts" / "write_variants.py"))
    assert (DOCS / "variants.svg").read_text(encoding="utf-8") == script["drawing"]()
    drawn = {path.stem: path.read_text(encoding="utf-8") for path in (DOCS / "variants").iterdir()}
    assert drawn == {name: script["sketch"](name) for name in script["options"]("variant")}


def test_a_picture_marks_what_differs_from_multi_head_attention():
    sketch = runpy.run_path(str(ROOT / "scripts" / "write_variants.py"))["sketch"]
    marked = {name: sketch(name).count('class="own"') for name in ("multi_head", "logits_only", "talking_heads")}
    assert marked == {"multi_head": 0, "logits_only": 1, "talking_heads": 2}


def test_a_variant_without_a_verdict_names_the_tables_that_would_give_one():
    no_verdict = runpy.run_path(str(ROOT / "scripts" / "write_variants.py"))["no_verdict"]
    assert "`attn table follow_ups/today`" in no_verdict("qk_norm")
    assert "no table has a row of it" in no_verdict("nothing")


def test_every_page_of_results_is_in_the_navigation_of_the_site():
    pytest.importorskip("latex2mathml")
    script = runpy.run_path(str(ROOT / "scripts" / "site_hooks.py"))
    nav = yaml.safe_load(re.findall(r"^nav:\n.*", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M | re.S)[0])
    shown = re.findall(r"[\w/-]+\.md", str(script["on_config"](SimpleNamespace(**nav)).nav))
    assert sorted(shown) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def test_the_main_settings_have_the_defaults_of_a_run():
    page = (DOCS / "settings.md").read_text(encoding="utf-8").split("## ")[1]
    shown = dict(re.findall(r"^\| `(\w+)` \| [^|]* \| `([^`]*)` \|", page, re.MULTILINE))
    run = compose([]).model_dump()
    assert {"learning_rate", "max_steps"} <= shown.keys()
    assert all(yaml.safe_load(text.replace("e-", ".0e-")) == run[key] for key, text in shown.items())


def test_the_page_of_numbers_has_every_number_of_a_result():
    page = (DOCS / "numbers.md").read_text(encoding="utf-8")
    assert not [name for name in FIELDS if f"`{name}`" not in page]


def test_every_setting_has_a_meaning():
    rows = [line for line in (DOCS / "settings.md").read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert len(rows) > 100
    assert not [row for row in rows if row.endswith("|  |")]


def test_a_verdict_of_a_table_stands_with_the_variants_that_it_has_rows_of(tmp_path):
    verdicts = runpy.run_path(str(ROOT / "scripts" / "write_variants.py"))["verdicts"]
    results = DOCS / "results"
    for stem in ("shazeer2020_projections-20-25", "follow_ups_today", "follow_ups_today-C8-4-9"):
        for ending in ("json", "md"):
            shutil.copy(results / f"{stem}.{ending}", tmp_path)
    found = verdicts(tmp_path)
    says = "Talking heads are equally good whether P_l and P_w start at random or from the identity"
    page = "results/shazeer2020_projections-20-25.md"
    line = f"[start of shazeer2020/projections]({page}) {says}: **not resolved** (nano, 6 seeds)"
    assert line in found["talking_heads"] and line not in found["multi_head"]
    assert found["differential"] and not found.get("collaborative")
    (of_two_pages,) = [line for line in found["multi_head"] if "[C8 of" in line]
    assert "(results/follow_ups_today-C8-4-9.md)" in of_two_pages.partition(":")[0]
    planned, earlier = "**holds** (nano, 6 seeds)", "[another page](results/follow_ups_today.md): not resolved, 4 seeds"
    assert of_two_pages.endswith(f": {planned}; {earlier}"), "that of planned seeds decides"


def test_the_pictures_of_the_concepts_are_drawn_and_shown(tmp_path):
    pytest.importorskip("matplotlib")
    script = runpy.run_path(str(ROOT / "scripts" / "draw_concepts.py"))
    script["main"](tmp_path)
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == {path.name for path in (DOCS / "concepts").iterdir()}
    shown = re.findall(r"\(concepts/(\w+\.svg)\)", (DOCS / "concepts.md").read_text(encoding="utf-8"))
    assert sorted(shown) == sorted(drawn)


def test_a_map_is_matched_the_better_the_more_rank_there_is_and_exactly_at_one_less_than_its_size():
    np = pytest.importorskip("numpy")
    script = runpy.run_path(str(ROOT / "scripts" / "draw_concepts.py"))
    logits = np.random.default_rng(1).standard_normal((9, 9))
    target = script["softmax"](logits)
    left = [script["divergence"](target, script["softmax"](script["of_rank"](logits, rank))) for rank in range(1, 9)]
    assert left[-1] < 1e-12 < left[-2] < left[0]


def test_the_list_of_tables_has_every_table():
    from experiments.tables.definition.folder import names

    page = (DOCS / "tables.md").read_text(encoding="utf-8")
    listed = []
    for cell in re.findall(r"^\| (`[a-z_]+\d*/.*?) \|", page, re.MULTILINE):
        # such as `paper/first`, `second`
        paper, _ = cell.strip("`").split("/", 1)
        listed += [name if "/" in name else f"{paper}/{name}" for name in re.findall(r"`(.*?)`", cell)]
    assert sorted(listed) == sorted(names())


@cache
def messages() -> tuple[str, ...]:
    """Every string of the code, with ... in place of values."""

    def text(node: ast.AST) -> str:
        if isinstance(node, ast.JoinedStr):
            return "".join(text(part) if isinstance(part, ast.Constant) else "..." for part in node.values)
        return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""

    files = [ROOT / "cli.py", *(ROOT / "experiments").rglob("*.py"), *(ROOT / "attention").rglob("*.py")]
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in files)
    return tuple(filter(None, (text(node) for tree in trees for node in ast.walk(tree))))


def test_the_messages_that_are_explained_are_those_of_the_code():
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    quoted = [line for block in re.findall(r"```text\n(.*?)```", page, re.DOTALL) for line in block.splitlines()]
    assert len(quoted) > 10
    for line in quoted:
        # what follows a colon or a semicolon may be a text of its own
        for part in filter(None, (piece.strip(" :;,()") for piece in re.split(r"\.\.\.|[:;] ", line))):
            assert any(part in each for each in messages()), part


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_are_there(path):
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target, heading in LINKS.findall(text):
        aim = (path.parent / target).resolve() if target else path
        assert aim.exists(), target
        assert not heading or aim.suffix != ".md" or heading in anchors(aim), f"{target}#{heading}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_equations_in_sentences_are_shown_as_written(path):
    # GitHub reads the Markdown first: it drops a backslash before punctuation, and takes what * or < begin for its own
    text = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for equation in re.findall(r"\$([^$\n]+)\$", text):
        assert not re.search(r"\\[^A-Za-z]|[*<]|[})]_\w|^ | $", equation), equation


def anchors(path: Path) -> set[str]:
    """The headings of a page as GitHub links to them."""
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL), re.M
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    ("stem", "positions", "rows"),
    [
        ("shazeer2020_heads", "rotary", ("th8", "mh8")),
        ("shazeer2020_heads", "relative", ("th8", "mh8")),
        ("shazeer2020_projections-C9-30-53", "rotary", ("both", "none")),
        ("shazeer2020_projections-C9-30-53", "relative", ("both", "none")),
        ("su2020_key_size-C3-10-21", "rotary", ("plus", "base")),
        ("su2020_key_size-C3-10-21", "learned", ("plus", "base")),
        ("follow_ups_today-C8-4-9", None, ("talking", "plain")),
    ],
)
def test_the_cost_of_a_small_difference_is_that_of_the_results(stem, positions, rows):
    losses: dict[str, dict[str, float]] = {row: {} for row in rows}
    for cell in csv.DictReader((DOCS / "results" / f"{stem}_seeds.csv").open(encoding="utf-8")):
        if cell["row"] in rows and cell.get("positions") == positions:
            losses[cell["row"]][cell["seed"]] = float(cell["validation_loss"])
    left, right = losses.values()
    _, deviation = mean_and_deviation([left[seed] - right[seed] for seed in left])
    numbers = f"(results/{stem}.md) | {len(left)} | {deviation:.4f} | {seeds_to_resolve(0.02, deviation)} |"
    lines = [line for line in (DOCS / "recipe.md").read_text(encoding="utf-8").splitlines() if numbers in line]
    assert any(f", {positions or 'next token'}" in line for line in lines)
