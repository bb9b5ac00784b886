"""The tutorial's commands run as they stand, on its own table, with a model and a text that train in a second."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from experiments.bench import rounds
from experiments.bench.rounds import Timing
from experiments.bench.worker import Turn
from experiments.tables.definition import folder

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
(TABLE,) = re.findall(r"`conf/table/mine/mixing\.yaml`\n\n```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def mixing(tmp_path_factory, monkeypatch) -> None:
    """The page's table is the only one, with the sizes of the test."""
    tables = tmp_path_factory.mktemp("tables")
    (tables / "mine").mkdir()
    (tables / "mine" / "mixing.yaml").write_text(
        re.sub(r"seeds: 6\n    overrides: .*", "seeds: 2\n    overrides: schedule=cosine\n", TABLE)
    )
    monkeypatch.setattr(folder, "TABLES", tables)
    # the bench is tried where it stands; here each row takes a tenth of a second
    turn = Turn(0.1, 10**6, ["sdpa"], 0.25)
    monkeypatch.setattr(rounds, "timed", lambda of, count: [Timing([turn] * count, turn, None)] * len(of))


@pytest.mark.campaign
@pytest.mark.usefixtures("mixing")
def test_the_page_leads_to_a_table_with_its_three_claims(attn, tiny, tmp_path):
    tiny = [word for word in tiny if not word.startswith(("max_steps", "trainer.evaluate_every"))] + ["max_steps=4"]
    said = ""
    for command in COMMANDS:
        words = shlex.split(command)[1:]
        given = {word.split("=")[0] for word in words}
        # the last command would go on until an hour is over
        words = ["0" if word == "1" and "--hours" in words else word for word in words]
        if words[0] in ("train", "table"):
            sizes = ("hidden_size", "layers", "max_steps")
            words = [word for word in words if not word.startswith(sizes)]
            words += [word for word in tiny if word.split("=")[0] not in given - {*sizes}]
        done = attn(*words)
        assert done.returncode == 0, f"{command}: {done.output}"
        said = done.output if "--out" in words else said
    written = (tmp_path / "results" / "mine_mixing.md").read_text(encoding="utf-8")
    for claim in ("many", "few", "growth"):
        assert claim in written and claim in said
