"""The attention mechanisms, one file each. The package needs torch and nothing else.

from attention import build

layer = build("talking_heads", hidden_size=512, heads=8)
y = layer(x)  # [B, N, 512] -> [B, N, 512]
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attention.layers.attention_layer import AttentionLayer

__all__ = ["build", "files", "mechanisms", "source_files"]


def mechanisms() -> list[str]:
    """The names that `build` knows."""
    return sorted(files())


def files() -> dict[str, Path]:
    """The file of each mechanism, by its name: the source files that define a class `Attention`."""
    is_there = re.compile(r"^class Attention\b", re.MULTILINE)
    return {name: path for name, path in source_files().items() if is_there.search(path.read_text(encoding="utf-8"))}


def source_files() -> dict[str, Path]:
    """The Python files of this folder, and of the folders that add mechanisms, by name."""
    return {path.stem: path for folder in __path__ for path in Path(folder).glob("*.py")}


def build(name: str, hidden_size: int, heads: int, **arguments: Any) -> AttentionLayer:
    """Build a layer of the mechanism in `NAME.py`, for sequences [B, N, hidden_size].

    arguments: further arguments of its constructor; their defaults are those of `conf/variant/NAME.yaml`. If a
    mechanism has several kinds of heads, it gets `heads` of each. Raises ValueError for an unknown name and for
    arguments that don't go together, and TypeError for an argument that the constructor doesn't have.
    """
    if name not in mechanisms():
        raise ValueError(f"name: is {name!r}, must be one of {', '.join(mechanisms())}")
    layer: AttentionLayer = import_module(f"attention.{name}").Attention(hidden_size, heads, **arguments)
    return layer
