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
MOST_COLUMNS = 9  # of a table; with more, its numbers could not be read on a page
NAMES = ("row", "positions")
# besides published numbers, the columns of a second table
BESIDE = ("rank (paper's)", "parameters", "step", "memory_bytes")
LONGEST_LINE = 30  # characters of a cell; a longer text has several lines


def latex(report: Report) -> str:
    """The table, the verdicts and the notes. They need booktabs and graphicx.

    A table with many columns is divided into two, one below the other: the scores, and published numbers and costs. A
    table that is still wider than the line is scaled down to it.
    """
    lines = [f"% {report.request.command()}", f"% {report.request.table.title}"]
    lines += [r"% needs \usepackage{booktabs,graphicx}"]
    lines += [f"{tex(text)}\n" for text in (shown_or_claimed(report), headline(report), missing(report)) if text]
    rows = readable_table(report)
    lines += [_tabular(rows, keys) for keys in divided(list(rows[0]))]
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


def divided(keys: list[str]) -> list[list[str]]:
    """The columns of each table. A second one begins with the names of the rows."""
    beside = [key for key in keys if key in BESIDE or key.startswith("published ")]
    if len(keys) <= MOST_COLUMNS or not beside:
        return [keys]
    return [[key for key in keys if key not in beside], [key for key in keys if key in (*NAMES, *beside)]]


def _tabular(rows: list[Row], keys: list[str]) -> str:
    sides = "".join("r" if is_number_column(rows, key) else "l" for key in keys)
    header = _line([tex(key.removesuffix("_bytes")) for key in keys])
    body = [_line([_cell(readable(key, row[key])) for key in keys]) for row in rows]
    tabular = [rf"\begin{{tabular}}{{{sides}}}", r"\toprule", header, r"\midrule", *body, r"\bottomrule"]
    fitted = [
        r"\par\medskip\noindent\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        *tabular,
        r"\end{tabular}}\par\medskip",
        "",
    ]
    return "\n".join(fitted)


def _cell(text: str) -> str:
    if len(text) <= LONGEST_LINE:
        return tex(text)
    return rf"\parbox[t]{{{LONGEST_LINE // 2}em}}{{\raggedright {tex(text)}\strut}}"


def _line(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"
