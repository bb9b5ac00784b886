"""The run folders that a word names."""

from __future__ import annotations

from pathlib import Path

from experiments.settings.mistake import Mistake, nearest


def find_runs(name: str, runs: Path) -> list[Path]:
    """The run folders that a word names: one by its path or its name, else all that begin so. Raises Mistake."""
    path = Path(name)
    if exact := [folder for folder in (path, runs / path) if _is_run(folder)]:
        return exact[:1]
    folder = path.parent if len(path.parts) > 1 else runs
    found = sorted(filter(_is_run, folder.glob(f"{path.name.rstrip('*')}*")))
    if not found:
        known = [each.name for each in folder.glob("*") if _is_run(each)]
        hint = "`attn compare` lists the finished ones"
        raise Mistake(f"there is no run {name!r} in {folder}/" + nearest(path.name, known), hint)
    return found


def find_run(name: str, runs: Path) -> Path:
    """The one run folder that a word names. Raises Mistake when there are several."""
    found = find_runs(name, runs)
    if len(found) > 1:
        hint = "name one: " + ", ".join(path.name for path in found[:5])
        raise Mistake(f"{name!r} is the start of {len(found)} runs", hint)
    return found[0]


def _is_run(folder: Path) -> bool:
    return (folder / "config.yaml").is_file()
