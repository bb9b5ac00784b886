"""The kinds of a group of settings. Each kind is a file, and the folder is their list."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Literal, TypeVar, Union

from experiments.failures.failure import Mistake
from experiments.failures.wording import joined
from experiments.settings.group import Group

Kind = TypeVar("Kind", bound=Group)


def kinds(package: str, base: type[Kind], interface: str) -> dict[str, type[Kind]]:
    """The settings classes of the modules of a package, by kind, sorted.

    A kind is a module KIND.py and in it a subclass of `interface` with the field `kind: Literal["KIND"]`. The package
    and this class, which is itself a subclass of `base`, lie above the settings, which therefore know their names only.

    Raises Mistake for a module without such a class, and for a class without a method that it needs.
    """
    names = sorted(module.name for module in pkgutil.iter_modules(import_module(package).__path__))
    return {name: _settings_class(f"{package}.{name}", name, base, interface) for name in names}


def one_of(kinds: Mapping[str, type[Group]]) -> Any:
    """The union of kinds, as the type of a field.

    Pydantic distinguishes them by their field `kind`.
    """
    return Union[tuple(kinds.values())]  # noqa: UP007 - built at run time


def _settings_class(module: str, kind: str, base: type[Kind], interface: str) -> type[Kind]:
    imported = import_module(module)
    for value in vars(imported).values():
        if isinstance(value, type) and issubclass(value, base) and value.__module__ == module:
            field = value.model_fields.get("kind")
            if field is not None and field.annotation == Literal[kind] and interface in _bases(value):
                if inspect.isabstract(value):
                    lacking = joined(sorted(value.__abstractmethods__))
                    raise Mistake(f"{imported.__file__}: the class {value.__name__} lacks {lacking}")
                return value
    raise Mistake(f'{imported.__file__}: has no subclass of {interface} with the field kind: Literal["{kind}"]')


def _bases(value: type) -> list[str]:
    return [each.__name__ for each in value.__mro__[1:]]
