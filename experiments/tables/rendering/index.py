"""The list of all results in a folder: a line for every claim, and how to make what has not been run."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from experiments.record.durable import write
from experiments.settings.mistake import Mistake
from experiments.tables.definition.folder import names
from experiments.tables.definition.request import load

INDEX = "README.md"
CLAIMS = "_claims.csv"


def write_index(folder: Path) -> Path:
    """Write the list anew from the comparisons of the folder's tables. Raises Mistake for a file that has none."""
    rendered = sorted(path.stem for path in folder.glob("*.md") if path.name != INDEX)
    lines = ["# Results", "", "Written by `attn table NAME --out FOLDER`; [how claims are decided](../tables.md).", ""]
    lines += ["| claim | paper | verdict | budget | seeds | what is claimed |", "|---|---|---|---|---|---|"]
    lines += [line for stem in rendered for line in _lines(stem, _claims(folder / f"{stem}{CLAIMS}"))]
    made = {stem.split("_seeds")[0] for stem in rendered}
    if missing := [name for name in names() if name.replace("/", "_") not in made]:
        lines += ["", "Not run yet:", ""]
        lines += [f"* `attn table {name} --until-resolved`: {load(name).shows}" for name in missing]
    path = folder / INDEX
    write(path, "\n".join(lines) + "\n")
    return path


def _claims(path: Path) -> list[dict[str, str]]:
    """A row for each claim: the first of its comparisons, with the fewest and the most seeds of all."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    claims: dict[str, dict[str, str]] = {}
    try:
        for row in rows:
            claim = claims.setdefault(row["claim"], row | {"fewest": row["pairs"], "most": row["pairs"]})
            claim["fewest"] = str(min(int(claim["fewest"]), int(row["pairs"])))
            claim["most"] = str(max(int(claim["most"]), int(row["pairs"])))
            claim |= {key: row[key] for key in ("says", "paper", "budget", "verdict")}
    except (KeyError, TypeError, ValueError) as error:
        raise Mistake(f"{path}: has no claims of a table", "remove it; the table's command writes it anew") from error
    return list(claims.values())


def _lines(stem: str, claims: list[dict[str, str]]) -> Iterator[str]:
    if not claims:
        yield f"| [{stem}]({stem}.md) | | no claim | | | |"
    for claim in claims:
        seeds = claim["most"] if claim["fewest"] == claim["most"] else f"{claim['fewest']} to {claim['most']}"
        cells = [f"[{claim['claim']}]({stem}.md)", claim["paper"], f"**{claim['verdict']}**", claim["budget"], seeds]
        yield "| " + " | ".join([*cells, claim["says"]]) + " |"
