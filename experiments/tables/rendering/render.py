"""A report as terminal text, Markdown, CSV and LaTeX. All formats have the same rows and verdicts."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from experiments.display.rows import Row, as_csv
from experiments.files.durable import folder_for, write
from experiments.tables.archive import archive, with_plans_beside
from experiments.tables.rendering.figure import save_figure
from experiments.tables.rendering.index import write_index
from experiments.tables.rendering.latex import latex
from experiments.tables.rendering.markdown import markdown
from experiments.tables.rendering.page import page
from experiments.tables.rendering.sentences import is_small, more_parameters
from experiments.tables.rendering.text import as_text
from experiments.tables.report import Report

ENDINGS = {"table": "txt", "markdown": "md", "csv": "csv", "latex": "tex"}
FIGURES = ("svg", "pdf")


def render(report: Report, format: str, console: Console | None = None, figure: str = "") -> str:
    """The report in a format. The format `table` is as wide as the console; without a console its width is unlimited.

    figure: the file of the figure for Markdown to show; empty for none.
    """
    if format == "csv":
        return as_csv(report.exact_rows())
    if format == "markdown":
        return markdown(page(report), figure)
    return latex(page(report)) if format == "latex" else as_text(page(report), console)


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
    texts[f"{stem}_seeds.csv"] = as_csv(report.exact_rows_by_seed())
    if report.verdicts:
        texts[f"{stem}_claims.csv"] = as_csv(claim_rows(report))
    for name, content in texts.items():
        write(folder / name, content)
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
