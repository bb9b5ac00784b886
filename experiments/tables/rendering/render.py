"""A report as terminal text, Markdown, CSV and LaTeX (booktabs): the same rows and verdicts in each."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console

from experiments.display.rows import Row, as_csv, as_markdown, readable, show
from experiments.record.durable import folder_for, write
from experiments.tables.definition.published import MARKS
from experiments.tables.report import Line, Report
from experiments.tables.verdicts.statistics import NOTHING
from experiments.tables.verdicts.verdict import PartFinding, Verdict

ENDINGS = {"table": "txt", "markdown": "md", "csv": "csv", "latex": "tex"}
# columns of the third table; what stands before them are names and sizes, or scores
COST = ("parameters", "attention_parameters", "multiplies", "tokens_per_second", "peak_memory_bytes", "step_time")
SCORES = (
    "seeds", "difference", "difference_low", "difference_high", "rank", "published_rank", "rank_deviation", "sign",
    "state",
)  # fmt: skip


def render(report: Report, format: str, console: Console | None = None) -> str:
    """The report in a format; of `table` as wide as the console, or as wide as it likes without one."""
    if format == "csv":
        return as_csv(report.lines)
    if format == "markdown":
        return _markdown(report)
    if format == "latex":
        return _latex(report)
    return _text(report, console)


def write_all(report: Report, folder: Path) -> list[Path]:
    """Every format, and claims as CSV of their own, each file replaced at once. Raises RunFolderError."""
    folder_for(folder)
    request = report.request
    stem = request.name.replace("/", "_") + (f"_seeds{request.span}" if request.span else "")
    texts = {f"{stem}.{ending}": render(report, format) for format, ending in ENDINGS.items()}
    if report.verdicts:
        texts[f"{stem}_claims.csv"] = as_csv(claim_rows(report))
    for name, text in texts.items():
        write(folder / name, text)
    return [folder / name for name in texts]


def claim_rows(report: Report) -> list[Row]:
    """A row a comparison, with the verdict on its claim: exact numbers."""
    rows: list[Row] = []
    for verdict in report.verdicts:
        for part in verdict.parts or [PartFinding("", {}, NOTHING)]:
            low, high = part.interval or (None, None)
            rows.append(
                {"claim": verdict.key, "verdict": verdict.word, "p_holm": verdict.adjusted, "why": verdict.why,
                 "inequality": part.sentence, "mean": part.mean, "low": low, "high": high,
                 **dict(zip(("bootstrap_low", "bootstrap_high"), part.bootstrap or (None, None), strict=True)),
                 "differences": " ".join(f"{seed}:{value!r}" for seed, value in part.differences.items())}
            )  # fmt: skip
    return rows


def tables(report: Report) -> list[list[Row]]:
    """Three narrow tables for people: what the rows are, what they score, what they cost."""
    lines = [_people(line, report) for line in report.lines]
    further = [place.rpartition(".")[2] for place in report.request.columns]
    scores = [
        key
        for key in lines[0]
        if key in (report.score, "standard_error", *SCORES, *further) or key.startswith("published_")
    ]
    costs = [key for key in COST if key in lines[0]]
    names = [key for key in lines[0] if key not in scores and key not in costs]
    published = [key for key in scores if key.startswith("published_") and key != "published_rank"]
    scores = [*published, *(key for key in scores if key not in published)]
    tables = [
        _filled([{key: line[key] for key in keys} for line in lines])
        for keys in (names, ["row", *scores], ["row", *costs])
    ]
    return [rows for rows in tables if len(rows[0]) > 1]


def _people(line: Line, report: Report) -> Row:
    """The printed numbers with spread and mark in one cell, and a word where nobody has read them."""
    row = {key: value for key, value in line.items() if not re.fullmatch(r"published_.*_(pm|mark)", key)}
    for metric, number in report.printed.get(line["row"], {}).items():
        spread = f" +- {number.spread:g}" if number.spread is not None else ""
        row[f"published_{metric}"] = (
            MARKS["none"][1] if number.value is None else f"{number.value:g}{spread} ({number.mark})"
        )
    if all(other["state"] == "done" for other in report.lines):
        del row["state"]
    return row


def _filled(rows: list[Row]) -> list[Row]:
    """Leave out the columns that no row has a value for."""
    return [{key: row[key] for key in row if any(other[key] is not None for other in rows)} for row in rows]


def legend(report: Report) -> list[str]:
    """What the marks of published numbers and the differences mean."""
    used = {number.mark for numbers in report.printed.values() for number in numbers.values() if number.value}
    meanings = [f"({mark}) {meaning}" for mark, meaning in MARKS.values() if mark in used]
    lines = ["Published numbers: " + "; ".join(meanings) + "."] if meanings else []
    baseline = report.request.table.baseline
    lines.append(
        f"difference: to the row {baseline}, paired by seed, with a 95% t interval (low, high)"
        + ("; step_time: relative to it." if any(line["step_time"] for line in report.lines) else ".")
    )
    return lines


def sentences(verdict: Verdict) -> list[str]:
    """The verdict, its comparisons and what would resolve it, a line each."""
    lines = [f"{verdict.key}: {verdict.claim.says}: {verdict.word}" + (f"; {verdict.why}" if verdict.why else "")]
    lines += [f"  {_comparison(part)}" for part in verdict.parts]
    if verdict.left_out:
        lines.append(f"  only the rows of this budget were compared, of: {'; '.join(verdict.left_out)}")
    if verdict.claim.published:
        lines.append(f"  published: {verdict.claim.published}")
    return lines


def _comparison(part: PartFinding) -> str:
    if part.mean is None:
        return f"{part.sentence}: no pair"
    if part.exact:
        return f"{part.sentence}: {part.mean:g} in every pair"
    by_seed = ", ".join(f"{value:+.3g}" for value in part.values)
    interval = f", 95% interval {_interval(part.interval)}" if part.interval else ""
    bootstrap = f", bootstrap {_interval(part.bootstrap)}" if part.bootstrap else ""
    return f"{part.sentence}: {part.mean:+.4g}{interval}{bootstrap}; by seed {by_seed}"


def _interval(bounds: tuple[float, float] | None) -> str:
    assert bounds is not None
    return f"[{bounds[0]:+.4g}, {bounds[1]:+.4g}]"


def closing(report: Report) -> str:
    """How differences and verdicts are to be read."""
    tried = [verdict for verdict in report.verdicts if verdict.parts]
    return (
        f"Differences are left less right of the sign, paired by seed. A claim holds when all its comparisons do, with "
        f"Holm's correction over the {len(tried)} tried here keeping the chance of any wrong verdict below 5%."
    )


def _text(report: Report, console: Console | None) -> str:
    table = report.request.table
    out = console or Console(file=io.StringIO(), width=100)

    def say(text: str) -> None:
        out.print(text, markup=False, highlight=False, soft_wrap=not out.is_terminal)

    say(f"{table.title}\n{table.shows}\n")
    for rows in tables(report):
        show(rows, "table", console=out)
        say("")
    for line in [*legend(report), *report.notes, ""]:
        say(line)
    for verdict in report.verdicts:
        say("\n".join(sentences(verdict)) + "\n")
    if report.verdicts:
        say(closing(report) + "\n")
    for name, fact in report.facts:
        say(f"{name}: {fact}")
    return out.file.getvalue() if isinstance(out.file, io.StringIO) else ""


def _markdown(report: Report) -> str:
    table = report.request.table
    shows = f"{table.shows[0].upper()}{table.shows[1:]}."
    blocks = [f"# {table.title}", shows, *(as_markdown(rows) for rows in tables(report))]
    blocks += ["\n".join(f"* {line}" for line in [*legend(report), *report.notes])]
    if report.verdicts:
        blocks += ["## Claims", *map(_claim_block, report.verdicts), closing(report)]
    facts = [fact for fact in report.facts if fact[0] != "command"]
    blocks += ["## Conditions", "\n".join(f"* {name}: {fact}" for name, fact in facts)]
    blocks += [f"```bash\n{report.request.command()}\n```"]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _claim_block(verdict: Verdict) -> str:
    lines = sentences(verdict)
    heading = f"**{verdict.key}, {verdict.word}.** {verdict.claim.says}." + (
        f" {verdict.why[0].upper()}{verdict.why[1:]}." if verdict.why else ""
    )
    return "\n".join([heading, "", *(f"* {line.strip()}" for line in lines[1:])])


def _latex(report: Report) -> str:
    """`\\usepackage{booktabs}` is all that it needs."""
    verdicts = [{"claim": each.key, "says": each.claim.says, "verdict": each.word} for each in report.verdicts]
    comparisons = [_comparison_row(verdict.key, part) for verdict in report.verdicts for part in verdict.parts]
    sentences = [*legend(report), *report.notes, *([closing(report)] if report.verdicts else [])]
    return "\n".join(
        [
            f"% {report.request.command()}",
            f"% {_tex(report.request.table.title)}",
            *(_tabular(rows) for rows in (*tables(report), verdicts, comparisons) if rows),
            *(f"{_tex(line)}\n" for line in sentences),
        ]
    )


def _comparison_row(claim: str, part: PartFinding) -> Row:
    return {
        "claim": claim,
        "inequality": part.sentence,
        "difference": int(part.mean) if part.exact and part.mean is not None else part.mean,
        "95% interval": _interval(part.interval) if part.interval else None,
        "by seed": None if part.exact else ", ".join(f"{value:+.3g}" for value in part.values) or None,
    }


def _tabular(rows: list[Row]) -> str:
    keys = list(rows[0])
    sides = "".join("r" if any(isinstance(row[key], int | float) for row in rows) else "l" for key in keys)
    lines = [rf"\begin{{tabular}}{{{sides}}}", r"\toprule", _tex_line([key.removesuffix("_bytes") for key in keys])]
    lines += [r"\midrule", *(_tex_line([readable(key, row[key]) for key in keys]) for row in rows)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _tex_line(cells: list[str]) -> str:
    return " & ".join(map(_tex, cells)) + r" \\"


def _tex(text: str) -> str:
    escaped = re.sub(r"([&%$#_{}])", r"\\\1", text.replace("\\", r"\textbackslash "))
    for plain, sign in (("+-", r"\pm"), ("<", "<"), (">", ">"), ("~", r"\sim"), ("|", "|")):
        escaped = escaped.replace(plain, f"${sign}$")
    return escaped
