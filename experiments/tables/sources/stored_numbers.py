"""A function of a file, `measure(..., **arguments)`, and its numbers.

The result of each call is kept in its own file.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from experiments.failures.failure import Mistake
from experiments.failures.wording import did_you_mean, shortened
from experiments.files.digest import digest
from experiments.files.disk import files_named
from experiments.files.durable import folder_for, number, read_sealed, write_sealed
from experiments.record.code.digests import measure_digests
from experiments.record.dotted import value_at
from experiments.record.errors import disk_errors_as_failures
from experiments.tables.sources.source import CellOutcome, Value

COMPUTED_FOLDER = "computed"  # in the runs' folder, beside the run folders

Arguments = dict[str, Value]


class StoredNumbers:
    """The results of `measure` of a module, by its arguments and anything else that identifies a call."""

    def __init__(self, module: str, runs: Path, of_call: frozenset[str]) -> None:
        """of_call: the parameters that no row sets. Raises Mistake for a module without the function."""
        self._module = importlib.import_module(module)
        if not callable(function := getattr(self._module, "measure", None)):
            raise Mistake(f"{self._module.__file__}: has no function measure")
        self._name = module.rpartition(".")[2]
        self._function: Callable[..., Any] = function
        self.code = digest(measure_digests(module))
        self._parameters = [name for name in inspect.signature(function).parameters if name not in of_call]
        self._folder = runs / COMPUTED_FOLDER

    def measure(self, *of_call: Any, **arguments: Any) -> dict[str, Any]:
        """The numbers of a call. Raises Mistake for anything but a dict."""
        numbers = self._function(*of_call, **arguments)
        if not isinstance(numbers, dict):
            returned = shortened(repr(numbers))
            raise Mistake(f"{self._module.__file__}: measure returns {returned}: must be a dict of numbers")
        return numbers

    def arguments(self, row: str, overrides: Iterable[str]) -> Arguments:
        """The arguments of a row from its ARGUMENT=VALUE, each value read as YAML.

        Raises Mistake for an unknown argument, and for a missing one.
        """
        known = self._parameters
        values = {key: value for key, _, value in (override.partition("=") for override in overrides)}
        for key in values:
            if key not in known:
                raise Mistake(
                    f"{row}: there is no setting {key!r}" + did_you_mean(key, known), f"it has {', '.join(known)}"
                )
        if missing := [name for name in known if name not in values]:
            raise Mistake(f"{row}: {', '.join(missing)} is missing")
        return {name: yaml.safe_load(values[name]) for name in known}

    def name(self, *identity: object) -> str:
        """The name of a call's file, which depends on the code and on everything that the call gets."""
        return f"{self._name}-{digest([self.code, *identity])[:12]}"

    def kept_seeds(self) -> set[int]:
        """The seeds of the calls whose results are kept. Raises RunFolderError."""
        with disk_errors_as_failures(self._folder):
            paths = files_named(self._folder, f"{self._name}-*.json")
        seeds = (value_at(self.outcome(path.stem).result, "environment.seed") for path in paths)
        return {seed for seed in seeds if seed is not None}

    def outcome(self, name: str) -> CellOutcome:
        """The content of a file."""
        path = self._folder / f"{name}.json"
        if not path.exists():
            return CellOutcome("missing")
        try:
            record = read_sealed(path)
        except (OSError, ValueError) as error:
            return CellOutcome("refused", f"{path}: {error}; remove it")
        return CellOutcome("done", result={key: number(value) for key, value in record.items()})

    def store(self, name: str, numbers: Mapping[str, Any]) -> None:
        """Write the file of a call. Raises DiskError."""
        write_sealed(folder_for(self._folder) / f"{name}.json", dict(numbers))
