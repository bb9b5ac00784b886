"""The expressions of `conf/`, such as `${times:4,${hidden_size}}`, in words that a person understands."""

from __future__ import annotations

import re

# the functions of resolvers.py
WORDS = {
    "floor_divide": "{} // {}",
    "times": "{} * {}",
    "minus": "{} - {}",
    "smaller": "the smaller of {} and {}",
    "cache_folder": "ATTN_CACHE, else ~/.cache/attn",
    "interpreter": "that of the running Python",
}
MISSING = "must be given"
REFERENCE = re.compile(r"\$\{([\w.]+)\}")
# a reference, or a function whose arguments contain no expression
INNERMOST = re.compile(r"\$\{(?:([\w.]+):)?([^${}]*)\}")


def in_words(text: str) -> str:
    """`${heads}` as "as heads", and `${times:4,${hidden_size}}` as "4 * hidden_size".

    An expression with a function that this file does not know, or with too few arguments, stays as it is.
    """
    if reference := REFERENCE.fullmatch(text):
        return f"as {_setting(reference[1])}"
    replaced = INNERMOST.sub(_expression, text)
    return replaced if replaced == text else in_words(replaced)


def lines_in_words(text: str) -> str:
    """YAML in which the values that are expressions, or missing, are replaced by words."""
    given = re.sub(r"(?<=: )\?\?\?$", MISSING, text, flags=re.MULTILINE)
    return re.sub(r"(?<=: )\$\{.*\}$", lambda match: in_words(match[0]), given, flags=re.MULTILINE)


def _expression(match: re.Match[str]) -> str:
    function, inner = match[1], match[2]
    if function is None:
        return _setting(inner)
    # an argument of several words is a replaced expression
    arguments = [f"({each})" if " " in each else each for each in inner.split(",")]
    words = WORDS.get(function)
    # one with too few arguments is refused when the settings are composed
    return match[0] if words is None or words.count("{}") > len(arguments) else words.format(*arguments)


def _setting(name: str) -> str:
    # ${.rotary_base} is a setting of the same group
    return name.lstrip(".")
