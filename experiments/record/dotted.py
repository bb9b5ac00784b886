"""Values at dotted keys, such as `config.variant.name`, of results or settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any


class Values:
    """The values of many results, or of their settings, at dotted keys. Each part of a key is looked up once."""

    def __init__(self, results: Sequence[Mapping[str, Any]]) -> None:
        self._found: dict[str, list[Any]] = {"": list(results)}

    def __len__(self) -> int:
        return len(self._found[""])

    def at(self, dotted: str) -> list[Any]:
        """The value of each result at a key such as `config.variant.name`; None for a missing one."""
        if dotted not in self._found:
            above, _, key = dotted.rpartition(".")
            self._found[dotted] = _children(self.at(above), key)
        return self._found[dotted]


def _children(nodes: Sequence[Any], key: str) -> list[Any]:
    try:
        # usually all have it, and this takes a third of the time
        return [node[key] for node in nodes]
    except (LookupError, TypeError):
        return [node.get(key) if isinstance(node, dict) else None for node in nodes]


def value_at(result: Mapping[str, Any], dotted: str) -> Any:
    """The value at a dotted key of a result; None if there is none."""
    return Values([result]).at(dotted)[0]


def leaves(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The values in nested groups, with their dotted keys."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def keys_that_end_in(last: str, known: Iterable[str]) -> list[str]:
    """The dotted keys whose last part is `last`, in alphabetical order; it alone if it is itself one of them."""
    found = sorted({key for key in known if key.rpartition(".")[2] == last})
    return [last] if last in found else found
