"""Renew the tested versions: python scripts/renew_constraints.py [constraints.txt]

The script asks pip for the newest versions that fit all extras together, on Python 3.10 and on 3.11. It writes them for
the packages that the file or pyproject.toml names, and installs nothing. It needs pip, and Python 3.11 or newer. Run
the tests with the new file before you commit it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parents[1]
HEAD = (
    "# The versions that were tested together. Commands of the README install with them: "
    "`pip install -c constraints.txt ...`\n"
)
# Hydra's parser has no wheel, but pip resolves for another Python only from wheels, so its wheel is built first
SOURCE_ONLY = "antlr4-python3-runtime==4.9.*"
OLDEST, NEWER = "3.10", "3.11"
# the name of a distribution at the start of a requirement
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def main(path: Path) -> None:
    """Replace the versions in the file by those that pip resolves on both Pythons."""
    lines = path.read_text(encoding="utf-8").splitlines()
    required = requirements()
    resolved = {python: newest(required, python) for python in (OLDEST, NEWER)}
    kept = [name_of(line) for line in lines if line and not line.startswith("#")]
    names = dict.fromkeys([*kept, *map(name_of, required)])
    markers = {name_of(line): line.partition(";")[2] for line in lines if "platform_system" in line}
    path.write_text(HEAD + "".join(constraint(name, resolved, markers) for name in names), encoding="utf-8")


def requirements() -> list[str]:
    """The requirements in pyproject.toml, including those of the extras, without the names of other extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    return sorted({each for group in groups for each in group if name_of(each) != project["name"]})


def name_of(requirement: str) -> str:
    """The name at the start of a requirement or a constraint, as pip compares it."""
    match = NAME.match(requirement)
    assert match, requirement
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def newest(required: list[str], python: str) -> dict[str, str]:
    """The versions that pip would install into an empty environment of this Python."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        pip = [sys.executable, "-m", "pip"]
        subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, SOURCE_ONLY], check=True)
        options = ["--dry-run", "--ignore-installed", "--only-binary=:all:", "--find-links", folder, "--quiet"]
        target = ["--python-version", python, "--target", folder, "--report", str(report)]
        subprocess.run([*pip, "install", *options, *target, *required], check=True)
        installed = json.loads(report.read_text(encoding="utf-8"))["install"]
    return {name_of(each["metadata"]["name"]): each["metadata"]["version"].split("+")[0] for each in installed}


def constraint(name: str, resolved: dict[str, dict[str, str]], markers: dict[str, str]) -> str:
    """The lines of a package: one if both Pythons have the same version, and none if nothing needs the package."""
    old, new = (resolved[python].get(name) for python in (OLDEST, NEWER))
    marker = f";{markers[name]}" if name in markers else ""
    if old == new or marker:
        return f"{name}=={new}{marker}\n" if new else ""
    versions = ((new, f'python_version >= "{NEWER}"'), (old, f'python_version < "{NEWER}"'))
    return "".join(f"{name}=={version}; {where}\n" for version, where in versions if version)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "constraints.txt")
