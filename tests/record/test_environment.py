from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from experiments.record import environment
from experiments.record.environment import since_last_start


def test_what_has_changed_since_the_last_start_is_named_and_nothing_else():
    def facts(python: str, machine: dict[str, str], **packages: str) -> dict[str, object]:
        return {"python": python, "packages": packages, "torch": {"device": "EPYC", **machine}, "variables": {}}

    wide = facts("3.11", {"instructions": "AVX512"}, torch="2.9", numpy="2.1", tokenizers="0.21", wandb="1")
    assert since_last_start(wide, wide | {"host": "another"}) == ""
    assert since_last_start(facts("3.11", {}, torch="2.9"), wide) == "", "what was not recorded has not changed"
    since, rounded = "since the last start this has changed", ", so sums may be rounded differently"
    narrowed = wide | {"variables": {"ONEDNN_MAX_CPU_ISA": "SSE41", "OMP_NUM_THREADS": "2"}}
    line = f"{since}{rounded}: no ONEDNN_MAX_CPU_ISA -> ONEDNN_MAX_CPU_ISA=SSE41"
    assert since_last_start(wide, narrowed) == line
    other = facts(
        "3.11", {"instructions": "AVX2", "device": "Xeon"}, torch="2.10", numpy="2.1", tokenizers="0.21", wandb="2"
    )
    assert since_last_start(wide, other) == f"{since}{rounded}: torch 2.9 -> torch 2.10, EPYC -> Xeon, AVX512 -> AVX2"
    newer = facts("3.12", {"instructions": "AVX512"}, torch="2.9", numpy="2.2", tokenizers="0.22", wandb="1")
    changes = "Python 3.11 -> Python 3.12, numpy 2.1 -> numpy 2.2, tokenizers 0.21 -> tokenizers 0.22"
    assert since_last_start(wide, newer) == f"{since}: {changes}"


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_commit_of_the_checkout_is_recorded_and_whether_it_was_modified(tmp_path, monkeypatch):
    def git(*words: str) -> str:
        who = ("-c", "user.name=me", "-c", "user.email=me@example.org", "-c", "commit.gpgsign=false")
        return subprocess.run(
            ["git", "-C", tmp_path, *who, *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    def recorded() -> object:
        return environment.describe({}, seed=0, backend=None)["git"]

    # a process looks once
    monkeypatch.setattr(environment, "checkout", environment.checkout.__wrapped__)
    file = tmp_path / "environment.py"
    monkeypatch.setattr(environment, "__file__", str(file))
    file.write_text("a = 1")
    git("init")
    assert recorded() is None, "the file is not tracked"
    git("add", "environment.py")
    git("commit", "-m", "first")
    commit = git("rev-parse", "HEAD")
    assert recorded() == {"commit": commit, "modified": False}
    # git would otherwise lock its index and write this time into it, while the user may be committing
    os.utime(file, (1, 1))
    index = (tmp_path / ".git" / "index").read_bytes()
    assert recorded() == {"commit": commit, "modified": False}
    assert (tmp_path / ".git" / "index").read_bytes() == index
    file.write_text("a = 2")
    assert recorded() == {"commit": commit, "modified": True}
