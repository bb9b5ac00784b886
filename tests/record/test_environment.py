from __future__ import annotations

import shutil
import subprocess

import pytest

from experiments.record import environment
from experiments.record.environment import rounds_differently


def test_what_rounds_sums_differently_is_named_and_nothing_else():
    def facts(version: str, **torch: str) -> dict[str, object]:
        return {"packages": {"torch": version, "wandb": "1"}, "torch": {"device": "EPYC", **torch}, "variables": {}}

    wide = facts("2.9", instructions="AVX512")
    assert rounds_differently(wide, wide | {"host": "another"}) == ""
    assert rounds_differently(facts("2.9"), wide) == ""
    narrowed = wide | {"variables": {"ONEDNN_MAX_CPU_ISA": "SSE41", "OMP_NUM_THREADS": "2"}}
    assert rounds_differently(wide, narrowed) == "no ONEDNN_MAX_CPU_ISA -> ONEDNN_MAX_CPU_ISA=SSE41"
    other = facts("2.10", instructions="AVX2", device="Xeon")
    assert rounds_differently(wide, other) == "torch 2.9 -> torch 2.10, EPYC -> Xeon, AVX512 -> AVX2"


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_commit_of_the_checkout_is_recorded_and_whether_it_was_modified(tmp_path, monkeypatch):
    def git(*words: str) -> str:
        who = ("-c", "user.name=me", "-c", "user.email=me@example.org", "-c", "commit.gpgsign=false")
        return subprocess.run(
            ["git", "-C", tmp_path, *who, *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    file = tmp_path / "environment.py"
    monkeypatch.setattr(environment, "__file__", str(file))
    file.write_text("a = 1")
    git("init")
    assert environment.describe({}, seed=0, backend=None)["git"] is None, "the file is not tracked"
    git("add", "environment.py")
    git("commit", "-m", "first")
    commit = git("rev-parse", "HEAD")
    assert environment.describe({}, seed=0, backend=None)["git"] == {"commit": commit, "modified": False}
    file.write_text("a = 2")
    assert environment.describe({}, seed=0, backend=None)["git"] == {"commit": commit, "modified": True}
