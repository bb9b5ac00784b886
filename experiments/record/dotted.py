"""What stands at dotted keys, such as `config.variant.name`, of a result or of settings."""

from __future__ import annotations

from typing import Any


def values_at(results: list[dict[str, Any]], place: str) -> list[Any]:
    """What stands in each result at dotted keys, as `config.variant.name`; None where nothing does."""
    nodes: list[Any] = results
    for key in place.split("."):
        nodes = [node.get(key) if isinstance(node, dict) else None for node in nodes]
    return nodes


def value_at(result: dict[str, Any], place: str) -> Any:
    """The value at a dotted place of a result; None where there is none."""
    return values_at([result], place)[0]
