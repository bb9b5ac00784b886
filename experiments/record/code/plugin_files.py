"""A check that the files which the user added to the project for a run are in use again, and unchanged."""

from __future__ import annotations

from experiments.failures.failure import Mistake
from experiments.files.project import ROOT
from experiments.record.code.digests import added_digests
from experiments.record.folder import RunFolder
from experiments.settings.plugins import REGISTRIES


def check_plugins(folder: RunFolder) -> None:
    """Raises Mistake if a run computes with a file of plugins that is not in use, or that has changed."""
    if lacking := lacking_plugin(folder):
        raise Mistake(f"{folder.name}: {lacking}", "give the plugins=FOLDER that it was made with, unchanged")


def lacking_plugin(folder: RunFolder) -> str:
    """The first file of plugins that a run computes with and that is not in use, or has changed, and its folder.

    Empty if there is none.
    """
    facts = folder.environment() or {}
    if facts.get("plugins") == []:
        # a file that the project no longer has was its own
        return ""
    code, now = facts.get("code"), added_digests()
    for name, digest in code.items() if isinstance(code, dict) else ():
        if name.endswith(".py") and now.get(name) != digest and not (ROOT / name).is_file():
            where = " and ".join(map(str, facts.get("plugins") or ["FOLDER"]))
            missing = "is added by" if name.startswith(REGISTRIES) else "is imported by"
            return f"{name} {'has changed since the run, which had' if name in now else missing} plugins={where}"
    return ""
