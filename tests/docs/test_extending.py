"""The files that docs/extending.md and docs/adding_a_variant.md add work: a copy of the project trains with them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.objectives.objective import Objective
from tests.fixtures.tiny import TINY

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
# a path at the end of a line, and the block that follows it
BLOCKS = re.compile(r"`([\w/]+\.(?:py|yaml))`\n\n```(?:python|yaml)\n(.*?)```", re.DOTALL)
VARIANTS = BLOCKS.findall((ROOT / "docs" / "adding_a_variant.md").read_text(encoding="utf-8"))
# the line that begins a table of kinds
TABLE = re.compile(r"^[A-Z_]+ = \{\n", re.MULTILINE)
LIMITS = ("max_steps", "trainer.log_every")
# commands in one process, each answered by a line of JSON
SEVERAL = """
import json, sys
from typer.testing import CliRunner
import cli
for words in json.loads(sys.argv[1]):
    done = CliRunner().invoke(cli.app, words)
    print(json.dumps({"exit_code": done.exit_code, "stdout": done.stdout, "stderr": done.stderr}))
"""
SHORT = [word for word in TINY if not word.startswith(LIMITS)] + ["max_steps=2", "trainer.log_every=1", "heads=2"]


@pytest.fixture(scope="module")
def extended(tmp_path_factory, with_kernel) -> Path:
    """A copy of the project with all files of the two pages."""
    copy = tmp_path_factory.mktemp("extended")
    for name in ("experiments", "attention", "conf"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "cli.py", copy)
    with_kernel(copy / "cache")
    for name, text in VARIANTS:
        (copy / name).unlink()
        (copy / name).write_text(text, encoding="utf-8")
    for name, text in BLOCKS.findall(PAGE):
        path = copy / name
        if path.exists():
            before = path.read_text(encoding="utf-8")
            text = TABLE.sub(lambda start, line=text: start.group() + line, before, count=1)
            assert text != before
        path.write_text(text, encoding="utf-8")
    return copy


@pytest.fixture(scope="module")
def attn(extended: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """attn(*words): the command of the copy, in the copy's folder."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        done = python(extended, str(extended / "cli.py"), *words)
        assert done.returncode == 0, done.stderr
        return done

    return run


def python(extended: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the modules of the copy, in its folder."""
    environment = os.environ | {"PYTHONPATH": str(extended), "ATTN_CACHE": str(extended / "cache")}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=extended, env=environment, capture_output=True, text=True, timeout=300)


def trained(extended: Path, runs: str) -> dict:
    """The result of the one run in a folder."""
    (path,) = (extended / runs).glob("*/result.json")
    result = json.loads(path.read_text(encoding="utf-8"))
    assert result["status"] == "done" and result["steps"] == 2
    return result


def test_the_page_counts_its_own_files():
    written = [name for name, _ in BLOCKS.findall(PAGE)]
    new = [name for name in written if not (ROOT / name).exists()]
    assert len(written) == 12
    assert set(written) - set(new) == {"experiments/settings/norm.py", "experiments/settings/position.py"}


def test_the_page_names_every_attribute_of_an_objective():
    properties = [name for name, value in vars(Objective).items() if isinstance(value, property)]
    attributes = [*Objective.__annotations__, *properties]
    assert "vocabulary" in attributes and all(f"\n* `{name}`" in PAGE for name in attributes)


def test_the_variant_has_two_files():
    folders = [Path(name).parent.as_posix() for name, _ in VARIANTS]
    assert folders == ["attention", "conf/variant"]


@pytest.mark.campaign
def test_a_variant_an_objective_a_kernel_and_kinds_of_data_norm_and_position_train(extended, text_file):
    lines = text_file.read_text(encoding="utf-8").replace("\n\n", "\n# a remark\n")
    (extended / "remarks.txt").write_text(lines, encoding="utf-8")
    model = {"norm_kind": "max", "position": "distance_penalty"}
    kinds = ["objective=skip", *(f"model.{key}={kind}" for key, kind in model.items())]
    kernel = ["backend=plain", "model.attention_dropout=0"]
    train = ["train", "data=commented", "data.train=remarks.txt", *SHORT]
    commands = [
        ["variants"],
        [*train, *kinds, *kernel, "runs=remarking"],
        [*train, "variant=multi_query", "runs=multi_query"],
        ["train", "variant=multi_query", "variant.key_size=-1"],
    ]
    done = python(extended, "-c", SEVERAL, json.dumps(commands))
    assert done.returncode == 0, done.stderr
    listed, *both, refused = map(json.loads, done.stdout.splitlines())
    assert "multi_query" in listed["stdout"]
    assert [answer["exit_code"] for answer in both] == [0, 0], both
    result = trained(extended, "remarking")
    assert result["config"]["objective"] == {"kind": "skip", "distance": 2} and result["corpus"]["kind"] == "commented"
    assert result["config"]["model"].items() >= model.items() and result["backend"] == "plain"
    assert trained(extended, "multi_query")["config"]["variant"]["name"] == "multi_query"
    assert refused["exit_code"] == 2 and "variant.key_size = -1" in refused["stderr"]


@pytest.mark.campaign
def test_a_data_set_and_a_task_train(extended, attn, text_file):
    shutil.copy(text_file, extended / "poems.txt")
    attn("train", "data=poems", *SHORT, "runs=rhyming")
    assert trained(extended, "rhyming")["config"]["data"]["train"] == "poems.txt"

    for split, noun in (("train", "day"), ("validation", "night")):
        rows = [{"sentence": f"the {word} {noun}", "label": label} for label, word in enumerate(("grey", "bright"))] * 8
        (extended / f"moods_{split}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (run,) = (path.parent for path in (extended / "rhyming").glob("*/result.json"))
    words = ["max_steps=2", "length=16", "batch_size=4", "logger.wandb=off", "trainer.device=cpu", "runs=moods"]
    attn("finetune", str(run), "task=moods", *words)
    assert set(trained(extended, "moods")["scores"]) == {"accuracy"}


@pytest.mark.campaign
def test_a_format_writes_and_reads_its_own_name(extended):
    code = """
from experiments.config.compose import compose
from experiments.formats.format import format_of
words = ["norm=post", "model.position=learned", "model.token_types=2", "model.head_transform=true"]
mine = format_of("my_bert")
config = mine.config(compose(words), 300)
assert config["model_type"] == "my_bert" and mine.overrides(config) == format_of("bert").overrides(config)
"""
    done = python(extended, "-c", code)
    assert done.returncode == 0, done.stderr
