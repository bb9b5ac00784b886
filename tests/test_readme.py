"""Every command of the README runs, cut short where it would train for minutes."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experiments.config.compose import compose
from experiments.record.folder import run_name

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LINES = [line for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]
COMMANDS = [line for line in LINES if line.startswith("attn ")]
# the first lines of the README; .ci/run gives them to a shell in a clean environment as they stand
SET_UP = [line for line in LINES if line.startswith("python3 -m venv ")]


def test_the_two_promised_commands_are_there():
    assert len(SET_UP) == 2
    assert SET_UP[0].endswith("attn train variant=talking_heads heads=24")
    assert SET_UP[1].endswith("python -m pytest")
    assert set(LINES) - set(SET_UP) == set(COMMANDS)


def test_the_first_run_has_the_name_that_is_shown():
    settings = compose(shlex.split(SET_UP[0])[-2:]).model_dump()
    # the text of the documentation, and so the name, differ among versions of Python
    settings["data"]["python"] = "3.11.7"
    assert set(re.findall(r"talking_heads-l\S+-[0-9a-f]{8}", README)) == {run_name(settings)}


@pytest.mark.parametrize("command", [line for line in COMMANDS if line.startswith("attn train")])
def test_training_commands_run(attn, tiny, tmp_path, text_file, command):
    words = shlex.split(command)[1:]
    shutil.copy(text_file, tmp_path / "book.txt")
    if "data=wikitext2" in words:
        words += [f"data.path={downloaded(text_file, tmp_path / 'wikitext')}", "data.name=null", "data.train=train"]
    given = {word.split("=")[0] for word in words} - {"max_steps"}
    short = [word for word in tiny if word.split("=")[0] not in given]
    words = ["seed=0" if word.startswith("seed=") else word for word in words if not word.startswith("max_steps=")]
    done = attn(*words, *short)
    assert done.returncode == 0, done.stdout + done.stderr


def downloaded(text_file: Path, folder: Path) -> Path:
    """Our text as WikiText comes from the hub, a line a row: where a data set is named, a folder may stand."""
    folder.mkdir()
    for split in ("train", "validation", "test"):
        lines = [
            f" = Title {number} = \n \n {text} \n" for number, text in enumerate(text_file.read_text().split("\n\n"))
        ]
        rows = [row for line in lines for row in line.splitlines(keepends=True)]
        pq.write_table(pa.table({"text": rows}), folder / f"{split}.parquet")
    return folder


@pytest.mark.usefixtures("short_timings")
@pytest.mark.parametrize("command", sorted(set(re.findall(r"`(attn [^`]*)`", README))))
def test_commands_within_sentences_run(attn, command):
    done = attn(*shlex.split(command)[1:])
    # where nothing was trained there is nothing to upload, which is said
    assert done.returncode == 0 or (done.returncode == 2 and "attn train makes one" in done.stderr), done.stderr


@pytest.mark.usefixtures("undrawn")
def test_the_other_commands_run_on_what_was_trained(attn, tiny):
    # the README's run name begins with sizes; here they are smaller
    assert attn("train", "variant=talking_heads", "heads=4", *tiny).returncode == 0
    for command in COMMANDS:
        words = [re.sub(r"^talking_heads-l.*", "talking_heads-l", word) for word in shlex.split(command)[1:]]
        if words[0] != "train":
            done = attn(*words)
            assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
