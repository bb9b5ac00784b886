"""What a format can't express is refused by name."""

from __future__ import annotations

from typing import Any

from experiments.settings import Settings


def require(model_type: str, settings: Settings, needed: dict[str, Any]) -> None:
    """Raises ValueError that names the settings, by dotted keys, which a model of this type can't have."""
    tree = settings.model_dump()
    wrong = [
        f"{place} = {found!r}: a {model_type} model has {value!r}"
        for place, value in needed.items()
        if (found := _value_at(tree, place)) != value
    ]
    if wrong:
        raise ValueError("\n".join(wrong))


def require_config(model_type: str, config: dict[str, Any], needed: dict[str, Any]) -> None:
    """Raises ValueError that names the keys of a configuration which our models can't have; a missing key is fine."""
    wrong = [
        f"{key} = {config[key]!r} of a {model_type} configuration: must be {value!r}"
        for key, value in needed.items()
        if config.get(key, value) != value
    ]
    if wrong:
        raise ValueError("\n".join(wrong))


def our_activation(model_type: str, theirs: str, known: dict[str, str]) -> str:
    if theirs not in known:
        raise ValueError(f"activation {theirs!r} of a {model_type} configuration: must be one of {', '.join(known)}")
    return known[theirs]


def head_size(settings: Settings) -> float:
    """Of the formats that know no other: an equal share of the hidden size."""
    size, rest = divmod(settings.hidden_size, settings.heads)
    return settings.hidden_size / settings.heads if rest else size


def _value_at(tree: Any, place: str) -> Any:
    for key in place.split("."):
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree
