"""Results for readers of many runs: read quickly, and marked if a file has changed since it was written."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from experiments.files.digest import file_digest, unsealed
from experiments.files.plain import from_json
from experiments.record.code_digest import DECIDING, code_digest
from experiments.record.dotted import Values
from experiments.record.durable import RunFolderError
from experiments.record.folder import (
    CONFIG,
    ENVIRONMENT,
    FILES,
    FINAL,
    METRICS,
    OTHER_VERSION,
    PREDICTIONS,
    RESULT,
    TOKENIZER,
    RunFolder,
    configuration_digest,
    differing_file,
)
from experiments.record.plugin_files import lacking_plugin
from experiments.record.result import UNKNOWN, Fields, Result
from experiments.results.index import Index

SAID = 10  # lines about runs that are printed
OFTEN_VARIED = ("variant.name", "heads", "layers", "hidden_size", "length", "learning_rate", "max_steps", "precision")
CHANGED = "changed"  # status of a run with a file that has changed since its result was written: no numbers
# conditions that precision=auto, for example, leaves to the machine -> what is said of two results that differ in one
LEFT_TO_MACHINE = {
    "precision": "computed in different precision, which alone changes losses, speeds and peak memories",
    "device": "ran on different machines, so their speeds and peak memories are not comparable",
}
BESIDE = (CONFIG, ENVIRONMENT, METRICS, TOKENIZER, PREDICTIONS)


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


def other_code(results: Sequence[Fields]) -> str:
    """A line about the results that were computed with other code than the present one; empty if there are none.

    If the present code lacks a file that a folder of plugins adds, the line names both.
    """
    recorded = [result for result in results if result["code_digest"] is not None]
    values = Values(recorded)
    columns = [values.at(name) for name in ("backend", "status", *(f"config.{name}" for name in DECIDING))]
    # equal settings have equal code, so its digest is computed once for all runs that share them
    keys = list(zip(*(map(str, column) for column in columns), strict=True))
    present = {key: _present_code(result) for key, result in dict(zip(keys, recorded, strict=True)).items()}
    others = [(of, present[key]) for key, of in zip(keys, recorded, strict=True) if present[key] != of["code_digest"]]
    if not others:
        return ""
    named = str(others[0][0]["run"]) + (f" and {len(others) - 1} more" if len(others) > 1 else "")
    lacking = (lacking_plugin(RunFolder(of["folder"])) for of, code in others if code is None)
    remedy = next(filter(None, lacking), "to train them again, give their commands with runs=FOLDER")
    return f"computed with other code than the present one: {named} of {len(results)} runs; {remedy}"


def remarks(results: Sequence[Fields]) -> Iterator[str]:
    """What readers of these results should know before they compare them, in lines."""
    yield from unlike(results)
    if line := other_code(results):
        yield line


def unlike(results: Sequence[Fields]) -> Iterator[str]:
    """Lines about results that are not as comparable as their settings say, with the names of two runs."""
    tokens = ((name, of, result) for result in results for name, of in (result["sequences"] or {}).items())
    if pair := _apart(tokens):
        one, other = (result["run"] for result in pair)
        yield (
            f"{one} and {other} read different tokens of the same text, as different versions of tokenizers make them, "
            "so their losses are not comparable"
        )
    for condition, difference in LEFT_TO_MACHINE.items():
        if pair := _apart((condition, of[condition], of) for of in results if of[condition]):
            one, other = (f"{result['run']} ({result[condition]})" for result in pair)
            yield f"{one} and {other} {difference}"
    ran = [result for result in results if result["backend"] and result["config"]]
    values = Values(ran)
    keys = list(zip(*(map(str, values.at(f"config.{name}")) for name in OFTEN_VARIED), strict=True))
    kernels: dict[tuple[str, ...], set[str]] = {}
    for key, result in zip(keys, ran, strict=True):
        kernels.setdefault(key, set()).add(result["backend"])
    # runs that agree in these settings usually have one kernel, and a digest of all settings takes longer
    several = [result for key, result in zip(keys, ran, strict=True) if len(kernels[key]) > 1]
    if pair := _apart((configuration_digest(of["config"] | {"seed": 0}), of["backend"], of) for of in several):
        one, other = (f"{result['run']} ({result['backend']})" for result in pair)
        yield f"{one} and {other} differ only in the seed, but ran with different kernels of attention"


def _apart(facts: Iterable[tuple[str, str, Fields]]) -> tuple[Fields, Fields] | None:
    """The first two results with the same first text and different second ones."""
    first: dict[str, tuple[str, Fields]] = {}
    for name, value, result in facts:
        known, of = first.setdefault(name, (value, result))
        if known != value:
            return of, result
    return None


def _present_code(result: Fields) -> str | None:
    """The digest of the code with which a run would be computed; None if this checkout does not have all of it."""
    try:
        return code_digest(result["config"] or {}, result["backend"], trained=result["status"] != "imported")
    except (LookupError, TypeError, OSError):
        return None


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
        raise ValueError(f"{folder / name}: has changed since {RESULT} was written")
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
