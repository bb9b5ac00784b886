"""The list of all results in a folder: how many claims have which verdict, a line for every claim, and the commands for
the tables that have not been run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, get_args

from experiments.display.rows import Row, as_markdown
from experiments.failures.failure import Mistake
from experiments.failures.wording import joined, plural
from experiments.files.durable import write
from experiments.statistics.comparison import Compared
from experiments.statistics.evidence import Planned
from experiments.tables.archive import restored
from experiments.tables.definition.folder import names
from experiments.tables.definition.request import Request, load
from experiments.tables.definition.table import Origin, Table
from experiments.tables.rendering.sentences import (
    CHECK,
    PAPERS_OWN,
    WORDS,
    claimed_by,
    clause,
    is_small,
    more_parameters,
    more_time,
)
from experiments.tables.report import Report
from experiments.tables.tuning import fewest_trials
from experiments.tables.verdict import UNDECIDED, Finding, Verdict

INDEX = "README.md"
WRITER = "`attn table NAME --out FOLDER` writes this page."
LEGEND = (
    "* **verdict.** Verdicts under several schemes of positions are listed in brackets if they differ. If several "
    "pages decide the same claim, one of them counts, and its line names the others. A page of planned seeds comes "
    "first, then one with more pairs, then a page of the whole table, then one without missing cells, then the first "
    "by name.",
    "* **size.** A difference between rows: the left side minus the right side of a comparison, as the page writes it. "
    "If lower is better, as for a loss, a negative difference has the claimed sign. If higher is better, a positive "
    "difference has it, and for the time of a step a ratio above 1. It is that of the "
    "comparisons that share the verdict of their claim. If the claim is not resolved or not tested, it is that of all "
    "comparisons that do not hold yet. It is a mean with its 95% interval, or the range of several means with the "
    "range of their intervals. The size of a trend is the difference between the two ends of a line fitted to its "
    "rows, and that of the time of a step is a ratio. If a claim depends on positions, its size is given under each "
    "scheme.",
    "* **pairs.** The number of seeds, or of rounds of timing, in which the rows were compared.",
)


class Decision(NamedTuple):
    """The verdict of a page on a claim."""

    stem: str  # of the page
    report: Report
    verdict: Verdict

    @property
    def by_scheme(self) -> str:
        """The verdicts under several schemes of positions, if they differ."""
        words = {scheme: finding.word for scheme, finding in self.verdict.findings.items()}
        differ = len(set(words.values())) > 1
        return f" ({', '.join(f'{scheme}: {word}' for scheme, word in words.items())})" if differ else ""

    def as_another(self, folder: str = "") -> str:
        """It in a line on the decision that counts in its place. folder: that of its page, as seen from the line's."""
        page = f"[another page]({folder}{self.stem}.md)"
        return f"{page}: {self.verdict.word}{self.by_scheme}, {pairs(self.verdict)}"


def write_index(folder: Path) -> Path:
    """Write the list anew from the numbers beside the folder's pages, and name the pages whose numbers cannot be
    read.
    """
    verdicts = _page(folder, "verdicts.md", "How a claim is decided")
    tables = _page(folder, "tables.md", "the papers' tables")
    reports, claims, unreadable = _read(folder)
    how = (
        f"{WRITER} {verdicts} explains the verdicts, and {tables} the budgets. A verdict is about models like those of "
        "its page, with the positions and learning rates that the page names. Each page keeps the chance of a wrong "
        "verdict on it below 5%, so of twenty pages, about one may have a wrong verdict."
    )
    blocks = ["# Results", *_counts(claims), how, "\n".join(LEGEND), as_markdown([*_rows(folder, reports, claims)])]
    if checks := [_row(folder, of_claim) for of_claim in claims if _origin(of_claim) == CHECK]:
        blocks += ["## Checks of the code", "They are true by proof or by construction.", as_markdown(checks)]
    if unreadable:
        blocks += ["## Pages whose numbers cannot be read", "\n".join(unreadable)]
    with_results = {report.request.name for report in reports.values() if not report.request.chosen_claims}
    if missing := {name: load(name) for name in names() if name not in with_results}:
        how = (
            "They have not been run as a whole with the present settings. Each command makes the table whose claim "
            "follows it. Where there are two, write the learning rates that the first one prints into the file of the "
            "table, and then run the second. In brackets is the number of cells (runs) that a command trains at first. "
            f"{_page(folder, 'performance.md', 'Speed and memory')} says how long one takes on a CPU, "
            f"{_page(folder, 'gpu.md', 'On a GPU')} on a GPU, and `attn table NAME --dry-run` on your machine."
        )
        blocks += ["## Tables without results", how]
        blocks += ["\n".join(f"* {_commands(name, table)}: {table.shows}" for name, table in missing.items())]
    path = folder / INDEX
    write(path, "\n\n".join(blocks) + "\n")
    return path


def decisions_of(folder: Path) -> list[list[Decision]]:
    """The decisions of a folder's pages on each claim, of which the first counts, without pages whose numbers cannot be
    read.
    """
    return _read(folder)[1]


def pairs(verdict: Verdict) -> str:
    """The number of seeds or rounds that each comparison of a claim has, or the fewest and the most."""
    counts = _counts_of_pairs(verdict)
    fewest, most = min(counts), max(counts)
    return f"{most if fewest == most else f'{fewest} to {most}'} {plural(verdict.claim.paired_by, most)}"


def _counts_of_pairs(verdict: Verdict) -> list[int]:
    """The number of pairs of each comparison of a claim; 0 if it has no comparison."""
    return [len(each.values) for finding in verdict.findings.values() for each in finding.comparisons] or [0]


def _read(folder: Path) -> tuple[dict[str, Report], list[list[Decision]], list[str]]:
    """The reports of the folder's pages, their decisions on each claim, and lines on pages whose numbers cannot be
    read.
    """
    reports: dict[str, Report] = {}
    decisions: list[Decision] = []
    unreadable: list[str] = []
    for path in sorted(folder.glob("*.json"), key=lambda path: path.stem):
        if path.with_suffix(".md").exists():
            try:
                report = restored(path)
                decisions += [Decision(path.stem, report, verdict) for verdict in report.verdicts]
                reports[path.stem] = report
            except Mistake as error:
                unreadable.append(f"* [{path.stem}]({path.stem}.md): {error}")
    return reports, _by_claim(decisions), unreadable


def _by_claim(decisions: Sequence[Decision]) -> list[list[Decision]]:
    """The decisions on each claim, of which the first counts.

    Which one counts does not depend on verdicts.
    """

    def order(decision: Decision) -> tuple[bool, int, bool, bool]:
        report = decision.report
        # what was planned confirms or refutes what earlier seeds suggest
        is_planned = isinstance(report.evidence, Planned)
        fewest_pairs = min(_counts_of_pairs(decision.verdict))
        return not is_planned, -fewest_pairs, bool(report.request.chosen_claims), bool(report.missing)

    claims: dict[tuple[str, str, str], list[Decision]] = {}
    for each in decisions:
        request = each.report.request
        claims.setdefault((request.name, request.budget_name, each.verdict.key), []).append(each)
    return sorted((sorted(of_claim, key=order) for of_claim in claims.values()), key=lambda of_claim: of_claim[0].stem)


def _origin(decisions: Sequence[Decision]) -> str:
    return decisions[0].verdict.claim.origin


def _counts(claims: Sequence[Sequence[Decision]]) -> Iterator[str]:
    """How many claims have which verdict: sentences on all and on checks of the code, and a table of the parties if
    several make claims.
    """
    words: list[tuple[str, str]] = [(of_claim[0].verdict.word, _origin(of_claim)) for of_claim in claims]
    by_origin = {
        origin: Counter(word for word, its_origin in words if its_origin == origin) for origin in get_args(Origin)
    }
    checks = by_origin.pop(CHECK)
    makers = {origin: counts for origin, counts in by_origin.items() if counts}
    sentences = []
    if makers or not checks:
        sentences.append(_sentence(sum(makers.values(), Counter()), "claim"))
    if checks:
        sentences.append(_sentence(checks, "check", " of the code"))
    yield " ".join(sentences)
    if len(makers) > 1:
        found = [word for word in WORDS if any(word in counts for counts in makers.values())]
        yield as_markdown(
            [
                {"claimed by": "a paper itself" if origin == PAPERS_OWN else origin, "claims": counts.total()}
                | {word: counts[word] for word in found}
                for origin, counts in makers.items()
            ]
        )


def _sentence(counts: Counter[str], noun: str, of: str = "") -> str:
    count = counts.total()
    return f"Of {count} {plural(noun, count)}{of}, {joined(_clauses(counts) or ['none has a verdict'])}."


def _clauses(counts: Counter[str]) -> list[str]:
    return [clause(word, str(counts[word]), counts[word]) for word in WORDS if word in counts]


def _commands(name: str, table: Table) -> str:
    """The commands that make a table, with their numbers of cells."""
    request = Request(name, table, next(iter(table.budgets)), range(1))
    trials = fewest_trials(request).total()
    first = f"`{request.tuning_command()}` (at least {trials}), then " if _needs_tuning(request) else ""
    return f"{first}`{request.until_resolved_command()}` ({request.cell_count})"


def _needs_tuning(request: Request) -> bool:
    """Whether a claim cannot hold, because a row that it says is worse has a learning rate that was not tuned."""
    untuned = {request.configurations[key].row for key, tuning in request.tunings.items() if not tuning.is_fair}
    scores = (claim for claim in request.claims.values() if claim.of == "score")
    return any(untuned & {*part.beaten} for claim in scores for part in claim.parts_at(request.rows))


def _page(folder: Path, name: str, title: str) -> str:
    """A link to a page of docs/ from a folder in docs/; from any other folder, the name of the page."""
    return f"[{title}](../{name})" if (folder.parent / name).exists() else f"`docs/{name}`"


def _size(verdict: Verdict, report: Report) -> str:
    """The size of the differences of a claim: under each scheme of positions if it depends on them."""
    findings = verdict.findings
    if verdict.word == "depends":
        sizes = {scheme: _size_of(verdict, [scheme], finding.word, report) for scheme, finding in findings.items()}
        return "; ".join(f"{scheme}: {size}" for scheme, size in sizes.items())
    return _size_of(verdict, [*findings], verdict.word, report)


def _size_of(verdict: Verdict, schemes: Sequence[str], word: str, report: Report) -> str:
    """The means of the comparisons that a word is about, with the range of their intervals; empty if there are none."""
    shown = [
        (comparison, mean, scheme)
        for scheme in schemes
        for comparison in _compared(verdict.findings[scheme], word)
        if (mean := comparison.mean) is not None
    ]
    if not shown:
        return ""
    comparisons, means = [each[0] for each in shown], [each[1] for each in shown]
    metric = comparisons[0].metric
    written = _ratio if metric.startswith("log ") else "{:+.3g}".format
    beside = ", less than the margin" if all(map(is_small, comparisons)) else ""
    if verdict.claim.paired_by == "seed":
        beside += "".join(
            f"; the better side {verb} {most} times the {what}"
            for verb, what, more in (("has", "parameters", more_parameters), ("takes", "time of a step", more_time))
            if (most := _most([more(comparison, report, scheme) for comparison, _, scheme in shown]))
        )
    size = " to ".join(written(mean) for mean in (min(means), max(means))[: len(means)])
    bounds = [comparison.interval for comparison in comparisons]
    known = [interval for interval in bounds if interval]
    covered = ""
    if len(known) == len(bounds):
        covered = f" [{written(min(low for low, _ in known))}, {written(max(high for _, high in known))}]"
    return f"{metric.removeprefix('log ')} {size}{covered}{beside}"


def _compared(finding: Finding, word: str) -> list[Compared]:
    """The comparisons behind a verdict: those that do not hold yet if it is undecided, else those that show it."""
    if word in UNDECIDED:
        return finding.undecided if finding.word in UNDECIDED else []
    return [comparison for comparison in finding.comparisons if word in comparison.shown()]


def _most(times: Sequence[float | None]) -> str:
    """The largest of some factors, of which some may be missing; empty if all are."""
    shares = {f"{each:.2f}" if each else "" for each in times}
    most = max(filter(None, shares), key=float, default="")
    return f"up to {most}" if most and len(shares) > 1 else most


def _ratio(logarithm: float) -> str:
    return f"x{math.exp(logarithm):.2f}"


def _rows(folder: Path, reports: Mapping[str, Report], claims: Sequence[Sequence[Decision]]) -> Iterator[Row]:
    """A row for each claim that is no check of the code, and for each page without claims."""
    yield from (_row(folder, of_claim) for of_claim in claims if _origin(of_claim) != CHECK)
    columns = ("table", "claim", "what is claimed", "claimed by", "verdict", "size", "pairs", "budget", "figure")
    for stem, report in reports.items():
        if not report.verdicts:
            shown = {"what is claimed": f"[{stem}]({stem}.md)", "verdict": "no claim", "figure": _figure(folder, stem)}
            yield dict.fromkeys(columns, "") | shown


def _row(folder: Path, decisions: Sequence[Decision]) -> Row:
    """The decision on a claim that counts, with links to the others."""
    first, *others = decisions
    request, claim = first.report.request, first.verdict.claim
    return {
        "table": request.name,
        "claim": first.verdict.key,
        "what is claimed": f"[{claim.says}]({first.stem}.md)",
        **({} if claim.origin == CHECK else {"claimed by": claimed_by(claim, request.table)}),
        "verdict": "; ".join([f"**{first.verdict.word}**{first.by_scheme}", *(other.as_another() for other in others)]),
        "size": _size(first.verdict, first.report),
        "pairs": pairs(first.verdict),
        "budget": request.budget_name,
        "figure": _figure(folder, first.stem),
    }


def _figure(folder: Path, stem: str) -> str:
    figure = folder / f"{stem}.svg"
    return f"[figure]({figure.name})" if figure.exists() else ""
