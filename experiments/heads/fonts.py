"""Fonts for tokens of any script: matplotlib draws a box for a character that none of a text's fonts has."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from matplotlib import rcParams
from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font


def fonts_for(texts: Iterable[str]) -> list[str]:
    """Names of fonts for these texts: the default font, and fonts of this machine for the characters that it lacks."""
    return _chosen(frozenset("".join(texts)))[0]


def undrawable(texts: Iterable[str]) -> str:
    """The characters of these texts that no font of this machine has."""
    return "".join(sorted(_chosen(frozenset("".join(texts)))[1]))


@functools.cache
def _chosen(characters: frozenset[str]) -> tuple[list[str], frozenset[str]]:
    """The fonts, where each next one has most of the characters that are still lacking; and what none has."""
    names, lacking = list(rcParams["font.family"]), characters - _characters(findfont(FontProperties()))
    # matplotlib's font of last resort has a box for every character
    files = {
        each.name: each.fname
        for each in fontManager.ttflist
        if (each.style, each.weight) == ("normal", 400) and not each.name.startswith("Last Resort")
    }
    while lacking and (best := max(files, key=lambda name: len(lacking & _characters(files[name])))):
        if not (found := lacking & _characters(files[best])):
            break
        names.append(best)
        lacking -= found
    return names, lacking


@functools.cache
def _characters(file: str) -> frozenset[str]:
    return frozenset(map(chr, get_font(file).get_charmap()))
