"""A report as terminal text, Markdown, CSV and LaTeX. All formats have the same rows and verdicts."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from experiments.display.rows import Row, as_csv, as_markdown, show
from experiments.files.durable import folder_for, write
from experiments.tables.archive import archive, with_plans_beside
from experiments.tables.rendering.columns import readable_table
from experiments.tables.rendering.figure import save_figure
from experiments.tables.rendering.index import write_index
from experiments.tables.rendering.latex import latex
from experiments.tables.rendering.sentences import (
    closing_sentence,
    details,
    headline,
    is_small,
    legend,
    missing,
    more_parameters,
    shown_or_claimed,
    summary,
)
from experiments.tables.report import Report, without_unnamed_scheme
from experiments.tables.verdict import Verdict

ENDINGS = {"table": "txt", "markdown": "md", "csv": "csv", "latex": "tex"}
FIGURES = ("svg", "pdf")


def render(report: Report, format: str, console: Console | None = None, figure: str = "") -> str:
    """The report in a format. The format `table` is as wide as the console; without a console its width is unlimited.

    figure: the file of the figure for Markdown to show; empty for none.
    """
    if format == "csv":
        return as_csv(without_unnamed_scheme(report.lines))
    if format == "markdown":
        return _markdown(report, figure)
    if format == "latex":
        return latex(report)
    return _text(report, console)


def write_all(report: Report, folder: Path) -> list[Path]:
    """Write every format, the scores by seed, the comparisons, the figure and the numbers of all of them, and return
    the paths. Each file is replaced atomically.

    Without matplotlib there is no figure. Raises DiskError.
    """
    folder_for(folder)
    report = with_plans_beside(report, folder)
    stem = report.request.result_stem
    figures = [folder / f"{stem}.{ending}" for ending in FIGURES]
    drawn = [path for path in figures if save_figure(report, path)]
    shown = next((path.name for path in drawn if path.suffix == ".svg"), "")
    texts = {f"{stem}.{ending}": render(report, format, figure=shown) for format, ending in ENDINGS.items()}
    texts[f"{stem}_seeds.csv"] = as_csv(without_unnamed_scheme(report.by_seed))
    if report.verdicts:
        texts[f"{stem}_claims.csv"] = as_csv(claim_rows(report))
    for name, text in texts.items():
        write(folder / name, text)
    numbers = folder / f"{stem}.json"
    archive(report, numbers)
    return [*(folder / name for name in texts), *drawn, numbers, write_index(folder)]


def claim_rows(report: Report) -> list[Row]:
    """A row for each comparison, with the verdict on its claim: exact numbers."""
    request = report.request
    of_table = {"paper": request.table.paper.partition(",")[0], "budget": request.budget_name}
    rows: list[Row] = []
    for verdict in report.verdicts:
        for scheme, finding in verdict.findings.items():
            of_claim = of_table | {
                "claim": verdict.key, "says": verdict.claim.says, "verdict": verdict.word, "positions": scheme,
                "word": finding.word, "level": finding.level, "why": finding.why, "paired_by": verdict.claim.paired_by,
                "origin": verdict.claim.origin,
            }  # fmt: skip
            for comparison in finding.comparisons:
                low, high = comparison.interval or (None, None)
                of_seeds = verdict.claim.paired_by == "seed"
                rows.append(
                    of_claim
                    | {"comparison": comparison.sentence, "comparison_word": comparison.word(),
                       "small": is_small(comparison), "mean": comparison.mean, "low": low, "high": high,
                       "more_parameters": more_parameters(comparison, report, scheme) if of_seeds else None,
                       "pairs": len(comparison.values),
                       "differences": " ".join(f"{seed}:{value!r}" for seed, value in comparison.differences.items())}
                )  # fmt: skip
            if not finding.comparisons:
                rows.append(
                    of_claim
                    | dict.fromkeys(
                        ["comparison", "comparison_word", "small", "mean", "low", "high", "more_parameters"]
                    )
                    | {"pairs": 0, "differences": ""}
                )
    return rows


def _text(report: Report, console: Console | None) -> str:
    table = report.request.table
    out = console or Console(file=io.StringIO(), width=100)

    def say(text: str) -> None:
        out.print(text, markup=False, highlight=False, soft_wrap=not out.is_terminal)

    say("\n".join(filter(None, [table.title, shown_or_claimed(report), headline(report), missing(report)])) + "\n")
    show(readable_table(report), "table", console=out)
    say("")
    for line in [*legend(report), *report.notes, ""]:
        say(line)
    for verdict in report.verdicts:
        say("\n".join([summary(verdict), *(f"  {line}" for line in details(verdict, report))]) + "\n")
    if report.verdicts:
        say(closing_sentence(report) + "\n")
    for name, fact in report.facts:
        say(f"{name}: {fact}")
    return out.file.getvalue() if isinstance(out.file, io.StringIO) else ""


def _markdown(report: Report, figure: str) -> str:
    table = report.request.table
    blocks = [f"# {table.title}", shown_or_claimed(report), headline(report), missing(report)]
    blocks += [as_markdown([*_verdict_rows(report)])]
    if figure:
        blocks.append(f"![{table.title}]({figure})")
    blocks += [as_markdown(readable_table(report))]
    blocks += ["\n".join(f"* {line}" for line in [*legend(report), *report.notes])]
    if report.verdicts:
        blocks += [
            "## Claims",
            *(_claim_block(verdict, report) for verdict in report.verdicts),
            closing_sentence(report),
        ]
    facts = [fact for fact in report.facts if fact[0] != "command"]
    blocks += ["## Conditions", "\n".join(f"* {name}: {fact}" for name, fact in facts)]
    blocks += [f"```bash\n{report.request.command()}\n```"]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _verdict_rows(report: Report) -> Iterator[Row]:
    """A row for each claim, with its verdict, and the one under each scheme of positions."""
    for verdict in report.verdicts:
        words = {scheme: finding.word for scheme, finding in verdict.findings.items()}
        yield {
            "claim": verdict.key, "what is claimed": verdict.claim.says, "verdict": f"**{verdict.word}**",
            **{scheme: words.get(scheme) for scheme in report.request.schemes if scheme},
        }  # fmt: skip


def _claim_block(verdict: Verdict, report: Report) -> str:
    name, _, rest = summary(verdict).partition(": ")
    lines = details(verdict, report)
    # four spaces for each level, because Python-Markdown takes two for none
    items = (f"{2 * (len(line) - len(line.lstrip())) * ' '}* {line.strip()}" for line in lines)
    return "\n".join([f"**{name}.** {rest}", "", *items])
