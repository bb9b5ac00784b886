"""The step times of a table's rows, measured by a short bench of its own.

Runs that share a machine say nothing about speed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from experiments.display.lines import say
from experiments.failures.failure import Mistake
from experiments.files.digest import digest
from experiments.files.durable import folder_for, write_sealed
from experiments.record.code.digests import code_digests
from experiments.record.folder import RENDERED
from experiments.settings.run import Settings
from experiments.tables.definition.request import Request
from experiments.tables.sealed_file import read_content
from experiments.tables.sources.source import Source

STEP_TIMES_FOLDER = "steps"  # in the folder of the rendered tables


class StepTimes(NamedTuple):
    """The measurements of a table's bench on one machine."""

    seconds: dict[str, dict[int, float]]  # configuration -> round -> seconds of a step
    device: str
    waited: float | None  # largest share of the time that a row's process waited for a core; None: unknown

    @property
    def rounds(self) -> int:
        """The number of rounds that timed every row."""
        return len(set.intersection(*map(set, self.seconds.values()))) if self.seconds else 0


NOT_MEASURED = StepTimes({}, "", None)


@dataclass(frozen=True)
class _TimedRow:
    """The measurements of a configuration."""

    identity: str  # digest of its settings and of the code that it computes with
    kernels: str  # those that ran, joined by `+`
    seconds: list[tuple[int, float]]  # round, seconds of a step; empty if it could not be timed


@dataclass(frozen=True)
class _Record:
    """The content of the file of a table's bench, to which every request for some of the rows adds its rounds."""

    device: str
    waited: float | None
    rows: dict[str, _TimedRow]


def recorded(request: Request, source: Source) -> StepTimes:
    """Earlier measurements of the request's rows with this code and machine; NOT_MEASURED if a row has none."""
    rows = _settings_to_time(request, source)
    return _times(_record(request, rows), rows)


def measure(request: Request, source: Source, console: Console, count: int) -> StepTimes:
    """Time a training step of every row in rounds that interleave the rows of a scheme of positions, and keep the times
    in the runs' folder.

    The `count` rounds include earlier ones, and rounds that timed only some of the rows are kept beside them, because
    nobody may choose between two measurements. Raises Mistake for a row that cannot be built.
    """
    from experiments.bench.contenders import Contender
    from experiments.bench.rounds import Timing, timed

    rows = _settings_to_time(request, source)
    if not rows:
        return NOT_MEASURED
    record = _record(request, rows)
    first = 1 + max((turn for row in record.rows.values() for turn, _ in row.seconds), default=-1)
    more = count - _times(record, rows).rounds
    outcomes: dict[str, Timing | str] = {}
    for scheme in request.schemes:
        of_scheme = [key for key in rows if request.configurations[key].scheme == scheme]
        under = f" under {scheme} positions" if scheme else ""
        say(console, f"timing a step of {len(of_scheme)} rows{under}, {more} rounds")
        # ratios are those of rows under one scheme, and fewer rows need less memory at a time
        contenders = [Contender(rows[key], "step") for key in of_scheme]
        outcomes |= zip(of_scheme, timed(contenders, more), strict=True)
    new, waits = {**record.rows}, [record.waited]
    for row, timing in outcomes.items():
        if isinstance(timing, str):
            say(console, f"{row}: its step could not be timed: {timing}")
            new.setdefault(row, _TimedRow(_identity(rows[row], ""), "", []))
            continue
        kernels = "+".join(timing.warm.kernels)
        identity, seconds = _identity(rows[row], kernels), [*enumerate(timing.seconds, first)]
        earlier = record.rows.get(row)
        if earlier and earlier.identity == identity:
            seconds = [*earlier.seconds, *seconds]
        new[row] = _TimedRow(identity, kernels, seconds)
        waits.append(timing.waited)
    waited = max((wait for wait in waits if wait is not None), default=None)
    folder_for(_path(request).parent)
    record = _Record(_machine(rows), waited, new)
    write_sealed(_path(request), asdict(record))
    return _times(record, rows)


def _times(record: _Record, rows: Mapping[str, Settings]) -> StepTimes:
    """The times of these rows; NOT_MEASURED if a row has none."""
    if not rows or not rows.keys() <= record.rows.keys():
        return NOT_MEASURED
    timed = {row: dict(record.rows[row].seconds) for row in rows}
    return StepTimes({row: seconds for row, seconds in timed.items() if seconds}, record.device, record.waited)


def _record(request: Request, rows: Mapping[str, Settings]) -> _Record:
    """The content of the table's file on this machine, without those of the rows that have changed since."""
    try:
        record = read_content(_path(request), _Record, "has no step times")
    except Mistake:
        # missing or damaged, so it is measured again
        return _Record("", None, {})
    same = {
        row: timed
        for row, timed in record.rows.items()
        if row not in rows or timed.identity == _identity(rows[row], timed.kernels)
    }
    return _Record(record.device, record.waited, same) if record.device == _machine(rows) else _Record("", None, {})


def _settings_to_time(request: Request, source: Source) -> dict[str, Settings]:
    """The settings of every row under every scheme, by configuration."""
    return {key: settings for key in request.configurations if (settings := source.timed(key)) is not None}


def _identity(settings: Settings, kernels: str) -> str:
    """The digest of a row and of the code that it computes with. kernels: those that ran."""
    content = settings.model_dump()
    return digest([content, code_digests(content, kernels)])


def _machine(rows: Mapping[str, Settings]) -> str:
    """The name of the device that the rows run on."""
    from experiments.measure.hardware import device_name, resolve_device

    return device_name(resolve_device(next(iter(rows.values())).trainer.device)) if rows else ""


def _path(request: Request) -> Path:
    every = replace(request, chosen_claims=())
    return request.runs / RENDERED / STEP_TIMES_FOLDER / f"{every.settings_stem}.json"
