"""Fixtures of the campaigns: processes that start at once, and a training that takes a second."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.campaigns.nursery import Nursery
from tests.launch.sweeps import instead

# a failed comparison there shows what differs, as it does in a test
pytest.register_assert_rewrite("scripts.campaigns.harness")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder as a campaign."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker("campaign")


@pytest.fixture(scope="session")
def nursery(environment: dict[str, str]) -> Iterator[Nursery]:
    """A nursery with the environment of the tests, for all campaigns of a process."""
    with Nursery(environment) as nursery:
        yield nursery


@pytest.fixture(scope="session")
def spoiled(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    """A nursery whose children can have a disk that is full, or a file system without locks."""
    if not (compiler := shutil.which("cc")):
        pytest.skip("there is no compiler")
    shim = tmp_path_factory.mktemp("shim") / "shim.so"
    source = Path(__file__).with_name("shim.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", shim, source, "-ldl"], check=True)
    with Nursery(environment, shim) as nursery:
        yield nursery


@pytest.fixture(scope="session")
def training(tiny: list[str], nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The words of a training of 24 steps. Its text is in the cache."""
    words = ["train", *instead(["max_steps=24"], tiny)]
    code, said = nursery.run(*words, cwd=tmp_path_factory.mktemp("warm"))
    assert code == 0, said
    return words


@pytest.fixture(scope="session")
def undisturbed(nursery: Nursery, training: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """A folder with the run of such a training, not to be changed, and the seconds that the training took."""
    folder = tmp_path_factory.mktemp("undisturbed")
    begun = time.monotonic()
    code, said = nursery.run(*training, cwd=folder)
    assert code == 0, said
    return folder, time.monotonic() - begun


@pytest.fixture
def uncut(undisturbed: tuple[Path, float], tmp_path: Path) -> Path:
    """A copy of that folder."""
    return shutil.copytree(undisturbed[0], tmp_path / "uncut")


@pytest.fixture
def compiler(kernels: Path, tmp_path: Path) -> Path:
    """A stand-in for the compiler of the kernel. It writes a part at once, and all of it after a third of a second."""
    # libraries of earlier sources may exist, too
    library = max(kernels.rglob("*.so"), key=lambda path: path.stat().st_mtime, default=None)
    if library is None:
        pytest.skip("there is no compiler")
    compiler = tmp_path / "compiler"
    place = 'for word; do [ "$last" = -o ] && out=$word; last=$word; done'
    asked = 'case "$*" in *-dM*) exec g++ "$@";; esac'
    compiler.write_text(f"#!/bin/sh\n{asked}\n{place}\nhead -c 9999 {library} > $out\nsleep 0.3\ncp {library} $out\n")
    compiler.chmod(0o755)
    return compiler


@pytest.fixture(scope="session")
def bert(nursery: Nursery, training: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run that a format of Hugging Face can express, and the folder of its export."""
    folder = tmp_path_factory.mktemp("bert")
    own = ("norm=post", "position=learned", "head_transform=true", "token_types=2")
    made = ("train", *training[1:], own[0], *(f"model.{each}" for each in own[1:]))
    code, said = nursery.run(*made, cwd=folder)
    assert code == 0, said
    (run,) = folder.glob("runs/multi_head-*")
    code, said = nursery.run("export", str(run), "there", cwd=folder)
    assert code == 0, said
    return run, folder / "there"
