"""`attn bench`: variants, kernels, sizes and peers in interleaved rounds, each against its floor."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.display.rows import Row, show
from experiments.launch.plan import plan
from experiments.settings.mistake import ExitCode, Mistake
from experiments.settings.run import Settings

if TYPE_CHECKING:
    from experiments.bench.contenders import Contender

# what contenders must share to be timed side by side
SIZES = ("layers", "hidden_size", "heads", "length", "batch_size", "precision")
CAPTIONS = {
    "attention": "the attention layer alone, forward and backward",
    "step": "whole training steps: forward, backward and optimizer",
}


@dataclass(frozen=True)
class Options:
    what: str  # attention | step
    peers: bool
    compiled: bool  # each also by torch.compile
    rounds: int

    def __post_init__(self) -> None:
        if self.peers and self.what != "step":
            raise Mistake("--peers compares whole models", "add --what step")
        if self.rounds < 1:
            raise Mistake(f"--rounds {self.rounds}: must be at least 1")


def bench(words: list[str], options: Options, format: str, plot: Path | None) -> ExitCode:
    """Print a row a contender, and draw them if `plot` names a file; the exit code. Raises Mistake."""
    if plot is not None:
        from experiments.bench.figure import check_plot

        check_plot(plot)
    rows: list[Row] = []
    code = ExitCode.DONE
    cells = plan(words, ["-m"]).cells
    if options.peers and any(cell.objective.kind != "masked" for cell in cells):
        raise Mistake("--peers are encoders that predict masked tokens", "leave objective=masked as it is")
    for alike in groups(cells):
        contenders, left_out = checked(alike, options)
        if contenders:
            found, more = rows_of(contenders, options)
            rows, left_out = rows + found, left_out + more
        for each in left_out:
            code = ExitCode.FAILED if each.failed else code
            print(f"attn bench: {each.sentence}", file=sys.stderr)
    if not rows and not code:
        raise Mistake("there is nothing left to time")
    if rows:
        caption = f"{CAPTIONS[options.what]}; medians of {options.rounds} interleaved rounds"
        show(rows, format, caption)
        if plot is not None:
            from experiments.bench.figure import draw

            draw(rows, caption, plot)
    return code


def groups(cells: list[Settings]) -> Iterator[list[Settings]]:
    """The cells of the same sizes and precision, in the order of the first of each."""
    alike: dict[tuple[Any, ...], list[Settings]] = {}
    for cell in cells:
        alike.setdefault(tuple(getattr(cell, size) for size in SIZES), []).append(cell)
    yield from alike.values()


class LeftOut(NamedTuple):
    sentence: str  # which, and why
    failed: bool  # its numbers are wrong, or its process ended; else its backend can't do the variant


def checked(cells: list[Settings], options: Options) -> tuple[list[Contender], list[LeftOut]]:
    """Contenders whose numbers are right, peers behind them, and what is left out."""
    from experiments.bench.check import check
    from experiments.bench.contenders import Contender
    from experiments.bench.peers import PEERS

    ways = (False, True) if options.compiled else (False,)
    contenders: list[Contender] = []
    left_out: list[LeftOut] = []
    for cell in cells:
        contender = Contender(cell, options.what)
        try:
            found = check(contender)
        except Mistake as refusal:
            left_out.append(LeftOut(f"{contender.name}, {sizes(cell)}: not timed: {refusal}", failed=False))
            continue
        if found.wrong:
            sentence = f"{contender.name}, kernel {found.kernel}, {sizes(cell)}: not timed: {found.wrong}"
            left_out.append(LeftOut(sentence, failed=True))
        else:
            contenders += [contender._replace(compiled=way) for way in ways]
    if options.peers and contenders:
        contenders += [Contender(cells[0], options.what, peer, way) for peer in PEERS for way in ways]
    return contenders, left_out


def sizes(cell: Settings) -> str:
    return " ".join(f"{size}={getattr(cell, size)}" for size in SIZES)


def rows_of(contenders: list[Contender], options: Options) -> tuple[list[Row], list[LeftOut]]:
    """Each against its floor and, round by round, against the peers; without peers against the first."""
    from experiments.bench.rounds import Timing, timed
    from experiments.measure.rates import measure_rates

    rates = measure_rates(contenders[0].device, contenders[0].precision)
    outcomes = list(zip(contenders, timed(contenders, options.rounds), strict=True))
    left_out = [
        LeftOut(f"{contender.name}, {sizes(contender.settings)}: not timed: {outcome}", failed=True)
        for contender, outcome in outcomes
        if isinstance(outcome, str)
    ]
    timings = [(contender, outcome) for contender, outcome in outcomes if isinstance(outcome, Timing)]
    # a column for every peer, whether or not it could be timed at these sizes
    against: dict[str, list[float]] = {contender.name: [] for contender in contenders if contender.peer}
    against |= {contender.name: timing.seconds for contender, timing in timings if contender.peer}
    if timings and not against:
        against["first"] = timings[0][1].seconds
    rows = []
    for contender, timing in timings:
        settings, seconds = contender.settings, statistics.median(timing.seconds)
        row: Row = {"contender": contender.name, "backend": "+".join(timing.warm.kernels) or None}
        row |= {size: getattr(settings, size) for size in SIZES} | {"precision": contender.precision}
        row |= {
            "milliseconds": 1000 * seconds,
            "spread": 1000 * spread(timing.seconds),
            "tokens_per_second": timing.size.tokens / seconds,
            "floor_share": rates.floor(timing.size.flops, timing.size.moved_bytes) / seconds,
            "peak_bytes": timing.warm.peak_bytes,
        }
        for name, theirs in against.items():
            ratios = [other / own for other, own in zip(theirs, timing.seconds, strict=bool(theirs))]
            row[f"speed/{name}"] = statistics.median(ratios) if ratios else None
        rows.append(row)
    return rows, left_out


def spread(values: list[float]) -> float:
    """Distance between the quartiles; 0 for a single value."""
    if len(values) < 2:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return high - low
