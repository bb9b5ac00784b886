"""scripts/archive_runs.py: a table's ended runs go to another machine without their weights."""

from __future__ import annotations

import re
import runpy
import tarfile
from pathlib import Path

from experiments.files.durable import read_sealed
from experiments.tables import step_times
from tests.fixtures.tables import NAME

SCRIPT = Path(__file__).parents[2] / "scripts" / "archive_runs.py"


def test_a_table_goes_on_from_an_archive(attn, short, tmp_path, heads_table, monkeypatch):
    monkeypatch.setattr(step_times, "measure", lambda *_: step_times.NOT_MEASURED)
    archive = runpy.run_path(str(SCRIPT))["main"]
    short = [*(word for word in short if not word.startswith("max_steps")), "max_steps=4"]
    assert attn("table", NAME, "--plan", "2", *short).returncode == 0
    table = ["table", NAME, "--seeds", "0-1", "--format", "markdown", *short]
    shown = attn(*table)
    assert shown.returncode == 0 and "planned on" in shown.stdout, shown.output
    (cut,) = tmp_path.glob("runs/*-h32-*-s1-*")
    (cut / "result.json").unlink()

    archive(tmp_path / "runs", tmp_path / "archives" / "one.tar.xz")
    archive(tmp_path / "runs", tmp_path / "archives" / "two.tar.xz")
    one, two = sorted((tmp_path / "archives").iterdir())
    assert one.read_bytes() == two.read_bytes()
    with tarfile.open(one) as tar:
        names = tar.getnames()
        tar.extractall(tmp_path / "elsewhere", filter="data")
    assert sum(name.endswith("/result.json") for name in names) == 5
    assert not any("checkpoint" in name or cut.name in name for name in names)
    texts = [path.read_text(encoding="utf-8") for path in (tmp_path / "elsewhere").rglob("*") if path.is_file()]
    assert len(texts) > 20 and not any(str(tmp_path) in text for text in texts)
    assert read_sealed(next(tmp_path.glob("elsewhere/*/environment.json")))["host"] is None

    again = attn(*table, "--runs", "elsewhere")
    assert again.returncode == 0, again.output
    # only the cell that is missing is trained, which may take other memory
    assert again.stderr.count(": done") == 1
    # the memory and the time of the cell that was trained again are its own
    measured = r"\d+ MB|about \d+ s"
    assert re.sub(measured, "", again.stdout) == re.sub(measured, "", shown.stdout)
