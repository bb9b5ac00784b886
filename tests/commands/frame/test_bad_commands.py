"""Bad commands by the hundred: each is refused in few lines, at once, and changes nothing on the disk."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiments.config.command_line import CommandLine
from experiments.config.compose import compose
from experiments.config.groups import groups, options
from experiments.config.primary import PRETRAINING
from experiments.failures.failure import Mistake
from experiments.launch.check_cells import MAX_CELLS_NAMED
from experiments.launch.plan import plan

TOP = (
    "heads",
    "key_size",
    "hidden_size",
    "layers",
    "norm",
    "length",
    "batch_size",
    "learning_rate",
    "max_steps",
    "seed",
)
VALUES = (
    "abc", "-1", "-0", "1e309", "-1e309", "nan", "inf", "", "[1]", "{a:1}", "null", "true", "9" * 400, "0x10", "1_0",
    "\u0661", "1\n2", "1\t", "a\x00b", "'", '"', "${nope}", "${seed}", "${oc.env:NOPE}", "???", "a=b", "$(id)", "\\",
    "range(0,10)", "range(0,999999999)", "range(0,1e300)", "interval(0,1)", "1,1", "choice()", "glob(*)", "sort(3,1)",
    "/dev/null", "..", "a" * 5000, "[" * 200, "\u212a", "\ufeff1", "\U0001f600",
)  # fmt: skip
FLAGS = ("--mulitrun", "--config-dir", "--config-name=x", "-cd", "--", "---", "-", "--dryrun", "--experimental-rerun")
# commands that name something that there is not
NAMED = (
    ["evaluate", "nope"], ["evaluate", ""], ["evaluate", "a/../nope"], ["heads", "nope"], ["heads", "a", "b", "c"],
    ["export", "nope", "there"], ["sync", "nope"], ["compare", "nope"], ["dashboard", "nope"], ["import", "./nope"],
    ["finetune", "nope", "task=squad"], ["finetune", "task=squad"], ["finetune", "nope"], ["table", "nope/none"],
    ["table", "shazeer2020/haeds"], ["table", "shazeer2020/heads", "--seeds", "0-999999999"],
    ["table", "shazeer2020/heads", "--seeds", "9" * 5000], ["table", "shazeer2020/heads", "--seeds", "-1"],
    ["table", "shazeer2020/heads", "--budget", "smal"], ["table", "../../etc"], ["bench", "data=text", "data.train=x"],
    ["bench", "seed=range(0,100000)"], ["bench", "--rounds", "0"], ["compare", "a=b"],
    ["variants", "variant=gated"], ["compare", "--sort", "los"], ["compare", "--format", "pdf"], ["tain"],
    ["evaluate", "nope", "--checkpoint", "last"], ["train", "x"], ["evaluate", "/dev/null"], ["evaluate", "a" * 5000],
    ["train", "runs=" + "a" * 5000], ["train", "runs=/dev/null", "data=text", "data.train=nope"],
    ["train", "data=text", "data.train=/dev"], ["train", "data=text", "data.train="], ["train", "data=text"],
    ["import", "/dev/null"], ["dashboard", "--out", "/"], ["dashboard", "--runs", "/dev/null"],
)  # fmt: skip


def misspelt(word: str, chance: random.Random) -> str:
    place = chance.randrange(len(word) - 1)
    swapped = word[:place] + word[place + 1] + word[place] + word[place + 2 :]
    return chance.choice([swapped, word[:place] + word[place + 1 :], word[: place + 1] + word[place:]])


def bad_command(chance: random.Random, keys: list[str]) -> list[str]:
    """A random command that trains nothing, even if it should be accepted."""
    key, group = chance.choice(keys), chance.choice(groups())
    value = chance.choice(VALUES)
    override = chance.choice(
        [
            lambda: f"{chance.choice(TOP)}={value}",
            lambda: f"{key}={value}",
            lambda: f"{misspelt(key, chance)}={value}",
            lambda: f"{group}={value}",
            lambda: f"{group}={misspelt((options(group) or ['none'])[0], chance)}",
            lambda: f"{chance.choice('+~=@.')}{key}={value}",
            lambda: key + chance.choice(["", " = ", "==", ":", "\uff1d"]) + value,
        ]
    )()
    kind = chance.randrange(6)
    if kind == 0:
        return list(chance.choice(NAMED))
    if kind == 1:
        return ["train", chance.choice(FLAGS), "--dry-run"]
    if kind == 2:
        return ["train", override, override, "--dry-run"]
    if kind == 3:
        return ["train", "-m", override, "--dry-run"]
    return ["train", override, "--dry-run"]


@pytest.mark.campaign
def test_bad_commands_are_refused_in_few_lines_and_change_nothing(attn, tmp_path, chance, scale, capsys):
    keys = PRETRAINING.known_keys()
    for number in range(40 * scale):
        words = bad_command(chance, keys)
        shown = f"command {number}: {[word[:80] for word in words]}"
        began = time.process_time()
        try:
            done = attn(*words)
        except BaseException as error:
            raise AssertionError(f"{shown}: {type(error).__name__}: {str(error)[:300]}") from error
        took = time.process_time() - began
        # 1: the folder of the runs can't be a folder
        assert done.returncode in (0, 1, 2), f"{shown}: {done}"
        assert took < 20, f"{shown}: {took} seconds of the processor"
        assert not list(tmp_path.iterdir()), f"{shown}: {list(tmp_path.iterdir())}"
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            # up to two lines about each wrong cell that is named, one about the others, and one with their number
            most = 2 * MAX_CELLS_NAMED + 2
            assert 1 <= len(lines) <= most and "Traceback" not in done.stderr, f"{shown}: {done.stderr[:500]}"
            assert not done.stdout, f"{shown}: {done.stdout[:300]}"


def misspelling(chance: random.Random, keys: list[str], run: str) -> tuple[list[str], str]:
    """A command with a typing error in a word of at least four letters, and the right word."""
    long = [key for key in keys if len(key.rpartition(".")[2]) > 3]
    choices = [(group, option) for group in sorted(PRETRAINING.groups) for option in options(group) if len(option) > 3]
    key, (group, option) = chance.choice(long), chance.choice(choices)
    parent, dot, leaf = key.rpartition(".")
    named = ["evaluate", "sync", "heads", "compare", "dashboard"]
    return chance.choice(
        [
            lambda: (["train", f"{parent}{dot}{misspelt(leaf, chance)}=1", "--dry-run"], leaf),
            lambda: (["train", f"{group}={misspelt(option, chance)}", "--dry-run"], option),
            lambda: (["train", "--dry-run", "--" + misspelt("multirun", chance)], "--multirun"),
            lambda: (["table", "shazeer2020/" + misspelt("heads", chance)], "shazeer2020/heads"),
            lambda: (["table", "shazeer2020/heads", "--budget", misspelt("small", chance)], "small"),
            lambda: (["evaluate", run, "--checkpoint", misspelt("newest", chance)], "newest"),
            lambda: (
                [(word := chance.choice(named)), misspelt(run, chance), *{"export": ["there"]}.get(word, [])],
                run,
            ),
        ]
    )()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "compare --format cvs",
            "compare: --format cvs: must be one of table, markdown, latex, csv, json (did you mean csv?)",
        ),
        ("heads a --sequences x", "heads: --sequences x: must be a whole number"),
        ("heads a --penalty x", "heads: --penalty x: must be a finite number"),
        ("table a/b --hours -1", "table: --hours -1: must be at least 0"),
        ("table a/b --plan 1", "table: --plan 1: must be at least 2"),
        ("evaluate a --checkpont best", "evaluate: there is no option --checkpont (did you mean --checkpoint?)"),
        (
            "table a/b --tune=1",
            "table: option '--tune' does not take a value\n  attn table --help shows how to write it",
        ),
        ("heads", "heads: RUN is missing\n  attn heads --help shows how to write it"),
        ("trian", "attn: there is no command trian (did you mean train?)"),
        ("--versoin", "attn: there is no option --versoin (did you mean --version?)"),
        ("completion tcsh", "completion: shell tcsh: must be one of bash, zsh, fish"),
    ],
)
def test_a_wrong_option_or_its_value_is_refused_like_that_of_a_setting(attn, words, said):
    done = attn(*words.split())
    expected = said if said.startswith("attn: ") else f"attn {said}"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"{expected}\n")


@pytest.mark.campaign
def test_a_misspelt_word_is_answered_with_the_right_one(attn, tmp_path, chance, scale):
    run = tmp_path / "runs" / "talking_heads-l4-d192-h24-s0-0123abcd"
    run.mkdir(parents=True)
    (run / "config.yaml").touch()
    keys = PRETRAINING.known_keys()
    for number in range(40 * scale):
        words, right = misspelling(chance, keys, run.name)
        if any(right == word.rpartition("=")[2] or word.removesuffix("=1") in keys for word in words):
            # two letters that are alike have changed places
            continue
        done = attn(*words)
        assert done.returncode == 2 and right in done.stderr, f"command {number}: {words}, {right}: {done}"


OVERRIDES = st.tuples(st.sampled_from([*TOP, *groups()]), st.text(max_size=12) | st.sampled_from(VALUES)).map("=".join)


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(OVERRIDES, min_size=1, max_size=2))
def test_any_text_is_settings_or_a_mistake(overrides):
    for ask in (compose, lambda each: plan(CommandLine(each, ["-m"])).cells):
        try:
            assert ask(overrides)
        except Mistake as mistake:
            assert str(mistake).strip()
