"""The `attn` command as a shell sees it: quick answers, codes, and help that teaches."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from experiments.config.answer import answer
from experiments.config.command_line import CommandLine, check_overrides, split_arguments
from experiments.config.completion import complete
from experiments.config.compose import compose, compose_raw
from experiments.config.groups import options
from experiments.config.primary import FINETUNING, PRETRAINING
from experiments.failures.failure import Mistake
from experiments.settings.position import POSITION_KINDS
from tests.fixtures.record import leave_result

ROOT = Path(__file__).resolve().parents[2]


# one command after another in one process, and after each what has been imported so far
IMPORTS = """
import json, sys, cli
for words in json.loads(sys.argv.pop()):
    sys.argv = ["attn", *words]
    try: cli.main()
    except SystemExit: pass
    print("\\nIMPORTED", *sys.modules)
"""


def test_help_imports_next_to_nothing_and_mistakes_and_comparisons_do_without_torch(tmp_path):
    (tmp_path / "a").mkdir()
    leave_result(tmp_path / "a", validation_loss=5.0, perplexity=148.4, config=compose([]).model_dump())
    lines = [
        ["--help"], ["train", "heads=abc"], ["train", "--cfg", "job"], ["train", "variant=talkin"], ["train", "--help"],
        ["compare", "--runs", str(tmp_path)],
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, json.dumps(lines)],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    imported = [set(line.split()) for line in done.stdout.splitlines() if line.startswith("IMPORTED")]
    assert len(imported) == len(lines)
    slow = {"torch", "numpy", "hydra", "omegaconf", "pydantic", "yaml", "rich.console", "wandb", "datasets"}
    assert not slow & imported[0]
    for words, modules in zip(lines, imported, strict=True):
        assert not {"torch", "wandb", "datasets", "transformers"} & modules, words
    assert (tmp_path / ".index.sqlite").exists()


@pytest.mark.parametrize("command", ["train", "variants", "evaluate", "compare", "sync"])
def test_help_shows_examples_first(attn, command):
    text = attn(command, "--help").stdout
    example = text.index("  attn ")
    assert example < text.index("Options" if command != "train" else "Groups")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["evaluate", "any", "--checkpoint", "bst"],
            r"--checkpoint bst: must be one of best, newest \(did you mean best\?\)",
        ),
        (
            ["compare", "--format", "tabel"],
            r"--format tabel: must be one of table, markdown, latex, csv, json \(did you mean table\?\)",
        ),
    ],
)
def test_an_option_with_few_values_names_them(attn, words, said):
    done = attn(*words)
    assert done.returncode == 2 and re.search(said, done.stderr), done.stderr


def test_a_mistake_changes_nothing_and_ends_with_code_2(attn, tmp_path):
    for words in (["train", "heads=abc"], ["train", "-m", "heads=6,abc"], ["train", "--mulitrun"], ["train", "+x=1"]):
        done = attn(*words)
        assert (done.returncode, done.stdout) == (2, ""), done
        assert done.stderr.startswith("attn train: ")
        assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_names_every_wrong_cell(attn, tmp_path):
    done = attn("train", "-m", "heads=6,12,1000,2000")
    assert "heads=1000" in done.stderr
    assert "heads=2000" in done.stderr
    assert "none was started" in done.stderr
    assert done.returncode == 2 and list(tmp_path.iterdir()) == []


def test_dry_run_prints_the_cells_and_starts_none(attn, tmp_path):
    done = attn("train", "-m", "variant=multi_head,talking_heads", "heads=6,12", "layers=1", "--dry-run")
    assert done.returncode == 0, done.stderr
    cells = [line.split() for line in done.stdout.splitlines() if line.startswith(("multi_head-", "talking_heads-"))]
    assert len(cells) == 4
    assert all("MB" in cell and "to" in cell for cell in cells)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flags", [["--cfg", "job"], ["--cfg=job"], ["--cfg", "job", "--resolve"]])
def test_a_task_is_shown_without_a_run(attn, flags):
    done = attn("finetune", "task=rte", *flags)
    assert done.returncode == 0 and "not_entailment" in done.stdout, done.stderr


def test_the_help_shows_the_choices_of_a_key(attn):
    lines = attn("train", "--help").stdout.splitlines()
    assert "norm: post | pre | sandwich | deep" in lines and "model.position: " + " | ".join(POSITION_KINDS) in lines
    assert any(line.startswith("backend: auto | ") for line in lines)
    finetuning = attn("finetune", "--help").stdout.splitlines()
    assert any("docs/settings.md#task" in line for line in finetuning)
    assert "pretrained: must be given" in finetuning and any(line.startswith("precision: ") for line in finetuning)
    # these are the pretrained run's
    assert not any(line.startswith(("norm: ", "model.", "data.")) for line in finetuning)


def test_heads_that_do_not_divide_the_hidden_size_are_told(attn):
    line = "heads=7 does not divide hidden_size=192: key_size=27, so all heads together have width 189\n"
    assert attn("train", "heads=7", "--dry-run").stderr.count(line) == 1
    assert "does not divide" not in attn("train", "heads=7", "key_size=32", "--dry-run").stderr


def test_hydra_answers_its_own_flags(attn, shell):
    assert "heads: 12" in attn("train", "heads=12", "--cfg", "job").stdout
    assert "hidden_size: 192" in attn("train", "--cfg", "job", "--resolve", "-p", "model").stdout
    # what it logs goes where the process began with
    told = shell("train", "variant=talking_heads", "--info", "all").stdout
    assert "variant/talking_heads" in told and "Launcher" in told


def test_flags_and_overrides_may_come_in_any_order():
    assert split_arguments(["a=1", "-m", "b=2", "--help", "c=3"]) == (["a=1", "b=2", "c=3"], ["-m", "--help"])
    assert split_arguments(["--cfg", "job", "a=1"]) == (["a=1"], ["--cfg", "job"])
    with pytest.raises(Mistake, match="did you mean --multirun"):
        split_arguments(["--mulitrun"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--shell-completion", "there is no flag --shell-completion"),
        ("--version", "there is no flag --version"),
        ("--run heads=3", "there is no flag --run"),
        ("-m=false heads=3", "-m=false: -m takes no value"),
        ("--cfg", "--cfg: the value must be one of job, hydra, all"),
        ("--cfg jobb", "--cfg jobb: the value must be one of job, hydra, all (did you mean job?)"),
        ("--info plugin", "(did you mean plugins?)"),
        ("--info=foo", "--info=foo: the value must be one of all, config, "),
        ("--cfg job --package", "--package: name a setting or a group"),
    ],
)
def test_a_flag_has_a_value_that_it_takes(words, said):
    with pytest.raises(Mistake, match=re.escape(said)):
        split_arguments(words.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("+heds=24 --cfg job", "did you mean heads?"),
        ("heads=3 heads=4 --cfg job", "heads is given twice"),
        ("model=../optimizer/lamb --cfg job", "there is no model '../optimizer/lamb'"),
        ("++hydra.searchpath=[file:///tmp] --cfg hydra", "only the files of conf/ are read"),
        ("--info foo", "'foo' is not an override"),
        ("heads=-3 --cfg job --resolve", "heads = -3: must be at least 1"),
        ("--cfg job --package modle", "--package modle: there is no such setting\n  did you mean model?"),
        ("--cfg hydra --package model", "--package model: there is no such setting"),
    ],
)
def test_a_question_about_wrong_settings_is_refused_as_their_run_is(words, said, capsys):
    with pytest.raises(Mistake, match=re.escape(said)):
        answer(CommandLine(*split_arguments(words.split())))
    assert capsys.readouterr() == ("", "")


def test_a_part_and_its_values_are_checked_in_one_composition(monkeypatch, capsys):
    composed = []

    def counted(*asked, **kinds):
        composed.append(compose_raw(*asked, **kinds))
        return composed[-1]

    monkeypatch.setattr("experiments.config.answer.compose_raw", counted)
    answer(CommandLine(*split_arguments(["--cfg", "job", "--resolve", "--package", "model"])))
    assert len(composed) == 1 and "hidden_size: 192" in capsys.readouterr().out


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


# bash asks in a process of its own; here one process answers all
ASKED = """
import json, os, sys, cli
for shell, words in json.loads(sys.argv.pop()):
    os.environ |= {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_ATTN_COMPLETE": f"complete_{shell}"}
    os.environ |= {"_TYPER_COMPLETE_ARGS": words, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    sys.argv = ["attn"]
    try: cli.main()
    except SystemExit: pass
    print("\\nEND")
"""


def test_completion_as_bash_and_fish_ask_for_it(tmp_path):
    for name in ("talking_heads-l4", "talking_heads-l6", "multi_head-l4"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.yaml").touch()
    (tmp_path / "runs" / "wandb").mkdir()
    expected = {
        ("bash", "attn tr"): "train",
        ("bash", "attn train variant=talk"): "variant=talking_heads",
        ("bash", "attn compare --so"): "--sort",
        ("bash", "attn finetune talking_heads task=mn"): "task=mnli",
        ("bash", "attn finetune talking_heads task=squad task.n_b"): "task.n_best=",
        ("bash", "attn table lan"): "lan2020/sharing",
        ("bash", "attn table lan2020/sharing optimizer.cl"): "optimizer.clip=",
        ("bash", "attn table lan2020/sharing --budget me"): "medium",
        ("bash", "attn table follow_ups/today --claim C"): "C8",
        ("bash", "attn evaluate talk"): "talking_heads-l4 talking_heads-l6",
        ("bash", "attn evaluate w"): "",
        ("bash", "attn heads talking_heads-l4 mu"): "multi_head-l4",
        ("bash", "attn export --runs elsewhere mu"): "",
        ("bash", "attn compare mu"): "multi_head-l4",
        ("bash", "attn compare variant=talk"): "variant=talking_heads",
        ("bash", "attn finetune mu"): "multi_head-l4",
        ("bash", "attn finetune multi_head-l4 mu"): "",
        ("fish", "attn train heads=6 variant=talk"): "variant=talking_heads",
    }
    command = [sys.executable, "-c", ASKED, json.dumps([*expected])]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    answers = [answer.split() for answer in done.stdout.split("END\n")[:-1]]
    assert answers == [words.split() for words in expected.values()], done.stderr


def test_variants_lists_every_variant_with_its_paper(attn):
    rows = json.loads(attn("variants", "--format", "json").stdout)
    assert {"multi_head", "talking_heads", "additive", "general_bilinear"} <= {row["variant"] for row in rows}
    assert all(row["definition"] and row["paper"] and row["parameters"] > 0 and row["multiplies"] > 0 for row in rows)


@pytest.mark.parametrize("word", ["layers=3", "seed=3", "trainer.threads=1", "model.position=alibi", "data=text"])
def test_variants_refuses_what_no_cost_follows_from(attn, word):
    done = attn("variants", word)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"attn variants: {word}: attn variants does not use {word.partition('=')[0]}\n")


def test_a_command_without_sweeps_names_none(attn):
    for words in (["variants", "heads=3,6"], ["import", "anything", "heads=3,6"]):
        done = attn(*words)
        said = f"attn {words[0]}: heads=3,6: one value is needed here\n  to give a list write key=[a,b]\n"
        assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


def test_paths_with_umlauts_and_spaces_are_read(attn, tmp_path):
    (tmp_path / "\u00dcbung").mkdir()
    (text := tmp_path / "\u00dcbung" / "ein T\u00e9xt.txt").write_text("The cat sat.\n\n" * 9)
    words = ["data=text", f"data.train={text.relative_to(tmp_path)}", "runs=meine l\u00e4ufe"]
    shown = attn("train", *words, "--cfg", "job")
    assert shown.returncode == 0 and "train: \u00dcbung/ein T\u00e9xt.txt" in shown.stdout, shown.stderr
    assert "runs: meine l\u00e4ufe" in shown.stdout
    assert attn("train", *words, "--dry-run").returncode == 0
    assert "not ASCII" in attn("train", "heads=\uff13", "--dry-run").stderr


def test_unknown_commands_get_a_suggestion(attn):
    done = attn("trian")
    assert done.returncode == 2
    assert "train" in done.stderr


@pytest.mark.parametrize("override", ["experiment=nano_tabel", "experiment=nano_table,nano_tabel"])
def test_an_overlay_that_there_is_not_is_refused(override):
    with pytest.raises(Mistake, match=r"there is no experiment 'nano_tabel' \(did you mean nano_table\?\)"):
        check_overrides([override])


def test_the_overlays_that_there_are_are_taken():
    for override in ("experiment=nano_table", "experiment=nano_table,small_table"):
        assert len(check_overrides([override])) == 1


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("variant=", "there is no variant ''"),
        ("variant=null", "there is no variant null"),
        ("experiment=null", "there is no experiment null"),
        ("experiment=null,nano_table", "there is no experiment null"),
        ("data=../../etc/passwd", "there is no data '../../etc/passwd'"),
        ("model=nano,../base", "there is no model '../base'"),
        ("=5", "'=5' is not an override"),
        ("hydra.searchpath=[file:///tmp]", "only the files of conf/ are read"),
        ("++hydra.searchpath=[file:///tmp]", "only the files of conf/ are read"),
        ("variant.name=multi_head", "choose the variant: variant=NAME"),
        ("variant.module=multi_head", "choose the variant: variant=NAME"),
    ],
)
def test_groups_have_the_options_of_their_folder_alone(override, message):
    with pytest.raises(Mistake, match=re.escape(message)):
        check_overrides([override])


def test_what_a_value_refers_to_is_named():
    message = "seed refers to it, but there is no setting 'learning_rat'\n  did you mean learning_rate"
    with pytest.raises(Mistake, match=message):
        compose(["seed=${learning_rat}"])


@pytest.mark.parametrize(
    ("expression", "needed"),
    [
        ("${times:1}", "${times:FACTOR,NUMBER}"),
        ("${floor_divide:1,2,3}", "${floor_divide:NUMBER,BY}"),
        ("${cache_folder:1}", "${cache_folder:}"),
    ],
)
def test_an_expression_with_a_wrong_number_of_values_is_told_how_to_write_it(expression, needed):
    with pytest.raises(Mistake, match=re.escape(f"seed: {expression}: must be {needed}") + "$"):
        compose([f"seed={expression}"])


def test_an_answer_that_nobody_reads_is_an_error_of_the_output_and_two_questions_are_refused(monkeypatch):
    with open("/dev/full", "w") as full, monkeypatch.context() as patched:  # noqa: PTH123
        patched.setattr(sys, "stdout", full)
        with pytest.raises(OSError, match="No space left") as caught:
            answer(CommandLine([], ["--cfg", "job"]))
        assert caught.value.filename is None
        patched.undo()
        with suppress(OSError):
            full.close()
    with pytest.raises(Mistake, match="--info --cfg: give only one of them"):
        split_arguments(["--info", "--cfg", "job"])
    with pytest.raises(Mistake, match="-m --cfg: --cfg prints one configuration\n  leave -m out"):
        split_arguments(["seed=0,1", "-m", "--cfg", "hydra"])


def test_the_help_lists_the_groups_that_the_command_takes(attn):
    for primary in (PRETRAINING, FINETUNING):
        listed = attn(primary.command, "--help").stdout.split("Groups (")[1].split("Settings (")[0]
        lines = [line.partition(": ") for line in listed.splitlines()[2:] if line]
        assert {group for group, _, _ in lines} == {group for group in primary.groups if options(group)}
        assert all(choices for _, _, choices in lines)
