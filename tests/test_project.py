"""The metadata, image and extras of the published project, and the message if its packages belong to another one."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
import yaml

from experiments.config.hydra_messages import OF_HYDRA
from experiments.failures.failure import Mistake
from experiments.failures.missing_extra import check_installed, install_line

ROOT = Path(__file__).resolve().parents[1]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
# no TOML reader comes with Python 3.10
OPTIONAL = PROJECT.split("[project.optional-dependencies]")[1].split("\n[project")[0]
EXTRAS = {
    name: re.findall(r'"([^"]+)"', line) for name, line in re.findall(r"^(\w+) = (\[.*\])$", OPTIONAL, re.MULTILINE)
}
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
# continued lines are one
INSTRUCTIONS = [
    line.split(None, 1)
    for line in re.sub(r"\\\n\s*", " ", DOCKERFILE).splitlines()
    if line.strip() and not line.startswith("#")
]


@pytest.mark.parametrize("name", ["attention", "experiments"])
@pytest.mark.parametrize("how", ["shadowed", "overwritten", "removed"])
def test_a_package_of_another_distribution_is_said_in_a_line(tmp_path, name, how):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for package in ("attention", "experiments"):
        (ours / package).mkdir(parents=True)
        shutil.copy(ROOT / package / "__init__.py", ours / package)
    shutil.copy(ROOT / "cli.py", ours)
    (theirs / name).mkdir(parents=True)
    if how == "shadowed":
        (theirs / name / "__init__.py").write_text("raise SystemExit('imported')")
    elif how == "overwritten":
        (ours / name / "__init__.py").write_text("raise SystemExit('imported')")
    else:
        (ours / name / "__init__.py").unlink()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(theirs), str(ours)])}
    done = subprocess.run([sys.executable, "-c", "import cli"], cwd=tmp_path, env=environment, capture_output=True)
    said = done.stderr.decode()
    assert done.returncode == 2 and said.count("\n") == 1
    assert f"the package {name!r}" in said and "another distribution" in said


@pytest.mark.parametrize(
    ("module", "entries", "code", "said"),
    [
        # what is needed first, and what is needed later
        ("typing", ".", 1, 1),
        ("datetime", ".", 1, 1),
        # an empty entry is not meant, so nothing is replaced
        ("typing", os.pathsep, 0, 0),
        ("unknown", ".", 0, 0),
    ],
)
def test_a_file_that_replaces_a_module_of_python_is_named(tmp_path, module, entries, code, said):
    (tmp_path / f"{module}.py").write_text("mine = 1\n")
    environment = os.environ | {"PYTHONPATH": entries}
    command = [sys.executable, str(ROOT / "cli.py"), "--version"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    line = f"attn: {(tmp_path / module).resolve()}.py is imported in place of the module {module!r} that attn needs"
    assert done.returncode == code and done.stderr.count("\n") == said
    assert done.stderr.startswith(line if said else "")


def test_a_missing_library_names_who_needs_it_and_the_line_that_installs_it(monkeypatch, tmp_path):
    with pytest.raises(Mistake, match=r'attn heads needs none_such\n  pip install -c constraints.txt -e "\.\[heads\]"'):
        check_installed("heads", "attn heads", "re", "none_such")
    with pytest.raises(Mistake, match=r"attn heads needs none_such\.part\n"):
        check_installed("heads", "attn heads", "none_such.part")
    monkeypatch.setattr("experiments.failures.missing_extra.CONSTRAINTS", tmp_path / "constraints.txt")
    assert install_line("heads") == 'pip install "attn[heads]"'


def test_the_extras_that_messages_name_are_there_and_in_all():
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "experiments").rglob("*.py")]
    calls = r'(?:check_installed|install_line)\(\s*"(\w+)"'
    named = {extra for text in sources for extra in re.findall(calls, text)}
    named |= {extra for of_option in OF_HYDRA.values() for extra in of_option.values() if extra}
    (everything,) = EXTRAS["all"]
    in_all = set(re.findall(r"\w+", everything)) - {"attn"}
    assert named == set(EXTRAS) - {"all", "test", "dev", "docs"}
    # trackio brings a web server, and holds other libraries back
    assert in_all == named - {"trackio"}


def script_of_constraints() -> dict[str, Any]:
    if sys.version_info < (3, 11):
        pytest.skip("the script needs Python 3.11")
    return runpy.run_path(str(ROOT / "scripts" / "renew_constraints.py"))


def test_every_requirement_has_a_tested_version():
    renew = script_of_constraints()
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {renew["name_of"](line) for line in lines if not line.startswith("#")}
    required = {renew["name_of"](each) for each in renew["requirements"]()}
    assert required - pinned == set()


def test_a_constraint_is_one_line_where_both_pythons_agree():
    constraint = script_of_constraints()["constraint"]
    resolved = {"3.10": {"a": "1", "b": "1", "t": "3"}, "3.11": {"a": "1", "b": "2", "c": "4", "t": "3"}}
    assert constraint("a", resolved, {}) == "a==1\n"
    assert constraint("b", resolved, {}) == 'b==2; python_version >= "3.11"\nb==1; python_version < "3.11"\n'
    assert constraint("c", resolved, {}) == 'c==4; python_version >= "3.11"\n'
    assert constraint("t", resolved, {"t": " platform_system"}) == "t==3; platform_system\n"
    assert constraint("gone", resolved, {}) == ""


def test_citation_changes_and_metadata_agree_on_the_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    (number,) = re.findall(r'^version = "(.+)"$', PROJECT, re.MULTILINE)
    assert citation["version"] == number and f"## {number}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert {"cff-version", "message", "title", "authors", "license"} <= set(citation)
    # the tests may run in a checkout that isn't installed
    with suppress(PackageNotFoundError):
        assert version("attn") == number


def test_the_image_copies_what_is_there_and_all_that_the_wheel_needs():
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    copied = [word for name, rest in INSTRUCTIONS if name == "COPY" for word in shlex.split(rest)[:-1]]
    assert all((ROOT / word).exists() and f"!{word}" in ignored for word in copied)
    assert {"attention", "conf", "experiments", "cli.py", "pyproject.toml", "README.md", "LICENSE"} <= set(copied)


def test_the_image_installs_extras_that_are_there_for_a_known_python_and_starts_the_command():
    known = {"FROM", "ARG", "RUN", "COPY", "WORKDIR", "ENV", "ENTRYPOINT", "CMD"}
    assert {name for name, _ in INSTRUCTIONS} <= known
    (base,) = (rest for name, rest in INSTRUCTIONS if name == "FROM")
    assert f"Python :: {base.split(':')[1].split('-')[0]}" in PROJECT
    shell = [rest for name, rest in INSTRUCTIONS if name == "RUN"]
    for line in shell:
        assert subprocess.run(["sh", "-n", "-c", line], capture_output=True).returncode == 0, line
    assert set(re.findall(r"\.\[(\w+)\]", " ".join(shell))) <= set(EXTRAS)
    (entry,) = (rest for name, rest in INSTRUCTIONS if name == "ENTRYPOINT")
    assert re.search(r"^attn = ", PROJECT, re.MULTILINE) and entry == '["attn"]'


@pytest.mark.parametrize(("torch", "code"), [("cpu", 0), ("cuda", 0), ("rocm", 1)])
def test_the_image_installs_the_build_of_torch_that_is_asked_for(tmp_path, torch, code):
    pip = tmp_path / "pip"
    pip.write_text('#!/bin/sh\necho "$@" >> calls\n')
    pip.chmod(0o700)
    (line,) = (rest for name, rest in INSTRUCTIONS if name == "RUN" and "pip install" in rest)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TORCH": torch}
    assert subprocess.run(["sh", "-c", line], cwd=tmp_path, env=environment, capture_output=True).returncode == code
    calls = (tmp_path / "calls").read_text().splitlines() if code == 0 else []
    assert len(calls) == {"cpu": 2, "cuda": 1, "rocm": 0}[torch]
    assert not calls or calls[-1].endswith("-c constraints.txt -e .[all]")
