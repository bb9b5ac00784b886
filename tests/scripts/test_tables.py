"""scripts/tables.sh makes the pages of docs/results again."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "tables.sh"


def commands(folder: Path, *words: str) -> list[str]:
    """The commands of `attn` that the script would run."""
    recorder = folder / "attn"
    recorder.write_text('#!/bin/sh\necho "attn $@"\n')
    recorder.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", SCRIPT, *words], env=os.environ | {"PATH": path}, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_every_page_is_made_by_its_own_command(tmp_path):
    pages = sorted((ROOT / "docs" / "results").glob("*.json"))
    assert len(pages) > 10
    made = commands(tmp_path)
    assert len(made) == len(pages)
    for page in pages:
        text = page.with_suffix(".md").read_text()
        assert any(f"```bash\n{line.removesuffix(' --out results')}\n```" in text for line in made), page


def test_the_seeds_of_a_page_with_a_plan_are_planned(tmp_path):
    of_text = "data=parquet data.documents=article data.train=train.parquet data.validation=validation.parquet"
    planned = commands(tmp_path, "--plan")
    assert f"attn table su2020/key_size --budget nano --claim C3 --seeds 10-21 {of_text} --plan 12" in planned
    assert "attn table xiong2020/gradients --budget nano --seeds 0-11 --plan 12" in planned
    assert not any("shazeer2020/heads" in line for line in planned), "its seeds had no plan"
    # of one page
    assert commands(tmp_path, "--plan", "lan2020_sharing-X5-40-44") == [
        f"attn table lan2020/sharing --budget nano --claim X5 --seeds 40-44 {of_text} --plan 5"
    ]
