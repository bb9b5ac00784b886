"""The keys with a few possible values, and these values, as the settings declare them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from omegaconf import OmegaConf
from pydantic import BaseModel

from experiments.config.primary import FINETUNING, PRETRAINING, Primary
from experiments.settings.conf_files import CONF
from experiments.settings.finetuning import FinetuningSettings
from experiments.settings.run import Settings

CLASSES: dict[Primary, type[Settings]] = {PRETRAINING: Settings, FINETUNING: FinetuningSettings}


def choices(primary: Primary) -> str:
    """A line for each key with its values, `norm: post | pre | sandwich | deep`.

    Keys that the command cannot set, such as those of the pretrained run in `attn finetune`, are left out.
    """
    settable = {*map(str, OmegaConf.load(CONF / f"{primary.name}.yaml")), *primary.groups}
    by_key: dict[str, dict[str, None]] = {}
    for key, value in _values(CLASSES[primary], ""):
        if key.split(".")[0] in settable:
            by_key.setdefault(key, {})[value] = None
    return "\n".join(f"{key}: {' | '.join(values)}" for key, values in by_key.items() if len(values) > 1)


def _values(kind: type[BaseModel], prefix: str) -> Iterator[tuple[str, str]]:
    """(dotted key, value) for each value of a key with a few possible ones; a group's `kind` is its option."""
    for name, field in kind.model_fields.items():
        for part in _parts(field.annotation):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from _values(part, f"{prefix}{name}.")
            elif get_origin(part) is Literal and name != "kind":
                yield from ((f"{prefix}{name}", str(value)) for value in get_args(part))


def _parts(annotation: Any) -> Iterator[Any]:
    """The types that an annotation consists of, including those within unions, lists and `Annotated`."""
    if get_origin(annotation) in (None, Literal):
        yield annotation
    else:
        for part in get_args(annotation):
            yield from _parts(part)
