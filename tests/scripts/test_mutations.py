"""scripts/mutations.py: its mutants change lines that exist."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_mutant_changes_one_place():
    spec = importlib.util.spec_from_file_location("mutations", ROOT / "scripts" / "mutations.py")
    assert spec is not None and spec.loader is not None
    mutations = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mutations)
    assert len(mutations.MUTATIONS) >= 20
    for each in mutations.MUTATIONS:
        assert (ROOT / each.file).read_text(encoding="utf-8").count(each.old) == 1, each
        assert (ROOT / "tests" / each.tests).is_file(), each
    assert mutations.table().count("\n") == len(mutations.MUTATIONS) + 2
