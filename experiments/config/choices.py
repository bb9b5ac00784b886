"""The values of the keys that have a few to choose from, as the settings declare them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from experiments.settings.finetuning import FinetuningSettings
from experiments.settings.run import Settings

CLASSES: dict[str, type[Settings]] = {"config": Settings, "finetune": FinetuningSettings}  # of a file of `conf/`


def choices(name: str) -> str:
    """A line for each key with its values, `norm: post | pre | sandwich | deep`; name: of the file of `conf/`."""
    found: dict[str, dict[str, None]] = {}
    for key, value in _values(CLASSES[name], ""):
        found.setdefault(key, {})[value] = None
    return "\n".join(f"{key}: {' | '.join(values)}" for key, values in found.items() if len(values) > 1)


def _values(kind: type[BaseModel], prefix: str) -> Iterator[tuple[str, str]]:
    """(dotted key, value) for each value of a key that has some to choose from; a group's `kind` is its option."""
    for name, field in kind.model_fields.items():
        for each in _parts(field.annotation):
            if isinstance(each, type) and issubclass(each, BaseModel):
                yield from _values(each, f"{prefix}{name}.")
            elif get_origin(each) is Literal and name != "kind":
                yield from ((f"{prefix}{name}", str(value)) for value in get_args(each))


def _parts(annotation: Any) -> Iterator[Any]:
    """The types that an annotation is made of: of unions, lists and `Annotated` those within."""
    if get_origin(annotation) in (None, Literal):
        yield annotation
    else:
        for each in get_args(annotation):
            yield from _parts(each)
