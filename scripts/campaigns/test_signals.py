"""Signals at random moments of a command: it says so in a line, ends with the right code and cleans up."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from scripts.campaigns.harness import left_in, live

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
# two rows
TABLE = ("table", "shazeer2020/dynamic", "--claim", "dynamic", "--dry-run", "--seeds", "1", "layers=1", "length=16")


@pytest.mark.parametrize("command", ["evaluate", "finetune", "table", "train", "heads", "export", "compare"])
def test_a_signal(nursery, words, pretrained, training, tmp_path, chance, tries, say, command):
    """The command leaves no partial files and no temporary files."""
    asked = {
        "evaluate": ["evaluate", str(pretrained)],
        "finetune": ["finetune", *words("sst2", "max_steps=60", "epochs=null", "runs=runs")],
        "table": [*TABLE, "data=text", f"data.train={pretrained.parents[1] / 'text.txt'}"],
        "train": training,
        "heads": ["heads", str(pretrained), "--sequences", "4"],
        "export": ["export", str(pretrained), "there", "--format", "transformers-custom"],
        "compare": ["compare", "--runs", str(pretrained.parent)],
    }[command]
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    code, said = nursery.run(*asked, cwd=undisturbed, ATTN_CACHE=str(undisturbed / "cache"))
    assert code == 0, said
    ends: dict[int, int] = {}
    for number in range(tries(1, 20)):
        folder = tmp_path / f"try{number}"
        temporary = folder / "temporary"
        temporary.mkdir(parents=True)
        child = nursery.start(*asked, cwd=folder, TMPDIR=str(temporary), ATTN_CACHE=str(folder / "cache"))
        live(chance.uniform(0.2, 3), child)
        sent = chance.choice([*CODES])
        child.kill(sent)
        code = child.wait()
        ends[code] = ends.get(code, 0) + 1
        assert "Traceback" not in child.output, child.output
        # without its handlers a process ends as any other does; it may also have ended before the signal
        assert code in (0, CODES[sent], -sent), (code, child.output)
        assert code != CODES[sent] or f"interrupted by {sent.name}" in child.output.splitlines()[-1], child.output
        check_left(folder, temporary)
    say(", ".join(f"{count} ended with {code}" for code, count in sorted(ends.items())))


def check_left(folder: Path, temporary: Path) -> None:
    """Check that a command has left no partial and no temporary files."""
    # torch keeps the files of its compiler for the next time
    assert not [name for name in left_in(temporary) if not name.startswith("torchinductor")]
    assert not [name for name in left_in(folder) if ".partial" in name or "building-" in name]
