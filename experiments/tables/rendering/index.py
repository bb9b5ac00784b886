"""The list of all results in a folder: a line for every claim, and the commands for the tables that have not been
run.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from experiments.display.rows import Row, as_markdown
from experiments.failures.failure import Mistake
from experiments.failures.wording import plural
from experiments.record.durable import write
from experiments.tables.definition.folder import names
from experiments.tables.definition.request import load

INDEX = "README.md"
CLAIMS = "_claims.csv"


def write_index(folder: Path) -> Path:
    """Write the list anew from the comparisons of the folder's tables. Raises Mistake for a file without claims."""
    rendered = sorted(path.stem for path in folder.glob("*.md") if path.name != INDEX)
    verdicts = _page(folder, "verdicts.md", "How a claim is decided")
    tables = _page(folder, "tables.md", "the papers' tables")
    how = (
        f"`attn table NAME --out FOLDER` writes this page. {verdicts} explains the verdicts, and {tables} the budgets "
        "and the columns."
    )
    lines = ["# Results", "", how, ""]
    lines += [as_markdown([row for stem in rendered for row in _rows(stem, _claims(folder / f"{stem}{CLAIMS}"))])]
    with_results = {stem.partition("-")[0] for stem in rendered}
    if missing := [name for name in names() if name.replace("/", "_") not in with_results]:
        lines += ["", "These tables have not been run yet. Each command makes the table whose claim follows it:", ""]
        lines += [f"* `attn table {name} --until-resolved`: {load(name).shows}" for name in missing]
    path = folder / INDEX
    write(path, "\n".join(lines) + "\n")
    return path


def _page(folder: Path, name: str, title: str) -> str:
    """A link to a page of docs/ from a folder in docs/; from any other folder, the name of the page."""
    return f"[{title}](../{name})" if (folder.parent / name).exists() else f"`docs/{name}`"


def _claims(path: Path) -> list[dict[str, str]]:
    """The fields that the comparisons of each claim share, with the smallest and the largest number of pairs."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        comparisons = [*csv.DictReader(file)]
    try:
        by_claim = {claim: [*group] for claim, group in groupby(comparisons, itemgetter("claim"))}
        return [_claim(of_claim) for of_claim in by_claim.values()]
    except (KeyError, TypeError, ValueError) as error:
        raise Mistake(f"{path}: has no claims of a table", "remove it; the table's command writes it again") from error


def _claim(comparisons: list[dict[str, str]]) -> dict[str, str]:
    pairs = [int(comparison["pairs"]) for comparison in comparisons]
    fewest, most = min(pairs), max(pairs)
    shared = {key: comparisons[0][key] for key in ("claim", "says", "paper", "budget", "verdict")}
    count = str(most) if fewest == most else f"{fewest} to {most}"
    return shared | {"pairs": f"{count} {plural(comparisons[0]['paired_by'], most)}"}


def _rows(stem: str, claims: list[dict[str, str]]) -> Iterator[Row]:
    for claim in claims or [dict.fromkeys(("paper", "budget", "pairs", "says"), "") | {"claim": stem, "verdict": ""}]:
        yield {
            "claim": f"[{claim['claim']}]({stem}.md)",
            "paper": claim["paper"],
            "verdict": f"**{claim['verdict']}**" if claim["verdict"] else "no claim",
            "budget": claim["budget"],
            "pairs": claim["pairs"],
            "what is claimed": claim["says"],
        }
