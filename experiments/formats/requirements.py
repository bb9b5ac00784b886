"""Checks that refuse, by name, what a format cannot express."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from experiments.failures.failure import Mistake
from experiments.record.dotted import value_at
from experiments.settings.run import Settings

# ours by the names that most models of transformers have, and the other way round
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh"}
THEIR_ACTIVATIONS = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
# with further names of the same functions
APPROXIMATE = ("gelu_accurate", "gelu_fast", "gelu_python_tanh", "gelu_pytorch_tanh")
READ_ACTIVATIONS = ACTIVATIONS | {"gelu_python": "gelu"} | dict.fromkeys(APPROXIMATE, "gelu_tanh")


def require(name: str, settings: Settings, needed: dict[str, Any]) -> None:
    """Raises Mistake that names the settings, by dotted keys, which a model of this name can't have."""
    tree = settings.model_dump()
    wrong = [
        f"{place}={text(ours)}: {name} has {text(value)}"
        for place, value in needed.items()
        if (ours := value_at(tree, place)) != value
    ]
    if wrong:
        raise Mistake("; ".join(wrong))


def require_config(config: Mapping[str, Any], needed: dict[str, Any]) -> None:
    """Raises Mistake that names the keys of a config.json which our models can't have; a missing key is fine."""
    wrong = [
        f"{key} = {config[key]!r} of config.json: only {value!r} can be expressed"
        for key, value in needed.items()
        if config.get(key, value) != value
    ]
    if wrong:
        raise Mistake("; ".join(wrong))


def our_activation(theirs: str, known: Mapping[str, str] = READ_ACTIVATIONS) -> str:
    """Our name of an activation. Raises Mistake for one that we don't have."""
    if theirs not in known:
        raise Mistake(f"activation {theirs!r} of config.json: must be one of {', '.join(known)}")
    return known[theirs]


def head_size(settings: Settings) -> float:
    """The head size of formats that know no other: an equal share of the hidden size."""
    size, rest = divmod(settings.hidden_size, settings.heads)
    return settings.hidden_size / settings.heads if rest else size


def text(value: Any) -> str:
    """The value as YAML and the command line write it."""
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)
