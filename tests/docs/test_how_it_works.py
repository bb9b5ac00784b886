"""docs/how_it_works.md names only files that exist, and its picture shows the present packages."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how_it_works.md"


def test_every_file_and_definition_that_the_page_names_is_there():
    named = re.findall(r"`((?:\w+/)*\w+\.py)(?::(\w+))?`", PAGE.read_text(encoding="utf-8"))
    assert len(named) > 15
    for place, name in named:
        defined = {getattr(node, "name", "") for node in ast.parse((ROOT / place).read_text(encoding="utf-8")).body}
        assert not name or name in defined, f"{place}:{name}"


def test_the_picture_is_that_of_the_rooms_as_they_are():
    drawing = runpy.run_path(str(ROOT / "scripts" / "draw_rooms.py"))["drawing"]
    assert (ROOT / "docs" / "rooms.svg").read_text(encoding="utf-8") == drawing()
