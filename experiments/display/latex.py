"""Rows and sentences as LaTeX: booktabs tables that fit the width of a page."""

from __future__ import annotations

import re
from collections.abc import Iterable

from experiments.display.rows import Row, is_number_column, readable, shared_by, title

NEEDS = r"% needs \usepackage{booktabs,graphicx}"
# characters with a special meaning in LaTeX, and signs that are mathematics
SPECIAL = {"\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "~": r"$\sim$", "^": r"\^{}"} | {
    each: f"\\{each}" for each in "&%$#_"
}
SYMBOL = r"[hd]_[kv]\b|P_[lw]\b|W_[qkvo]\b"  # h_k, d_v, P_l, W_q
ROOT, POWER = rf"sqrt\((?:{SYMBOL})\)", r"\^-?\d+(?:\.\d+)?"
# of a negative number, and between two numbers
MINUS = r"(?<![\w.)^-])-(?=\d)|(?<=\w )-(?= \d)"
TIMES_TEN = r"e[-+]\d+"
SIGNS = {"+-": r"\pm", ">=": r"\geq", "<=": r"\leq", "log2": r"\log_2"}
MATHEMATICS = re.compile(rf"(\b(?:{SYMBOL})|\b{ROOT}|{POWER}|(?<=\d){TIMES_TEN}\b|{MINUS}|\blog2\b|\+-|[<>]=|[<>|])")
LONGEST_LINE = 30  # characters of a cell; a longer text has several lines


def as_latex(rows: list[Row]) -> str:
    """Rows as a table, below a sentence about what all of them share."""
    shared = shared_by(rows)
    facts = ", ".join(f"{title(key)} {readable(key, value)}" for key, value in shared.items() if value is not None)
    said = [f"{tex(f'All rows: {facts}.')}\n"] if facts else []
    return "\n".join([NEEDS, *ragged([*said, tabular(rows, [key for key in rows[0] if key not in shared])])])


def ragged(lines: Iterable[str]) -> list[str]:
    """Lines of a page without a straight right edge: names cannot be divided, and would reach into the margin."""
    return [r"\begingroup\raggedright", *lines, r"\par\endgroup"]


def tabular(rows: list[Row], keys: list[str]) -> str:
    """These columns of rows as a booktabs table; one that is wider than the line is scaled down to it."""
    sides = "".join("r" if is_number_column(rows, key) else "l" for key in keys)
    header = _line([tex(title(key)) for key in keys])
    body = [_line([_cell(readable(key, row[key])) for key in keys]) for row in rows]
    lines = [r"\par\medskip\noindent\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"]
    lines += [rf"\begin{{tabular}}{{{sides}}}", r"\toprule", header, r"\midrule", *body, r"\bottomrule"]
    lines += [r"\end{tabular}}\par\medskip", ""]
    return "\n".join(lines)


def tex(text: str) -> str:
    """A text for LaTeX: special characters escaped, symbols and signs as mathematics."""
    # every second piece is mathematics; two hyphens, as before an option, would become a dash
    pieces = "".join(
        _formula(piece) if place % 2 else "".join(SPECIAL.get(each, each) for each in piece).replace("--", "-{}-")
        for place, piece in enumerate(MATHEMATICS.split(text))
    )
    # a symbol and its power are one formula; a leading [ would begin an argument of what stands before it
    return re.sub(r"^\[", "{[}", pieces.replace("$$", ""))


def _formula(piece: str) -> str:
    if re.fullmatch(ROOT, piece):
        return rf"$\sqrt{{{piece[5:-1]}}}$"
    if re.fullmatch(POWER, piece):
        return f"$^{{{piece[1:]}}}$"
    if re.fullmatch(TIMES_TEN, piece):
        return rf"$\times 10^{{{int(piece[1:])}}}$"
    return f"${SIGNS.get(piece, piece)}$"


def _cell(text: str) -> str:
    if len(text) <= LONGEST_LINE:
        return tex(text)
    return rf"\parbox[t]{{{LONGEST_LINE // 2}em}}{{\raggedright {tex(text)}\strut}}"


def _line(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"
