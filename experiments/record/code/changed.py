"""The code that a run was computed with, compared with the present one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.files.digest import digest
from experiments.record.code.digests import code_digests, differing
from experiments.record.folder import RunFolder
from experiments.record.result import Result


def changed_code(folder: RunFolder, settings: Mapping[str, Any], result: Result) -> str:
    """The files that have changed since a run was computed, `the code (a.py, b.py)`; empty if there are none.

    Raises LookupError if a file is missing that the settings name.
    """
    now = code_digests(settings, result.backend, trained=result.status != "imported")
    if result.code_digest == digest(now):
        return ""
    return differing((folder.environment() or {}).get("code", {}), now)
