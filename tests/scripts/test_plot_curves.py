"""scripts/plot_curves.py: a line for every finished run."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "plot_curves.py"


def test_a_run_that_diverged_has_no_line(tmp_path):
    for name, status, lines in (("a", "done", [{"step": 1, "tokens": 10, "validation_loss": 5.0}]), ("b", "nan", [])):
        run = tmp_path / "runs" / name
        run.mkdir(parents=True)
        config = {"variant": {"name": "multi_head"}, "heads": 24 if name == "a" else 6}
        result = {"status": status, "unigram_loss": None, "config": config}
        (run / "result.json").write_text(json.dumps(result))
        (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    picture = tmp_path / "curves.svg"
    runpy.run_path(str(SCRIPT))["main"](tmp_path / "runs", picture)
    drawn = picture.read_text()
    assert "multi head, 24 heads" in drawn and "multi head, 6 heads" not in drawn
