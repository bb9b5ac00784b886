"""Files of a run folder and of the cache are cut, or get a flipped bit: commands give the same numbers, or refuse."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts.campaigns.harness import runs_in
from tests.launch.sweeps import instead


def damages(content: bytes, chance: random.Random, count: int) -> Iterator[tuple[str, bytes]]:
    """`count` damaged copies of the content: cuts and flipped bits in turn, at places all over it."""
    first = chance.randrange(2)
    for number in range(count):
        place = (number * len(content) + chance.randrange(len(content))) // count
        if (first + number) % 2:
            yield f"cut at {place}", content[:place]
        else:
            flipped = content[place] ^ (1 << chance.randrange(8))
            yield f"flipped at {place}", content[:place] + bytes([flipped]) + content[place + 1 :]


@pytest.fixture
def cut(nursery, training, tmp_path) -> Path:
    """A folder with a run that was killed after a third of its steps."""
    folder = tmp_path / "cut"
    folder.mkdir()
    child = nursery.start(*training, cwd=folder)
    while not list(folder.glob("runs/*/checkpoint/step-000000008.safetensors")):
        time.sleep(0.001)
    child.kill()
    child.wait()
    return folder


def each_damaged(
    source: Path, scratch: Path, chance: random.Random, count: int, check: Callable[[Path, Path, str], bool]
) -> str:
    """Damage every file below `source` in a copy, and count for which of them `check(copy, file, how)` is true."""
    tries = refused = 0
    for path in sorted(path for path in source.rglob("*") if path.is_file() and path.stat().st_size):
        for how, content in damages(path.read_bytes(), chance, count):
            shutil.rmtree(scratch, ignore_errors=True)
            shutil.copytree(source, scratch)
            damaged = scratch / path.relative_to(source)
            damaged.write_bytes(content)
            refused += check(scratch, damaged, f"{damaged.relative_to(scratch)} {how}")
            tries += 1
    return f"{tries} damages, {refused} refused, {tries - refused} mended or of no consequence"


def test_of_a_run_that_goes_on(nursery, training, cut, uncut, tmp_path, chance, tries, say):
    expected = runs_in(uncut)

    def check(folder, damaged, how):
        code, said = nursery.run(*training, cwd=folder)
        assert "Traceback" not in said, (how, said)
        if code == 0:
            assert runs_in(folder) == expected, how
        else:
            assert code in (1, 2) and (damaged.name in said or "digest" in said), (how, code, said)
        return code != 0

    say(each_damaged(cut, tmp_path / "damaged", chance, tries(1, 100), check))


def test_of_a_finished_run(nursery, training, uncut, tmp_path, chance, tries, say):
    """`attn compare` shows none of its numbers; `attn evaluate` scores an intact checkpoint or none."""
    (name,) = (path.name for path in (uncut / "runs").iterdir())
    code, shown = nursery.run("compare", "--format", "csv", cwd=uncut)
    _, scored = nursery.run("evaluate", name, "--format", "csv", cwd=uncut)
    assert code == 0

    def check(folder, damaged, how):
        code, said = nursery.run("compare", "--format", "csv", cwd=folder)
        assert "Traceback" not in said and code in (0, 2), (how, said)
        marked = said != shown
        assert not marked or "changed: " in said or code == 2, (how, said)
        code, said = nursery.run("evaluate", name, "--format", "csv", cwd=folder)
        assert "Traceback" not in said and code in (0, 1, 2), (how, said)
        assert code or said.endswith(scored.splitlines()[-1] + "\n"), (how, said)
        return marked or code != 0

    say(each_damaged(uncut, tmp_path / "damaged", chance, tries(1, 100), check))


def test_of_the_cache(nursery, training, compiler, tmp_path, chance, tries, say):
    """A damaged file is made again, or the damage has no effect, so the run is the same."""
    cache, first = tmp_path / "cache", tmp_path / "first"
    words = [training[0], *instead(["max_steps=4"], training[1:])]
    code, said = nursery.run(*words, f"cache={cache}", f"runs={first}", cwd=tmp_path, CXX=str(compiler))
    assert code == 0, said
    expected = runs_in(first)

    def check(folder, damaged, how):
        code, said = nursery.run(*words, f"cache={folder}", cwd=tmp_path, CXX=str(compiler))
        assert code == 0 and "Traceback" not in said, (how, said)
        assert runs_in(tmp_path / "runs") == expected, how
        shutil.rmtree(tmp_path / "runs")
        return False

    say(each_damaged(cache, tmp_path / "damaged", chance, tries(1, 100), check))
