"""Values at dotted keys, such as `config.variant.name`, of results or settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def values_at(results: Sequence[Mapping[str, Any]], place: str) -> list[Any]:
    """The values of each result at dotted keys, such as `config.variant.name`; None for a missing one."""
    nodes: Sequence[Any] = results
    for key in place.split("."):
        nodes = [node.get(key) if isinstance(node, dict) else None for node in nodes]
    return list(nodes)


def value_at(result: dict[str, Any], place: str) -> Any:
    """The value at a dotted key of a result; None if there is none."""
    return values_at([result], place)[0]
