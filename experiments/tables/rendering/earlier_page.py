"""The page that a folder already has of a table: only the same settings may replace it."""

from __future__ import annotations

import shlex
from pathlib import Path

from experiments.failures.failure import Mistake
from experiments.files.disk import read_bytes
from experiments.record.durable import disk_errors_as_failures
from experiments.record.folder import LOCATION_KEYS
from experiments.tables.definition.overrides import key_of
from experiments.tables.definition.request import Request

COMMAND = "attn table "  # how the last command of a page begins


def check_earlier_page(request: Request, folder: Path) -> None:
    """Raises Mistake if the folder's page of this table was made with other settings than those of the request.

    The command on the page says with which. More or other seeds of the same settings may replace it.
    """
    page = folder / f"{request.result_stem}.md"
    if not page.is_file():
        return
    with disk_errors_as_failures(page):
        lines = read_bytes(page).decode(errors="replace").splitlines()
    earlier = _settings(next((line for line in reversed(lines) if line.startswith(COMMAND)), ""))
    if set(earlier) != set(_settings(request.command())):
        made = f"with {shlex.join(earlier)}" if earlier else "without overrides"
        raise Mistake(f"--out {folder}: {page.name} there was made {made}", "name another folder for other settings")


def _settings(command: str) -> list[str]:
    """The overrides of a command that can change a result."""
    overrides = [word for word in shlex.split(command) if "=" in word]
    return [override for override in overrides if key_of(override).partition(".")[0] not in LOCATION_KEYS]
