"""The list of all results in a folder: how many claims have which verdict, a line for every claim, and the commands for
the tables that have not been run.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from experiments.display.rows import Row, as_markdown
from experiments.failures.failure import Mistake
from experiments.failures.wording import joined, plural
from experiments.files.durable import write
from experiments.tables.archive import Extent, extent_of
from experiments.tables.definition.folder import names, table_of
from experiments.tables.definition.request import Request, load
from experiments.tables.definition.table import BUDGETS
from experiments.tables.rendering.sentences import WORDS, clause

INDEX = "README.md"
CLAIMS = "_claims.csv"
# origins of claims: the table's paper; none, because it tests the code
PAPER, CHECK = "paper", "check"
WHOLE = Extent(of_all_claims=True, is_complete=True)


def write_index(folder: Path) -> Path:
    """Write the list anew from the comparisons of the folder's tables. Raises Mistake for a file without claims."""
    verdicts = _page(folder, "verdicts.md", "How a claim is decided")
    tables = _page(folder, "tables.md", "the papers' tables")
    pages = claims_of(folder)
    extents = {stem: _extent(folder, stem) if of_page else WHOLE for stem, of_page in pages.items()}
    claims = _each_once(pages, extents)
    how = (
        f"`attn table NAME --out FOLDER` writes this page. {verdicts} explains the verdicts, and {tables} the budgets. "
        "A size is a difference between rows, the left side minus the right side of a comparison. If several "
        "comparisons share the verdict of their claim, it is the range of their means, else the mean with its 95% "
        "interval. The size of a trend is the difference between the two ends of a line fitted to its "
        "rows, and that of the time of a step is a ratio. Verdicts under several schemes of positions are listed in "
        "brackets if they differ. If several pages decide the same claim, one of them counts, and its line names the "
        "others. A page of the whole table comes first, then a page without missing cells, then the first by name."
    )
    blocks = ["# Results", _counts(claims), how, as_markdown([*_rows(folder, claims, are_checks=False)])]
    if checks := [*_rows(folder, claims, are_checks=True)]:
        blocks += ["## Checks of the code", "They are true by proof or by construction.", as_markdown(checks)]
    with_results = {table_of(stem) for stem, extent in extents.items() if extent.of_all_claims}
    if missing := [name for name in names() if name not in with_results]:
        how = (
            "They have not been run as a whole with the present settings. Each command makes the table whose claim "
            "follows it. Where there are two, write the learning rates that the first one prints into the file of the "
            "table, and then run the second."
        )
        blocks += ["## Tables without results", how]
        blocks += ["\n".join(f"* {_command(name)}: {load(name).shows}" for name in missing)]
    path = folder / INDEX
    write(path, "\n\n".join(blocks) + "\n")
    return path


def claims_of(folder: Path) -> dict[str, list[dict[str, str]]]:
    """The claims of each table of the folder, by the name of its files: `claim`, `says`, `paper`, `budget`, `verdict`,
    `pairs`, `size`, `origin` and `schemes`, which is empty unless the schemes of positions have different verdicts.

    Raises Mistake for a file without claims.
    """
    rendered = sorted(path.stem for path in folder.glob("*.md") if path.name != INDEX)
    return {stem: _claims(folder / f"{stem}{CLAIMS}") for stem in rendered}


def _each_once(
    pages: Mapping[str, list[dict[str, str]]], extents: Mapping[str, Extent]
) -> dict[str, list[dict[str, str]]]:
    """The claims of each page without those that another page decides too and counts for. `also` says what those other
    pages of a claim decide.

    Which page counts does not depend on its verdicts: pages of whole tables come first, among them those without
    missing cells, and then the first by its name.
    """
    counting: dict[tuple[str, ...], dict[str, str]] = {}
    shown: dict[str, list[dict[str, str]]] = {stem: [] for stem in pages}
    for stem in sorted(pages, key=lambda stem: extents[stem], reverse=True):
        for claim in pages[stem]:
            place = (table_of(stem) or stem, claim["budget"], claim["claim"])
            if first := counting.get(place):
                first["also"] += f"; [another page]({stem}.md): {claim['verdict']}{_schemes(claim)}, {claim['pairs']}"
            else:
                counting[place] = claim | {"also": ""}
                shown[stem].append(counting[place])
    return {stem: of_page for stem, of_page in shown.items() if of_page or not pages[stem]}


def _extent(folder: Path, stem: str) -> Extent:
    """How much of its table a page has, if its numbers are there."""
    numbers = folder / f"{stem}.json"
    return extent_of(numbers) if numbers.exists() else WHOLE


def _schemes(claim: Mapping[str, str]) -> str:
    """The verdicts under several schemes of positions, if they differ."""
    return f" ({claim['schemes']})" if claim["schemes"] else ""


def _counts(claims: Mapping[str, list[dict[str, str]]]) -> str:
    """Sentences that say how many claims have which verdict: of all, of those of papers, and of checks of the code."""
    every = [claim for of_table in claims.values() for claim in of_table]
    counts = Counter(claim["verdict"] for claim in every if claim["origin"] != CHECK)
    checks = Counter(claim["verdict"] for claim in every if claim["origin"] == CHECK)
    count = counts.total()
    sentences = []
    if count or not checks:
        sentences.append(f"Of {count} {plural('claim', count)}, {joined(_clauses(counts) or ['none has a verdict'])}.")
    of_papers = Counter(claim["verdict"] for claim in every if claim["origin"] == PAPER)
    if 0 < of_papers.total() < count:
        sentences.append(f"Of the {of_papers.total()} that a paper makes itself, {joined(_clauses(of_papers))}.")
    if total := checks.total():
        sentences.append(f"Of {total} {plural('check', total)} of the code, {joined(_clauses(checks))}.")
    return " ".join(sentences)


def _clauses(counts: Counter[str]) -> list[str]:
    return [clause(word, str(counts[word]), counts[word]) for word in WORDS if word in counts]


def _command(name: str) -> str:
    """The commands that make a table."""
    table = load(name)
    budget = next(iter(table.budgets))
    command = f"attn table {name}" + (f" --budget {budget}" if budget != BUDGETS[0] else "")
    first = f"`{command} --tune`, then " if _needs_tuning(Request(name, table, budget, range(1))) else ""
    return f"{first}`{command} --until-resolved`"


def _needs_tuning(request: Request) -> bool:
    """Whether a claim cannot hold, because a row that it says is worse has a learning rate that was not tuned."""
    untuned = {request.configurations[key].row for key, tuning in request.tunings.items() if not tuning.is_fair}
    scores = (claim for claim in request.claims.values() if claim.of == "score")
    return any(untuned & {*part.beaten} for claim in scores for part in claim.parts_at(request.rows))


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
    shared = {key: comparisons[0][key] for key in ("claim", "says", "paper", "budget", "verdict", "origin")}
    count = str(most) if fewest == most else f"{fewest} to {most}"
    words = {each["positions"]: each["word"] for each in comparisons if each.get("positions")}
    differ = len(set(words.values())) > 1
    shared["schemes"] = ", ".join(f"{scheme}: {word}" for scheme, word in words.items()) if differ else ""
    return shared | {"pairs": f"{count} {plural(comparisons[0]['paired_by'], most)}", "size": _size(comparisons)}


def _size(comparisons: list[dict[str, str]]) -> str:
    """The mean difference with its interval, or the range of the means of the comparisons with the claim's verdict."""
    known = [comparison for comparison in comparisons if comparison["mean"]]
    comparisons = [each for each in known if each["comparison_word"] == each["verdict"]] or known
    if not comparisons:
        return ""
    means = [float(comparison["mean"]) for comparison in comparisons]
    metric = comparisons[0]["comparison"].partition(":")[0]
    written = _ratio if metric.startswith("log ") else "{:+.3g}".format
    metric = metric.removeprefix("log ")
    beside = ", less than the margin" if all(each.get("small") == "True" for each in comparisons) else ""
    if more := {f"{float(each['more_parameters']):.2f}" for each in comparisons if each.get("more_parameters")}:
        beside += f"; the better side has {'up to ' * (len(more) > 1)}{max(more, key=float)} times the parameters"
    if len(means) > 1:
        return f"{metric} {written(min(means))} to {written(max(means))}{beside}"
    low, high = comparisons[0]["low"], comparisons[0]["high"]
    interval = f" [{written(float(low))}, {written(float(high))}]" if low and high else ""
    return f"{metric} {written(means[0])}{interval}{beside}"


def _ratio(logarithm: float) -> str:
    return f"x{math.exp(logarithm):.2f}"


def _rows(folder: Path, claims: Mapping[str, list[dict[str, str]]], *, are_checks: bool) -> Iterator[Row]:
    """A row for each claim that is a check of the code, or for each of the others, and for a table without claims."""
    keys = ("claim", "paper", "budget", "pairs", "size", "verdict", "origin", "schemes", "also")
    for stem, of_table in claims.items():
        figure = folder / f"{stem}.svg"
        for claim in of_table or [dict.fromkeys(keys, "") | {"says": stem}]:
            if (claim["origin"] == CHECK) == are_checks:
                by, word = claim["paper"] if claim["origin"] == PAPER else claim["origin"], claim["verdict"]
                yield {
                    "claim": claim["claim"],
                    "what is claimed": f"[{claim['says']}]({stem}.md)",
                    **({} if are_checks else {"claimed by": by}),
                    "verdict": f"**{word}**{_schemes(claim)}{claim['also']}" if word else "no claim",
                    "size": claim["size"],
                    "pairs": claim["pairs"],
                    "budget": claim["budget"],
                    "figure": f"[figure]({figure.name})" if figure.exists() else "",
                }
