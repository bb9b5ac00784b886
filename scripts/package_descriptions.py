"""Print sentence pairs for `data=pairs`, from Debian's package descriptions in English and in another language.

    python scripts/package_descriptions.py Translation-en.xz Translation-de.bz2 > pairs.tsv

The two files are in the folder `main/i18n` of a release on any Debian mirror, such as `dists/bookworm/main/i18n`. The
short lines of a description form a pair. Its paragraphs form pairs if both languages have the same number of them. No
English text occurs twice.
"""

from __future__ import annotations

import bz2
import lzma
import re
import sys
from collections.abc import Iterator
from pathlib import Path

OPENERS = {".bz2": bz2.open, ".xz": lzma.open}


def descriptions(path: Path) -> dict[str, list[str]]:
    """The paragraphs of each description, by the MD5 sum of the English description."""
    with OPENERS[path.suffix](path, "rt", encoding="utf-8") as file:
        stanzas = file.read().split("\n\n")
    found = {}
    for stanza in stanzas:
        if match := re.search(r"^Description-md5: (\w+)\nDescription-\w+: (.*)", stanza, re.MULTILINE | re.DOTALL):
            found[match[1]] = paragraphs(match[2])
    return found


def paragraphs(description: str) -> list[str]:
    """The short line of a description, its paragraphs and the items of its lists, each without line breaks.

    In Debian's format a line ` .` separates paragraphs, and a line that begins with two blanks is kept as it is.
    """
    short, *lines = description.split("\n")
    found, current = [short], ""
    for line in lines:
        if line == " ." or re.match(r" +[-*+] ", line):
            found.append(current)
            current = ""
        if line != " .":
            current += " " + line.strip()
    return [" ".join(text.split()) for text in [*found, current] if text.strip()]


def pairs(english: dict[str, list[str]], other: dict[str, list[str]]) -> Iterator[tuple[str, str]]:
    """The pairs, in the order of the other language's file."""
    seen = set()
    for key, translated in other.items():
        original = english.get(key, [])
        # the short lines always belong together
        aligned = len(original) if len(original) == len(translated) else 1
        for source, target in zip(original[:aligned], translated, strict=False):
            if source not in seen and source != target:
                seen.add(source)
                yield source, target


if __name__ == "__main__":
    if len(sys.argv) != 3 or any(Path(name).suffix not in OPENERS for name in sys.argv[1:]):
        sys.exit(__doc__)
    for source, target in pairs(*(descriptions(Path(name)) for name in sys.argv[1:])):
        print(source, target, sep="\t")
