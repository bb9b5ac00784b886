"""The extras of `pyproject.toml`: libraries that only some commands need, and how to install them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from experiments.failures.failure import Mistake

CONSTRAINTS = Path(__file__).resolve().parents[2] / "constraints.txt"


class MissingExtra(Mistake):
    """A library of an extra is not installed."""


def check_installed(extra: str, purpose: str, *libraries: str) -> None:
    """Raises MissingExtra, with the command to install the extra, if one of its libraries is missing.

    purpose: the part that needs them, as the subject of the message: `attn heads`. Imports none of them.
    """
    if missing := [library for library in libraries if not _is_there(library)]:
        raise MissingExtra(f"{purpose} needs {', '.join(missing)}", install_line(extra))


def _is_there(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except ModuleNotFoundError:
        # not even the package that it would be a part of
        return False


def install_line(extra: str) -> str:
    """The command that installs an extra: in a checkout with the tested versions, else by name."""
    is_checkout = CONSTRAINTS.is_file()
    return f'pip install -c constraints.txt -e ".[{extra}]"' if is_checkout else f'pip install "attn[{extra}]"'
