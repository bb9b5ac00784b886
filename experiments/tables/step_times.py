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

ROUNDS = 12  # an anytime-valid interval needs four rounds, and is narrow from about ten on
STEP_TIMES_FOLDER = "steps"  # in the folder of the rendered tables


class StepTimes(NamedTuple):
    """The measurements of a table's bench on one machine."""

    seconds: dict[str, dict[int, float]]  # configuration -> round -> seconds of a step
    device: str
    waited: float | None  # largest share of the time that a row's process waited for a core; None: unknown


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
            str(row): {turn: float(each) for turn, each in enumerate(of_row)}
            for row, of_row in record["seconds"].items()
        }
        return StepTimes(seconds, str(record["device"]), record["waited"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # missing or damaged, so it is measured again
        return NOT_MEASURED


def measure(request: Request, source: Source, console: Console) -> StepTimes:
    """Time a training step of every row in rounds that interleave the rows of a scheme of positions, and keep the times
    in the runs' folder.

    Raises Mistake for a row that cannot be built.
    """
    from experiments.bench.contenders import Contender
    from experiments.bench.rounds import Timing, timed

    rows = _settings_to_time(request, source)
    if not rows:
        return NOT_MEASURED
    outcomes: dict[str, Timing | str] = {}
    for scheme in request.schemes:
        of_scheme = [key for key in rows if request.configurations[key].scheme == scheme]
        under = f" under {scheme} positions" if scheme else ""
        say(console, f"timing a step of {len(of_scheme)} rows{under}, {ROUNDS} rounds")
        # ratios are those of rows under one scheme, and fewer rows need less memory at a time
        contenders = [Contender(rows[key], "step") for key in of_scheme]
        outcomes |= zip(of_scheme, timed(contenders, ROUNDS), strict=True)
    timings = {row: timing for row, timing in outcomes.items() if isinstance(timing, Timing)}
    for row, why in outcomes.items():
        if isinstance(why, str):
            say(console, f"{row}: its step could not be timed: {why}")
    kernels = {row: "+".join(timing.warm.kernels) for row, timing in timings.items()}
    waits = [wait for timing in timings.values() if (wait := timing.waited) is not None]
    record = {
        "rows": _identity(rows, kernels),
        "kernels": kernels,
        "device": _machine(rows),
        "seconds": {row: timing.seconds for row, timing in timings.items()},
        "waited": max(waits, default=None),
    }
    folder_for(_path(request).parent)
    write_sealed(_path(request), record)
    return recorded(request, source)


def _settings_to_time(request: Request, source: Source) -> dict[str, Settings]:
    """The settings of every row under every scheme, by configuration."""
    return {key: settings for key in request.configurations if (settings := source.timed(key)) is not None}


def _identity(rows: Mapping[str, Settings], kernels: Mapping[str, str]) -> str:
    """The digest of the rows and of the code that they compute with. kernels: those that ran, joined by `+`."""
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
