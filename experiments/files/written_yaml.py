"""YAML files that people write: plain values, or a mistake that names the file and the line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from experiments.failures.failure import Mistake


def read_yaml(path: Path, name: str) -> Any:
    """The value of a file in UTF-8. name: the file in messages. Raises Mistake."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeyLoader)
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        wrong = f"the byte {error.object[error.start]:#04x} is not UTF-8; save the file in this encoding"
        raise Mistake(f"{name}: line {line}: {wrong}") from error
    except yaml.YAMLError as error:
        raise Mistake(f"{name}: {_fault(error)}") from error


def _fault(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return f"line {error.problem_mark.line + 1}: {', '.join(filter(None, (error.context, error.problem)))}"
    return " ".join(str(error).split())


class _UniqueKeyLoader(yaml.SafeLoader):
    """Refuses a mapping with two equal keys, as Hydra does."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            # a key that is itself a collection cannot be read anyway
            if str(key.value) in seen:
                problem = f"the key {key.value} is given twice"
                raise yaml.constructor.ConstructorError(problem=problem, problem_mark=key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)
