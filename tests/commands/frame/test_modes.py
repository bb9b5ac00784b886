"""An option that a mode of a command does not read is refused, and every other one is handed on."""

from __future__ import annotations

from typing import Any

import pytest
import typer

import cli
from experiments.commands import bench, dashboard, heads, table
from experiments.failures.exit_code import ExitCode

HANDED_TO = {
    "table": (table, "show_table"),
    "dashboard": (dashboard, "dashboard"),
    "heads": (heads, "show_heads"),
    "bench": (bench, "bench"),
}
NAME = "shazeer2020/heads"
# the options that each mode refuses
REFUSED = {
    "table": "--budget --claim --seeds --plan --until-resolved --hours --tune --workers --rounds --render-only "
    "--published --runs --out --wandb",
    "table --dry-run": "--budget --claim --seeds --plan --until-resolved --hours --tune --workers --rounds "
    "--render-only --published --out --wandb",
    "table layers=2 --dry-run": "--budget --claim --seeds --plan --until-resolved --hours --tune --workers "
    "--rounds --render-only --published --out --wandb",
    f"table {NAME} --dry-run": "--plan --until-resolved --hours --tune --render-only",
    f"table {NAME} --plan 4": "--until-resolved --hours --tune --workers --rounds --dry-run --render-only --published "
    "--format --out --wandb",
    f"table {NAME} --tune": "--plan --until-resolved --hours --rounds --dry-run --render-only --published "
    "--format --out --wandb",
    f"table {NAME} --render-only": "--plan --until-resolved --hours --tune --workers --rounds --dry-run",
    f"table {NAME} --until-resolved": "--seeds --plan --tune --dry-run --render-only",
    f"table {NAME}": "--hours",
    "dashboard": "--project",
    "dashboard --wandb": "--out --watch --open",
    "heads a": "--penalty",
    "heads a --gates 2": "",
    "bench": "--peers --seeds --difference --workers",
    "bench --scope step": "--seeds --difference --workers",
    "bench --scope answer": "--peers --compile --rounds --plot",
}
# options that ask for another mode
ASKING = {
    f"table {NAME}": "--plan --until-resolved --tune --dry-run --render-only",
    "table": "--dry-run",
    "dashboard": "--wandb",
    "heads a": "--gates",
}
VALUES = {
    "--budget": "nano", "--seeds": "4", "--plan": "4", "--hours": "0", "--workers": "auto", "--published": "mine.yaml",
    "--runs": "elsewhere", "--format": "csv", "--out": "there", "--project": "mine", "--checkpoint": "best",
    "--sequences": "64", "--sentence": "te", "--treebank": "trees.conllu", "--export": "2", "--equal": "2",
    "--gates": "2", "--penalty": "0.02", "--scope": "attention", "--rounds": "7", "--difference": "0.02",
    "--plot": "speed.svg", "--claim": "C8",
}  # fmt: skip


def typed(option: str) -> list[str]:
    """An option with a value, which is the default if it has one."""
    return [option, VALUES[option]] if option in VALUES else [option]


def options_of(command: str) -> list[str]:
    """All options of a command."""
    parameters = typer.main.get_command(cli.app).commands[command].params
    return [each.opts[0] for each in parameters if each.param_type_name == "option"]


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The arguments with which the commands' own functions were called, which do nothing."""
    calls: list[Any] = []

    def take(*arguments: Any, **options: Any) -> ExitCode:
        calls.append((*arguments, options))
        return ExitCode.DONE

    for module, name in HANDED_TO.values():
        monkeypatch.setattr(module, name, take)
    return calls


@pytest.mark.parametrize(("words", "option"), [(words, each) for words in REFUSED for each in REFUSED[words].split()])
def test_what_a_mode_does_not_read_is_refused_even_if_it_is_the_default(attn, tmp_path, handed, words, option):
    done = attn(*words.split(), *typed(option))
    assert (done.returncode, done.stdout, handed) == (2, "", []), done.output
    assert option in done.stderr and " does not use it" in done.stderr and done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", REFUSED)
def test_whatever_else_there_is_is_handed_on(attn, handed, words):
    command = words.split()[0]
    others = {*words.split(), *REFUSED[words].split(), *ASKING.get(words, "").split()}
    read = [option for option in options_of(command) if option not in others]
    assert attn(*words.split(), *(word for option in read for word in typed(option))).returncode == 0
    assert len(handed) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            f"table {NAME} --plan 4 --out x",
            "table: --out x: --plan does not use it; --dry-run, --render-only, --until-resolved and training do",
        ),
        (f"table {NAME} --hours 2", "table: --hours 2: training does not use it; --until-resolved does"),
        (f"table {NAME} --dry-run --plan 4", "table: --plan 4: --dry-run does not use it"),
        ("table --wandb", "table: --wandb: attn table without NAME does not use it; --dry-run, --render-only, "
         "--until-resolved and training do"),
        ("dashboard --wandb --open", "dashboard: --open: --wandb does not use it; the HTML file does"),
        ("heads a --penalty 0.1", "heads: --penalty 0.1: attn heads without --gates does not use it; --gates does"),
        ("bench --peers", "bench: --peers: --scope attention does not use it; --scope step does"),
        (
            "bench --scope answer --rounds 3",
            "bench: --rounds 3: --scope answer does not use it; --scope attention and --scope step do",
        ),
    ],
)  # fmt: skip
def test_the_refusal_names_the_option_its_value_and_the_modes_that_read_it(attn, words, said):
    assert attn(*words.split()).stderr == f"attn {said}\n"


@pytest.mark.parametrize(("command", "default"), [("table", "nano"), ("heads", "64"), ("bench", "0.02")])
def test_the_help_shows_the_defaults(attn, command, default):
    assert f"[default: {default}]" in attn(command, "--help").stdout


def test_the_mode_and_defaults_that_were_not_typed_are_handed_on(attn, handed):
    assert attn("table", NAME, "--plan", "4").returncode == attn("bench", "--scope", "answer").returncode == 0
    (_, _, of_table, _), (_, of_bench, *_) = handed
    assert (of_table.mode, of_table.budget, of_table.format, of_table.workers) == ("--plan", "nano", "table", "auto")
    assert (of_bench.rounds, of_bench.seeds, of_bench.difference) == (7, 4, 0.02)
