"""A report as LaTeX: booktabs tables that fit the width of a page, and the report's sentences."""

from __future__ import annotations

import re

from experiments.display.rows import Row, is_number_column, readable
from experiments.tables.rendering.columns import readable_table
from experiments.tables.rendering.sentences import (
    closing_sentence,
    headline,
    legend,
    missing,
    shown_or_claimed,
    summary,
)
from experiments.tables.report import Report

# characters with a special meaning in LaTeX, and signs that are mathematics
SPECIAL = {"\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "~": r"$\sim$", "^": r"\^{}"} | {
    each: f"\\{each}" for each in "&%$#_"
}
SYMBOL = r"[hd]_[kv]\b|P_[lw]\b|W_[qkvo]\b"  # h_k, d_v, P_l, W_q
ROOT, POWER = rf"sqrt\((?:{SYMBOL})\)", r"\^-?\d+(?:\.\d+)?"
# of a negative number, and between two numbers
MINUS = r"(?<![\w.)^-])-(?=\d)|(?<=\w )-(?= \d)"
TIMES_TEN = r"e[-+]\d+"
SIGNS = {"+-": r"\pm", ">=": r"\geq", "<=": r"\leq"}
MATHEMATICS = re.compile(rf"(\b(?:{SYMBOL})|\b{ROOT}|{POWER}|(?<=\d){TIMES_TEN}\b|{MINUS}|\+-|[<>]=|[<>|])")


def latex(report: Report) -> str:
    """The table, the verdicts and the notes. They need booktabs and graphicx.

    A table that is wider than the line is scaled down to it.
    """
    lines = [f"% {report.request.command()}", f"% {report.request.table.title}"]
    lines += [f"{tex(text)}\n" for text in (shown_or_claimed(report), headline(report), missing(report)) if text]
    lines.append(_tabular(readable_table(report)))
    lines += [f"{tex(text)}\n" for text in [*legend(report), *report.notes]]
    if report.verdicts:
        lines += [r"\begin{itemize}", *(rf"\item {tex(summary(verdict))}" for verdict in report.verdicts)]
        lines += [r"\end{itemize}", "", f"{tex(closing_sentence(report))}"]
    return "\n".join(lines) + "\n"


def tex(text: str) -> str:
    """A text for LaTeX: special characters escaped, symbols and signs as mathematics."""
    # every second piece is mathematics
    pieces = "".join(
        _formula(piece) if place % 2 else "".join(SPECIAL.get(each, each) for each in piece)
        for place, piece in enumerate(MATHEMATICS.split(text))
    )
    # a symbol and its power are one formula
    return pieces.replace("$$", "")


def _formula(piece: str) -> str:
    if re.fullmatch(ROOT, piece):
        return rf"$\sqrt{{{piece[5:-1]}}}$"
    if re.fullmatch(POWER, piece):
        return f"$^{{{piece[1:]}}}$"
    if re.fullmatch(TIMES_TEN, piece):
        return rf"$\times 10^{{{int(piece[1:])}}}$"
    return f"${SIGNS.get(piece, piece)}$"


def _tabular(rows: list[Row]) -> str:
    keys = list(rows[0])
    sides = "".join("r" if is_number_column(rows, key) else "l" for key in keys)
    header = _line([key.removesuffix("_bytes") for key in keys])
    body = [_line([readable(key, row[key]) for key in keys]) for row in rows]
    tabular = [rf"\begin{{tabular}}{{{sides}}}", r"\toprule", header, r"\midrule", *body, r"\bottomrule"]
    fitted = [
        r"\par\medskip\noindent\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        *tabular,
        r"\end{tabular}}\par\medskip",
        "",
    ]
    return "\n".join(fitted)


def _line(cells: list[str]) -> str:
    return " & ".join(map(tex, cells)) + r" \\"
