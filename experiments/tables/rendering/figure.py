"""A report as a figure: the scores over the size that the rows vary, and the claims' paired differences beside the
printed ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from operator import attrgetter
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.files.durable import replacing
from experiments.statistics.comparison import Compared
from experiments.tables.line import Line
from experiments.tables.partial_seeds import SIGN
from experiments.tables.rendering.published_difference import PublishedDifference, published_difference
from experiments.tables.rendering.sentences import meaning_of_differences, missing, partial_seeds
from experiments.tables.report import Report, under

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

VARIED = (
    "h",
    "d_k",
    "layers",
    "hidden_size",
)  # sizes that can be the axis; the first one that a family varies is chosen
COLOURS = {
    "holds": "#1b7f4d",
    "reversed": "#b3261e",
    "no difference": "#3465a4",
    "not resolved": "#8a8a8a",
    "not tested": "#a8a8a8",
}
# so that outcomes differ without their colours
MARKERS: dict[str, dict[str, Any]] = {
    "holds": {"marker": "o"},
    "reversed": {"marker": "X", "markersize": 7},
    "no difference": {"marker": "s"},
    "not resolved": {"marker": "o", "markerfacecolor": "white"},
    "not tested": {"marker": "d", "markerfacecolor": "white"},
}
FAMILIES = ("#1f5aa6", "#c4551a", "#2f8f4e", "#7b4ba0", "#8c6d1f", "#4f4f4f")
ROW_INCHES = 0.28
TEXT_ROWS = 0.6  # the height of a line about a claim, in rows of comparisons
TEXT_WIDTH = 52  # of what a claim says, in characters
FORMULA_WIDTH, PUBLISHED_WIDTH = 48, 22  # of a comparison, and of what the paper prints for it
DATES = {".svg": "Date", ".pdf": "CreationDate"}  # what the format calls the time of drawing, which is left out
DODGE = 0.02  # between the families at one size, so that their error bars can be told apart; in powers of 2
PUBLISHED: dict[str, Any] = {
    "marker": "D", "markersize": 8, "markerfacecolor": "white", "color": "#000000", "linestyle": ""
}  # fmt: skip


def save_figure(report: Report, path: Path) -> bool:
    """Draw into a file, in the format of its ending.

    Returns False without matplotlib, or if there is nothing to draw.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        return False
    compared = list(_compared(report))
    if not any(line.score is not None for line in report.lines):
        return False
    schemes = report.request.schemes
    footnote = partial_seeds(report)
    lines = list(_lines(compared))
    height = max(2.6 * len(schemes) + 1, ROW_INCHES * sum(_rows(line) for line in lines) + 1.4)
    height += ROW_INCHES * len(footnote)
    figure = Figure(figsize=(11, height), layout="constrained")
    if title := missing(report):
        figure.suptitle(title, fontsize=9)
    if footnote:
        figure.supxlabel("\n".join(footnote), fontsize=7, x=0.01, ha="left")
    ((left, right),) = figure.subfigures(1, 2, squeeze=False, width_ratios=(1, 1.9))
    hollow = "; hollow: marked in the table" if any(line.mark for line in report.lines) else " over seeds"
    left.suptitle(f"means and standard errors{hollow}", fontsize=9)
    panels = left.subplots(len(schemes), 1, squeeze=False)[:, 0]
    score_axes = [_draw_scores(axes, report, scheme) for axes, scheme in zip(panels, schemes, strict=True)]
    _share_span([axis for axis in score_axes if axis])
    _draw_differences(right.subplots(), report, lines)
    # so that the same numbers give the same bytes
    fixed: Any = {"svg.hashsalt": report.request.name, "svg.fonttype": "none"}
    with replacing(path) as temporary, rc_context(fixed):
        figure.savefig(temporary, format=path.suffix[1:], metadata={DATES[path.suffix]: None})
    return True


def _draw_scores(axes: Axes, report: Report, scheme: str) -> Axis | None:
    """A line for every variant under a scheme, over the size that its rows vary; without such a size, a point for every
    row.

    Returns the axis of the scores, and None without any.
    """
    axes.set_title(f"positions: {scheme}" if scheme else "", fontsize=9)
    of_scheme = under(scheme, report.lines)
    size = _size(of_scheme)
    groups: dict[str, list[Line]] = {}
    for line in of_scheme:
        if line.score is not None:
            groups.setdefault(_variant(line), []).append(line)
    if not groups:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "no cell is finished", transform=axes.transAxes, ha="center", fontsize=9)
        return None
    if size is None:
        rows = [line for group in groups.values() for line in group]
        for index, line in enumerate(rows):
            _point(axes, line, index, FAMILIES[0], horizontal=True)
        axes.set_yticks(range(len(rows)), [_signed(line.row, line) for line in rows], fontsize=8)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlabel(_unit(report))
        return axes.xaxis
    largest = _largest(of_scheme, size)
    places = {line.row: line.given[size] / largest.get(_variant(line), 1) for line in of_scheme}
    for index, (name, lines) in enumerate(groups.items()):
        colour = FAMILIES[index % len(FAMILIES)]
        lines = sorted(lines, key=lambda line: line.given[size])
        beside = 2 ** (DODGE * (2 * index - len(groups) + 1))
        at = [beside * places[line.row] for line in lines]
        axes.plot(at, [_score(line) for line in lines], color=colour, label=name)
        for line, place in zip(lines, at, strict=True):
            _point(axes, line, place, colour)
    axes.set_xscale("log", base=2)
    ticks = sorted({*places.values()})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axis = {"h": "heads", "d_k": "key size d_k"}.get(size, size.replace("_", " "))
    axes.set_xlabel(f"{axis} over the variant's largest" if largest else axis)
    axes.set_ylabel(_unit(report))
    axes.legend(fontsize=8, frameon=False)
    return axes.yaxis


def _share_span(axes: Sequence[Axis]) -> None:
    """Give the axes the span of the widest one, each around its own middle, so that a difference is as long in every
    panel.
    """
    limits = [axis.get_view_interval() for axis in axes]
    span = max((high - low for low, high in limits), default=0.0)
    for axis, (low, high) in zip(axes, limits, strict=True):
        middle = (low + high) / 2
        axis.set_view_interval(middle - span / 2, middle + span / 2, ignore=True)


def _point(axes: Axes, line: Line, place: float, colour: str, *, horizontal: bool = False) -> None:
    """The mean with its standard error; hollow if the row may not decide a claim."""
    face = "white" if line.mark else colour
    style: dict[str, Any] = {"color": colour, "markerfacecolor": face, "fmt": "o", "capsize": 2, "markersize": 5}
    error = line.standard_error or 0.0
    if horizontal:
        axes.errorbar(_score(line), place, xerr=error, **style)
    else:
        axes.errorbar(place, _score(line), yerr=error, **style)
        beside: dict[str, Any] = {"xytext": (5, 4), "textcoords": "offset points", "fontsize": 7, "color": colour}
        axes.annotate(_signed("", line), (place, _score(line)), **beside)


def _score(line: Line) -> float:
    assert line.score is not None  # others are not drawn
    return line.score


def _signed(name: str, line: Line) -> str:
    return f"{name} {SIGN}".strip() if line.of_seeds else name


class _Drawn(NamedTuple):
    """A comparison of scores, its claim with the verdict and in words, and what the paper prints for it."""

    claim: str
    says: str
    name: str
    comparison: Compared
    published: PublishedDifference | None


class _Text(NamedTuple):
    """Lines about a claim, above its comparisons."""

    name: str
    is_heading: bool


def _lines(compared: Sequence[_Drawn]) -> Iterator[_Drawn | _Text]:
    """The comparisons below what their claims say."""
    for (claim, says), of_claim in groupby(compared, attrgetter("claim", "says")):
        if drawn := [each for each in of_claim if each.comparison.mean is not None]:
            yield _Text(claim, is_heading=True)
            yield _Text("\n".join(wrap(says, TEXT_WIDTH)), is_heading=False)
            yield from drawn


def _rows(line: _Drawn | _Text) -> float:
    """The height of a line, in rows of comparisons."""
    height = TEXT_ROWS * (1 + line.name.count("\n"))
    return height if isinstance(line, _Text) else max(height, 1.0)


def _draw_differences(axes: Axes, report: Report, lines: Sequence[_Drawn | _Text]) -> None:
    """A forest plot: the mean paired difference and 95% interval of every comparison below its claim, with the margin
    shaded, and more lightly that of trends.

    A printed difference stands in words at the right. One in the same unit is also a diamond beside ours.
    """
    budget = report.request.budget
    for margin in filter(None, (budget.margin, budget.trend_margin)):
        axes.axvspan(-margin.value, margin.value, color="#000000", alpha=0.07, linewidth=0)
    axes.axvline(0, color="#000000", linewidth=0.8)
    ends = list(accumulate(_rows(line) for line in lines))
    places = [end - _rows(line) / 2 for end, line in zip(ends, lines, strict=True)]
    placed = {place: line for place, line in zip(places, lines, strict=True) if isinstance(line, _Drawn)}
    for place, (_, _, _, comparison, published) in placed.items():
        mean, bounds, word = comparison.mean, comparison.interval, comparison.word()
        assert mean is not None
        if bounds:
            axes.plot(bounds, (place, place), color=COLOURS[word], linewidth=1.6)
        # below ours, which it would hide where both agree
        if published and published.comparable:
            axes.plot(published.value, place, **PUBLISHED)
        axes.plot(mean, place, **_marker(word))
    axes.set_yticks(places, [line.name for line in lines], fontsize=8)
    for label, line in zip(axes.get_yticklabels(), lines, strict=True):
        label.set_multialignment("right")
        if isinstance(line, _Text):
            label.set(**({"fontweight": "bold"} if line.is_heading else {"fontsize": 7}))
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(ends[-1] if ends else 0.5, 0)
    axes.locator_params(axis="x", nbins=6)  # more labels of five characters would touch
    in_words = {place: line.published for place, line in placed.items() if line.published}
    if in_words:
        right = axes.secondary_yaxis("right")
        printed = ["\n".join(wrap(f"paper: {each}", PUBLISHED_WIDTH)) for each in in_words.values()]
        right.set_yticks([*in_words], printed, fontsize=7)
        right.tick_params(length=0)
    axes.set_title("paired differences, 95% intervals; shaded: the margin", fontsize=9, loc="right")
    # like the title at the right end, because the sentences may be wider than the axes, beside which there are names
    below = "\n".join([f"difference of {_unit(report)}", *meaning_of_differences(report)])
    axes.set_xlabel(below, fontsize=8, loc="right")
    words = dict.fromkeys(line.comparison.word() for line in placed.values())
    handles = [axes.plot([], [], label=word, **_marker(word))[0] for word in words]
    if any(difference.comparable for difference in in_words.values()):
        handles += axes.plot([], [], label="published", **PUBLISHED)
    axes.figure.legend(
        handles=handles, title="each comparison by itself, at 95%", title_fontsize=8, fontsize=8, frameon=False,
        ncols=len(handles) or 1, loc="outside lower right",
    )  # fmt: skip


def _marker(word: str) -> dict[str, Any]:
    return {"color": COLOURS[word], "markersize": 5, "linestyle": ""} | MARKERS[word]


def _compared(report: Report) -> Iterator[_Drawn]:
    """Every comparison of scores with its name, under each scheme."""
    for verdict in report.verdicts:
        if verdict.claim.of != "score":
            continue
        claim, parts = f"{verdict.key}: {verdict.word}", verdict.claim.parts_at(report.request.rows)
        for scheme, finding in verdict.findings.items():
            for part, comparison in zip(parts, finding.comparisons, strict=True):
                written = comparison.formula.replace(", fitted over log2 ", ", by ")
                name = "\n".join(wrap(written + (f" ({scheme})" if scheme else ""), FORMULA_WIDTH))
                yield _Drawn(claim, verdict.claim.says, name, comparison, published_difference(part, report))


def _size(lines: Sequence[Line]) -> str | None:
    """The size that the rows vary, if the rows of each variant all differ in it."""
    for size in VARIED:
        groups: dict[str, list[Any]] = {}
        for line in lines:
            groups.setdefault(_variant(line), []).append(line.given.get(size))
        values = [value for group in groups.values() for value in group]
        distinct = all(len(set(group)) == len(group) for group in groups.values())
        if distinct and all(isinstance(value, int | float) for value in values) and len(set(values)) > 2:
            return size
    return None


def _largest(lines: Sequence[Line], size: str) -> dict[str, float]:
    """The largest size of each variant if no two variants share one, so that their lines can be compared; else empty.

    Shared queries and keys, for example, are as wide as those of all separate heads together.
    """
    sizes: dict[str, set[float]] = {}
    for line in lines:
        sizes.setdefault(_variant(line), set()).add(line.given[size])
    apart = len(sizes) > 1 and len(set().union(*sizes.values())) == sum(map(len, sizes.values()))
    return {name: max(of_variant) for name, of_variant in sizes.items()} if apart else {}


def _variant(line: Line) -> str:
    return str(line.given.get("variant", "")).replace("_", " ")


def _unit(report: Report) -> str:
    return ", ".join(filter(None, [report.score.replace("_", " "), report.request.budget.unit]))
