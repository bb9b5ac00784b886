"""Results for readers of many runs: read quickly, and marked if a file has changed since it was written."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from experiments.failures.failure import Mistake
from experiments.files.digest import file_digest, unsealed
from experiments.files.plain import from_json
from experiments.record.errors import RunFolderError
from experiments.record.folder import (
    BESIDE,
    FILES,
    FINAL,
    OTHER_VERSION,
    RESULT,
    RunFolder,
    differing_file,
    how_it_differs,
)
from experiments.record.result import UNKNOWN, Fields, Result
from experiments.results.index import Index
from experiments.results.selection import named_folders

SAID = 10  # lines about runs that are printed
CHANGED = "changed"  # status of a run with a file that has changed since its result was written: no numbers


def ended_results(runs: Path, selection: list[str], say: Callable[[str], None]) -> list[Fields]:
    """The results of the runs that are named; if none is, of all that have ended, by name.

    `say` gets lines about files that have changed. Raises Mistake for a named run that has not ended.
    """
    named = named_folders(selection, runs)
    results = []
    with Index(runs) as index, first_lines(say) as say_first:
        for folder in named or index.folders():
            if (result := marked_result(folder, index, say_first)) is not None:
                results.append(result)
            elif named:
                raise Mistake(
                    f"{folder}: the run has not finished; there is no {RESULT}",
                    "the command that began the run continues it",
                )
    return results


def marked_result(folder: Path, index: Index, say: Callable[[str], None]) -> Fields | None:
    """`result.json` with the folder under `folder` and its name under `run`; None if there is none.

    If it has changed since it was written, or a file that its numbers rest on has, `say` gets a line about the file.
    The result then has the status CHANGED and no numbers, and its settings if at least these can be trusted.
    """
    try:
        result: Fields | None = index.read(folder / RESULT, partial(_parse, folder), beside=BESIDE)
    except OSError as error:
        say(f"{CHANGED}: {error.filename or folder / RESULT}: {error.strerror}")
    except UnicodeEncodeError:
        # the table must be able to show the name
        name = folder.name.encode("ascii", "backslashreplace").decode()
        say(f"{CHANGED}: {name}: the path of a run must be UTF-8; rename it")
        return UNKNOWN | {"run": name, "folder": folder, "status": CHANGED}
    except ValueError as error:
        say(f"{CHANGED}: {error}")
    else:
        if result is not None:
            result |= {"run": folder.name, "folder": folder, "config": _shared_config(result)}
        return result
    config = _settings(folder)
    known = {"run": folder.name, "folder": folder, "config": config, "seed": (config or {}).get("seed")}
    return UNKNOWN | known | {"status": CHANGED}


@contextmanager
def first_lines(say: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    """A block with a `say` that passes on the first lines about runs, and only the number of the others."""
    said = 0

    def say_first(line: str) -> None:
        nonlocal said
        said += 1
        if said <= SAID:
            say(line)

    yield say_first
    if said > SAID:
        say(f"and {said - SAID} more like these")


def _parse(folder: Path, content: bytes) -> Fields:
    try:
        result = unsealed(from_json(content))
        recorded = result.pop(FILES, None)
        differing_file(recorded, {})
    except ValueError as error:
        raise ValueError(f"{folder / RESULT}: {error}") from error
    try:
        Result.from_dict(result)
    except ValueError as error:
        raise ValueError(f"{folder / RESULT}: {OTHER_VERSION} ({error})") from error
    if result["status"] in FINAL and (name := differing_file(recorded, _digests_beside(folder))):
        raise ValueError(how_it_differs(folder / name))
    return UNKNOWN | _with_config_as_text(result)


def _digests_beside(folder: Path) -> dict[str, str]:
    digests = {}
    for name in BESIDE:
        with suppress(FileNotFoundError):
            digests[name] = file_digest(folder / name)
    return digests


def _with_config_as_text(result: Fields) -> Fields:
    """The result with its settings as JSON, from which the seed is taken out if it is that of the result."""
    config = result["config"]
    if config and config.get("seed") == result["seed"]:
        config |= {"seed": None}
    return result | {"config": config and to_json(config).decode()}


def _shared_config(result: Fields) -> dict[str, Any] | None:
    """The settings of such a result. Runs with the same group of settings share it, so it must not be changed."""
    if not result["config"]:
        return None
    config = _parsed(result["config"])
    return config | {"seed": result["seed"]} if "seed" in config and config["seed"] is None else config


@functools.cache
def _parsed(config: str) -> dict[str, Any]:
    parsed: dict[str, Any] = from_json(config)
    return parsed


def _settings(folder: Path) -> dict[str, Any] | None:
    try:
        return RunFolder(folder).config()
    except RunFolderError:
        return None
