"""The kinds of a group of settings. Each kind is a file, and the folder is their list."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Literal, TypeVar, Union

from experiments.failures.failure import Mistake
from experiments.settings.group import Group

Kind = TypeVar("Kind", bound=Group)


def kinds(package: str, base: type[Kind]) -> dict[str, type[Kind]]:
    """The settings classes of the modules of a package, by kind, sorted.

    A kind is a module KIND.py and in it a subclass of `base` with the field `kind: Literal["KIND"]`. The package lies
    in a package above the settings, which therefore know its name only.

    Raises Mistake for a module without such a class.
    """
    names = sorted(module.name for module in pkgutil.iter_modules(import_module(package).__path__))
    return {name: _settings_class(f"{package}.{name}", name, base) for name in names}


def one_of(kinds: Mapping[str, type[Group]]) -> Any:
    """The union of kinds, as the type of a field.

    Pydantic distinguishes them by their field `kind`.
    """
    return Union[tuple(kinds.values())]  # noqa: UP007 - built at run time


def _settings_class(module: str, kind: str, base: type[Kind]) -> type[Kind]:
    imported = import_module(module)
    for value in vars(imported).values():
        if isinstance(value, type) and issubclass(value, base) and value.__module__ == module:
            field = value.model_fields.get("kind")
            if field is not None and field.annotation == Literal[kind]:
                return value
    raise Mistake(f'{imported.__file__}: has no subclass of {base.__name__} with the field kind: Literal["{kind}"]')
