"""The functions in expressions of `conf/`, such as `${times:4,${hidden_size}}`.

A launcher of Hydra's sends them to its jobs, so this file imports none of the settings.
"""

from __future__ import annotations

import inspect
import os
import platform
from collections.abc import Callable
from typing import Any

from omegaconf import OmegaConf

from experiments.config.groups import options
from experiments.config.primary import PRIMARIES
from experiments.failures.failure import Mistake


def _floor_divide(number: Any, by: Any) -> int | None:
    # a size that is no number is reported under its own key, not under the keys that follow from it
    return number // by if isinstance(number, int) and isinstance(by, int) and by > 0 else None


def _times(factor: int, number: Any) -> int | None:
    return factor * number if isinstance(number, int) else None


def _minus(number: Any, other: Any) -> int | None:
    return number - other if isinstance(number, int) and isinstance(other, int) else None


def _smaller(number: Any, other: Any) -> int | None:
    return min(number, other) if isinstance(number, int) and isinstance(other, int) else None


def _groups(name: str) -> str:
    # Hydra's own groups have no options among ours
    of_groups = {group: options(group) for group in sorted(PRIMARIES[name].groups)}
    return "\n".join(f"{group}: {', '.join(names)}" for group, names in of_groups.items() if names)


def _choices(name: str) -> str:
    from experiments.config.choices import choices

    return choices(PRIMARIES[name])


def _cache_folder() -> str:
    if folder := os.environ.get("ATTN_CACHE"):
        return folder
    if not (home := os.environ.get("HOME")):
        raise LookupError("Environment variable 'HOME' not found")
    return f"{home}/.cache/attn"


def register() -> None:
    """Register the functions with OmegaConf."""
    functions: dict[str, Callable[..., Any]] = {
        "floor_divide": _floor_divide,
        "times": _times,
        "minus": _minus,
        "smaller": _smaller,
        "choices": _choices,
        "groups": _groups,
        "cache_folder": _cache_folder,
        "interpreter": platform.python_version,
    }
    for name, function in functions.items():
        OmegaConf.register_new_resolver(name, _counting(name, function), replace=True)


def _counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which then raises Mistake for a wrong number of values."""
    parameters = [*inspect.signature(function).parameters]

    def call(*values: Any) -> Any:
        if len(values) != len(parameters):
            given, needed = ",".join(map(str, values)), ",".join(parameters).upper()
            raise Mistake(f"${{{name}:{given}}}: must be ${{{name}:{needed}}}")
        return function(*values)

    return call
