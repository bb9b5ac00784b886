"""The `attn` command as a shell sees it: quick answers, codes, and help that teaches."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.config.command_line import check_overrides, split_words
from experiments.config.completion import complete
from experiments.settings.mistake import Mistake

ROOT = Path(__file__).resolve().parents[2]


def attn(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, str(ROOT / "cli.py"), *words],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def modules_after(*words: str) -> set[str]:
    argv = ["attn", *words]
    code = f"import sys, cli\nsys.argv = {argv!r}\ntry: cli.main()\nexcept SystemExit: pass\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "words", [["--help"], ["train", "heads=abc"], ["train", "--cfg", "job"], ["train", "variant=talkin"]]
)
def test_help_and_mistakes_do_without_torch(words):
    assert not {"torch", "wandb", "datasets", "transformers"} & modules_after(*words)


def test_help_is_quick():
    def seconds() -> float:
        start = time.perf_counter()
        attn("--help")
        return time.perf_counter() - start

    # the floor on an idle machine is 0.15 s; a busy one is given room, an import of torch is not
    assert min(seconds() for _ in range(5)) < 0.6


@pytest.mark.parametrize("command", ["train", "variants", "evaluate", "compare", "sync"])
def test_help_shows_examples_first(command):
    text = attn(command, "--help").stdout
    example = text.index("  attn ")
    assert example < text.index("Options" if command != "train" else "Groups")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["evaluate", "any", "--checkpoint", "bst"], "'--checkpoint': .*'bst' is not one of 'best', 'newest'"),
        (["compare", "--format", "tabel"], "'--format': .*'tabel' is not one of 'table', 'markdown', 'csv', 'json'"),
    ],
)
def test_an_option_with_few_values_names_them(words, said):
    done = attn(*words)
    assert done.returncode == 2 and re.search(said, done.stderr), done.stderr


def test_a_mistake_changes_nothing_and_ends_with_code_2(tmp_path):
    for words in (["train", "heads=abc"], ["train", "-m", "heads=6,abc"], ["train", "--mulitrun"], ["train", "+x=1"]):
        done = attn(*words, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, ""), done
        assert done.stderr.startswith("attn train: ")
        assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_names_every_wrong_cell(tmp_path):
    done = attn("train", "-m", "heads=6,12,1000,2000", cwd=tmp_path)
    assert "heads=1000" in done.stderr
    assert "heads=2000" in done.stderr
    assert "none was started" in done.stderr


def test_dry_run_prints_the_cells_and_starts_none(tmp_path):
    done = attn("train", "-m", "variant=multi_head,talking_heads", "heads=6,12", "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    cells = [line.split() for line in done.stdout.splitlines() if line.startswith(("multi_head-", "talking_heads-"))]
    assert len(cells) == 4
    assert all("MB" in cell and "to" in cell for cell in cells)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flags", [["--cfg", "job"], ["--cfg=job"]])
def test_a_task_is_shown_without_a_run(flags):
    done = attn("finetune", "task=rte", *flags)
    assert done.returncode == 0 and "not_entailment" in done.stdout, done.stderr


def test_hydra_answers_its_own_flags():
    assert "heads: 12" in attn("train", "heads=12", "--cfg", "job").stdout
    assert "hidden_size: 192" in attn("train", "--cfg", "job", "--resolve", "-p", "model").stdout
    assert "variant/talking_heads" in attn("train", "variant=talking_heads", "--info", "defaults").stdout
    assert "Launcher" in attn("train", "--info", "plugins").stdout


def test_flags_and_overrides_may_come_in_any_order():
    assert split_words(["a=1", "-m", "b=2", "--info", "c=3"]) == (["a=1", "b=2", "c=3"], ["-m", "--info"])
    assert split_words(["--cfg", "job", "a=1"]) == (["a=1"], ["--cfg", "job"])
    with pytest.raises(Mistake, match="did you mean --multirun"):
        split_words(["--mulitrun"])


def test_hydra_keys_may_be_added():
    assert len(check_overrides(["+hydra.launcher.ray=1", "heads=6"])) == 2


@pytest.mark.parametrize(
    ("words", "incomplete", "expected"),
    [
        ([], "vari", "variant="),
        ([], "variant=talk", "variant=talking_heads"),
        (["heads=6"], "model=na", "model=nano"),
        ([], "optimizer.cl", "optimizer.clip="),
    ],
)
def test_completion(words, incomplete, expected):
    assert expected in complete(words, incomplete)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("attn tr", "train"),
        ("attn train variant=talk", "variant=talking_heads"),
        ("attn compare --so", "--sort"),
        ("attn finetune talking_heads task=mn", "task=mnli"),
        ("attn finetune talking_heads task=squad task.n_b", "task.n_best="),
    ],
)
def test_completion_as_bash_asks_for_it(words, expected):
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_ATTN_COMPLETE": "complete_bash"}
    done = subprocess.run(
        [sys.executable, "-c", "import sys, cli; sys.argv = ['attn']; cli.main()"],
        cwd=ROOT,
        env=os.environ | asked,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == [expected], done.stderr


def test_variants_lists_every_variant_with_its_paper():
    rows = json.loads(attn("variants", "--format", "json").stdout)
    assert {"multi_head", "talking_heads", "additive", "general_bilinear"} <= {row["variant"] for row in rows}
    assert all(row["definition"] and row["paper"] and row["parameters"] > 0 and row["multiplies"] > 0 for row in rows)


def test_unknown_commands_get_a_suggestion():
    done = attn("trian")
    assert done.returncode == 2
    assert "train" in done.stderr
