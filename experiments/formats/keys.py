"""The values of a config.json. A Mistake names the key, its value and what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from experiments.failures.failure import Mistake
from experiments.failures.wording import as_yaml, shortened

T = TypeVar("T")

# ours by the names that most models of transformers have, and the other way round
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh"}
THEIR_ACTIVATIONS = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
# with further names of the same functions
APPROXIMATE = ("gelu_accurate", "gelu_fast", "gelu_python_tanh", "gelu_pytorch_tanh")
READ_ACTIVATIONS = ACTIVATIONS | {"gelu_python": "gelu"} | dict.fromkeys(APPROXIMATE, "gelu_tanh")
ALLOWED = {float: "a number", bool: "true or false", str: "a text", dict: "a mapping"}  # by type


def read(config: Mapping[str, Any], key: str, default: Any, least: int = 1, file: str = "config.json") -> Any:
    """The value of a key. Raises Mistake if it has another type than the default.

    default: what transformers takes for a missing key; a type, for a key that must be there; None, for a whole number
    that may be missing or null. least: the least whole number that is allowed. file: the name in messages.
    """
    if default is None:
        return None if config.get(key) is None else read(config, key, int, least, file)
    kind = default if isinstance(default, type) else type(default)
    allowed = f"a whole number, at least {least}" if kind is int else ALLOWED[kind]
    if key not in config and kind is default:
        raise Mistake(f"{file} lacks {key}, which must be {allowed}")
    value = config.get(key, default)
    # by its exact type, because true is an int for Python
    fits = type(value) in (int, float) if kind is float else type(value) is kind
    if not fits or (kind is int and value < least):
        raise Mistake(f"{key} = {shortened(as_yaml(value))} of {file}: must be {allowed}")
    return value


def read_choice(config: Mapping[str, Any], key: str, default: str, choices: Mapping[str, T]) -> T:
    """What a key's value stands for. Raises Mistake for one that is none of the choices."""
    value = read(config, key, default)
    if value not in choices:
        raise Mistake(f"{key} = {as_yaml(value)} of config.json: must be one of {', '.join(choices)}")
    return choices[value]


def require(config: Mapping[str, Any], needed: Mapping[str, Any], file: str = "config.json") -> None:
    """Raises Mistake that names the keys which our models can't have; a missing key is fine."""
    wrong = [
        f"{key} = {shortened(as_yaml(config[key]))} of {file}: only {as_yaml(value)} can be expressed"
        for key, value in needed.items()
        if config.get(key, value) != value
    ]
    if wrong:
        raise Mistake("; ".join(wrong))
