"""What code a run computed with, as a digest: a run of other code is another run."""

from __future__ import annotations

import ast
import hashlib
from typing import Any

from experiments.settings.variant import attention_folder, module_of


def source_digest(variant: dict[str, Any]) -> str:
    """Hex SHA-256 of the code that a variant group is about, comments and layout apart."""
    source = (attention_folder() / f"{module_of(variant)}.py").read_text(encoding="utf-8")
    return hashlib.sha256(ast.dump(ast.parse(source)).encode()).hexdigest()
