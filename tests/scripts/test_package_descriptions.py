from __future__ import annotations

import bz2
import lzma
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "package_descriptions.py"

ENGLISH = """Package: a
Description-md5: 0a
Description-en: an editor
 It edits. Texts
 of any size.
 .
 Features:
  - fast
  - small, as it
    has to be

Package: b
Description-md5: 0b
Description-en: two paragraphs
 One.
 .
 Two.

Package: c
Description-md5: 0c
Description-en: an editor
 Another one.
"""

GERMAN = """Package: c
Description-md5: 0c
Description-de: ein Editor
 Ein anderer.

Package: a
Description-md5: 0a
Description-de: ein Texteditor
 Er bearbeitet Texte jeder
 Länge.
 .
 Eigenschaften:
  - schnell
  - klein, wie es sein muss

Package: b
Description-md5: 0b
Description-de: zwei Absätze
 Eins und zwei.

Package: d
Description-md5: 0d
Description-de: nicht im Englischen
"""


def test_descriptions_become_pairs_where_their_paragraphs_agree(tmp_path):
    with lzma.open(tmp_path / "en.xz", "wt", encoding="utf-8") as file:
        file.write(ENGLISH)
    with bz2.open(tmp_path / "de.bz2", "wt", encoding="utf-8") as file:
        file.write(GERMAN)
    command = [sys.executable, str(SCRIPT), "en.xz", "de.bz2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", check=True)
    assert [tuple(line.split("\t")) for line in done.stdout.splitlines()] == [
        ("an editor", "ein Editor"),  # once, though two packages have it
        ("Another one.", "Ein anderer."),
        ("It edits. Texts of any size.", "Er bearbeitet Texte jeder Länge."),
        ("Features:", "Eigenschaften:"),
        ("- fast", "- schnell"),
        ("- small, as it has to be", "- klein, wie es sein muss"),
        ("two paragraphs", "zwei Absätze"),
    ]
    refused = subprocess.run([sys.executable, str(SCRIPT), "en.xz"], capture_output=True, encoding="utf-8")
    assert refused.returncode == 1 and "Translation-de.bz2 > pairs.tsv" in refused.stderr
