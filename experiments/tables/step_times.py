"""The step times of a table's rows, measured by a short bench of its own.

Runs that share a machine say nothing about speed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from experiments.display.lines import say
from experiments.files.digest import digest
from experiments.files.durable import folder_for, read_sealed, write_sealed
from experiments.record.code.digests import code_digests
from experiments.record.folder import RENDERED
from experiments.settings.run import Settings
from experiments.tables.definition.request import Request
from experiments.tables.sources.source import Source

STEP_TIMES_FOLDER = "steps"  # in the folder of the rendered tables


class StepTimes(NamedTuple):
    """The measurements of a table's bench on one machine."""

    seconds: dict[str, dict[int, float]]  # configuration -> round -> seconds of a step
    device: str
    waited: float | None  # largest share of the time that a row's process waited for a core; None: unknown
    kernels: Mapping[str, str] = {}  # configuration -> those that ran, joined by `+`

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return max((turn + 1 for of_row in self.seconds.values() for turn in of_row), default=0)


NOT_MEASURED = StepTimes({}, "", None)


def recorded(request: Request, source: Source) -> StepTimes:
    """Earlier measurements of these rows with this code and machine; otherwise NOT_MEASURED."""
    try:
        record = read_sealed(_path(request))
        rows = _settings_to_time(request, source)
        # the machine last, because its name takes torch
        if record["rows"] != _identity(rows, record["kernels"]) or record["device"] != _machine(rows):
            return NOT_MEASURED
        seconds = {
            str(row): {int(turn): float(each) for turn, each in of_row} for row, of_row in record["seconds"].items()
        }
        return StepTimes(seconds, str(record["device"]), record["waited"], record["kernels"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # missing or damaged, so it is measured again
        return NOT_MEASURED


def measure(request: Request, source: Source, console: Console, count: int) -> StepTimes:
    """Time a training step of every row in rounds that interleave the rows of a scheme of positions, and keep the times
    in the runs' folder.

    The `count` rounds include earlier ones, because nobody may choose between two measurements. Raises Mistake for a
    row that cannot be built.
    """
    from experiments.bench.contenders import Contender
    from experiments.bench.rounds import Timing, timed

    rows = _settings_to_time(request, source)
    if not rows:
        return NOT_MEASURED
    earlier = recorded(request, source)
    first, more = earlier.rounds, count - earlier.rounds
    outcomes: dict[str, Timing | str] = {}
    for scheme in request.schemes:
        of_scheme = [key for key in rows if request.configurations[key].scheme == scheme]
        under = f" under {scheme} positions" if scheme else ""
        say(console, f"timing a step of {len(of_scheme)} rows{under}, {more} rounds")
        # ratios are those of rows under one scheme, and fewer rows need less memory at a time
        contenders = [Contender(rows[key], "step") for key in of_scheme]
        outcomes |= zip(of_scheme, timed(contenders, more), strict=True)
    timings = {row: timing for row, timing in outcomes.items() if isinstance(timing, Timing)}
    for row, why in outcomes.items():
        if isinstance(why, str):
            say(console, f"{row}: its step could not be timed: {why}")
    kernels = {row: "+".join(timing.warm.kernels) for row, timing in timings.items()}
    seconds = {
        row: (earlier.seconds[row] if earlier.kernels.get(row) == kernels[row] else {})
        | dict(enumerate(timing.seconds, first))
        for row, timing in timings.items()
    }
    waits = [earlier.waited, *(timing.waited for timing in timings.values())]
    record = {
        "rows": _identity(rows, kernels),
        "kernels": kernels,
        "device": _machine(rows),
        "seconds": {row: [*of_row.items()] for row, of_row in seconds.items()},
        "waited": max((wait for wait in waits if wait is not None), default=None),
    }
    folder_for(_path(request).parent)
    write_sealed(_path(request), record)
    return recorded(request, source)


def _settings_to_time(request: Request, source: Source) -> dict[str, Settings]:
    """The settings of every row under every scheme, by configuration."""
    return {key: settings for key in request.configurations if (settings := source.timed(key)) is not None}


def _identity(rows: Mapping[str, Settings], kernels: Mapping[str, str]) -> str:
    """The digest of the rows and of the code that they compute with. kernels: those that ran."""
    of_rows = {
        row: [settings.model_dump(), code_digests(settings.model_dump(), kernels.get(row))]
        for row, settings in rows.items()
    }
    return digest(of_rows)


def _machine(rows: Mapping[str, Settings]) -> str:
    """The name of the device that the rows run on."""
    from experiments.measure.hardware import device_name, resolve_device

    return device_name(resolve_device(next(iter(rows.values())).trainer.device)) if rows else ""


def _path(request: Request) -> Path:
    return request.runs / RENDERED / STEP_TIMES_FOLDER / f"{request.settings_stem}.json"
