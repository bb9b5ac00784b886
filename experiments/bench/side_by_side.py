"""Contenders of the same sizes side by side: checked, timed in interleaved rounds, and compared with their floor."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from experiments.bench.check import check
from experiments.bench.contenders import Contender, Scope
from experiments.bench.peers import PEERS
from experiments.bench.rounds import Timing, timed
from experiments.display.rows import Row
from experiments.failures.failure import Mistake
from experiments.failures.wording import joined
from experiments.measure.memory import give_back_freed_memory
from experiments.measure.roofline import Rates, measure_rates
from experiments.measure.throughput import spread
from experiments.results.columns import (
    is_varied,
    settings_among,
    settings_beside,
    settings_of,
    table_of,
    untrained,
)
from experiments.settings.run import Settings

# what contenders must share to be timed side by side
SIZES = ("layers", "hidden_size", "heads", "length", "batch_size", "precision")
# settings that every row shows, that of the kernel by what ran
SHOWN = ("variant", "variant.backend", *SIZES)


class LeftOut(NamedTuple):
    """A contender without a row."""

    sentence: str  # which, and why
    failed: bool  # its numbers are wrong, or its process ended; else its backend can't do the variant


def groups(cells: list[Settings]) -> Iterator[list[Settings]]:
    """The cells grouped by sizes and precision, in the order of the first of each."""
    by_sizes: dict[tuple[Any, ...], list[Settings]] = {}
    for cell in cells:
        by_sizes.setdefault(tuple(getattr(cell, size) for size in SIZES), []).append(cell)
    yield from by_sizes.values()


def other_settings(cells: list[Settings]) -> list[str]:
    """The columns of the settings that tell apart cells with the same variant, kernel and sizes."""
    return settings_beside(SHOWN, cells)


def check_peers(cells: list[Settings]) -> None:
    """Raises Mistake if cells of the same sizes differ in more than their variant and kernel.

    A peer is built once for all of them.
    """
    results = [untrained(cell) for cell in cells]
    rows = table_of(results)
    settings = (key for key in settings_among(rows[0], results) if key.partition(".")[0] != "variant")
    if differing := [key for key in settings if is_varied([row[key] for row in rows])]:
        raise Mistake(
            f"--peers: contenders of the same sizes differ in {joined(differing)}; a peer has one value of each",
            "with --peers, only the variant, the backend and the sizes may have several values",
        )


def compare(
    cells: list[Settings], scope: Scope, rounds: int, *, peers: bool, compiled: bool, others: Sequence[str] = ()
) -> tuple[list[Row], list[LeftOut]]:
    """A row for each contender among cells of the same sizes, and the contenders that have none.

    peers: also time models of other libraries. compiled: also time each with torch.compile. others: the columns of
    `other_settings`. Raises Mistake for a contender that cannot be built.
    """
    contenders, left_out = _checked(cells, scope, (False, True) if compiled else (False,))
    if peers and contenders:
        ways = dict.fromkeys(contender.compiled for contender in contenders)
        contenders += [Contender(cells[0], scope, peer, way) for peer in PEERS for way in ways]
    if not contenders:
        return [], left_out
    rows, ended = _timed(contenders, rounds, others)
    return rows, left_out + ended


def _checked(cells: list[Settings], scope: Scope, ways: tuple[bool, ...]) -> tuple[list[Contender], list[LeftOut]]:
    """The cells whose numbers are right, compiled or not as `ways` says, and the others."""
    contenders: list[Contender] = []
    left_out: list[LeftOut] = []
    for cell in cells:
        contender = Contender(cell, scope)
        try:
            outcome = check(contender)
        except Mistake as refusal:
            left_out.append(_left_out(contender, str(refusal), failed=False))
            continue
        if outcome.error:
            left_out.append(_left_out(contender, outcome.error, failed=True, kernel=outcome.kernel))
        else:
            contenders += [contender._replace(compiled=way) for way in ways]
    return contenders, left_out


def _timed(contenders: list[Contender], rounds: int, others: Sequence[str]) -> tuple[list[Row], list[LeftOut]]:
    """Rows with speeds relative to each of the peers, round by round; without peers, relative to the first
    contender.
    """
    rates = {part: _rates(*part) for part in dict.fromkeys(map(_part_of_machine, contenders))}
    # of the checks and of the rates; the contenders run in processes of their own
    give_back_freed_memory()
    outcomes = list(zip(contenders, timed(contenders, rounds), strict=True))
    ended = [_left_out(contender, why, failed=True) for contender, why in outcomes if isinstance(why, str)]
    timings = [(contender, timing) for contender, timing in outcomes if isinstance(timing, Timing)]
    # a column for every peer, whether or not it could be timed at these sizes
    references: dict[str, list[float]] = {contender.name: [] for contender in contenders if contender.peer}
    references |= {contender.name: timing.seconds for contender, timing in timings if contender.peer}
    if timings and not references:
        references["first"] = timings[0][1].seconds
    rows = [
        _settings_of(contender, timing, others) | _measured(timing, rates[_part_of_machine(contender)], references)
        for contender, timing in timings
    ]
    return rows, ended


def _part_of_machine(contender: Contender) -> tuple[torch.device, str, int]:
    """The part of the machine that a contender uses: device, precision and threads."""
    return contender.device, contender.precision, contender.settings.trainer.threads


def _rates(device: torch.device, precision: str, threads: int) -> Rates:
    torch.set_num_threads(threads)
    return measure_rates(device, precision)


def _settings_of(contender: Contender, timing: Timing, others: Sequence[str]) -> Row:
    row: Row = {"contender": contender.name, "backend": "+".join(timing.warm.kernels) or None}
    row |= {size: getattr(contender.settings, size) for size in SIZES} | {"precision": contender.precision}
    # a peer need not have them
    return row | (dict.fromkeys(others) if contender.peer else settings_of(contender.settings, others))


def _measured(timing: Timing, rates: Rates, references: dict[str, list[float]]) -> Row:
    seconds = statistics.median(timing.seconds)
    row: Row = {
        "milliseconds": 1000 * seconds,
        "spread": 1000 * spread(timing.seconds),
        "tokens_per_second": timing.work.tokens / seconds,
        "floor_share": rates.floor(timing.work.flops, timing.work.moved_bytes) / seconds,
        "peak_bytes": timing.warm.peak_bytes,
        "waited_for_cores": timing.waited,
    }
    for name, reference_seconds in references.items():
        pairs = zip(reference_seconds, timing.seconds, strict=bool(reference_seconds))
        ratios = [reference / measured for reference, measured in pairs]
        row[f"speed/{name}"] = statistics.median(ratios) if ratios else None
    return row


def _left_out(contender: Contender, why: str, *, failed: bool, kernel: str = "") -> LeftOut:
    sizes = " ".join(f"{size}={getattr(contender.settings, size)}" for size in SIZES)
    name = f"{contender.name}, kernel {kernel}" if kernel else contender.name
    return LeftOut(f"{name}, {sizes}: not timed: {why}", failed)
