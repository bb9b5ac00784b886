"""Every command of every page is one that `attn` accepts, or runs a file or installs an extra that exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

import cli
from experiments.commands import bench, dashboard, heads, table
from experiments.commands.train import take_options
from experiments.config.command_line import CommandLine, question, split_arguments
from experiments.launch import check_cells
from experiments.launch.plan import plan
from experiments.tables.definition.folder import names

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.compile(r"^```(?:bash|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# a command with arguments within a sentence
INLINE = re.compile(r"`(attn [a-z]+ [^`]+)`")
# a word such as RUN or FOLDER, which a reader replaces
PLACEHOLDER = re.compile(r"(^|[=/.-])([A-Z]{3,}|\.\.\.)")
TEXTS = {
    path: path.read_text(encoding="utf-8")
    for path in sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
}
EXTRAS = set(re.findall(r'^(\w+) = \["', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE))
# what a reader of the page adds to the project first
ADDED = {"plugins=mine", "mine/mixing", "--config-dir", "objective=skip", "data=poems", "model.norm_kind=max",
         "model.position=distance_penalty", "backend=plain"}  # fmt: skip

# commands that have several modes, and the functions that they hand their options on to
WITH_MODES = {
    "bench": (bench, "bench"),
    "dashboard": (dashboard, "dashboard"),
    "heads": (heads, "show_heads"),
    "table": (table, "show_table"),
}


def commands_of(text: str) -> list[list[str]]:
    """The arguments of every `attn` command of a page, without those that a reader has to complete."""
    lines = [line for block in BLOCKS.findall(text) for line in block.splitlines() if line.startswith("attn ")]
    sentences = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    lines += [" ".join(command.split()) for command in INLINE.findall(sentences)]
    split = [shlex.split(line, comments=True)[1:] for line in lines]
    return [words for words in split if not any(map(PLACEHOLDER.search, words)) and not ADDED & set(words)]


PAGES = {path: commands for path, text in TEXTS.items() if (commands := commands_of(text))}


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_are_accepted(page, monkeypatch):
    # the reader of a page on GPUs has some
    monkeypatch.setattr(check_cells, "check_devices", lambda settings: None)
    commands = typer.main.get_command(cli.app).commands
    for name, *words in PAGES[page]:
        if name == "train":
            _, rest = take_options(words)
            overrides, flags = split_arguments(rest)
            assert question(flags) or plan(CommandLine(overrides, flags)).cells, words
        else:
            # click refuses options and missing arguments
            context = commands[name].make_context(name, list(words))
            if name == "table" and context.params["name"]:
                assert context.params["name"] in names()
            if name in WITH_MODES:
                # and the command itself what its mode does not read
                monkeypatch.setattr(*WITH_MODES[name], lambda *_, **__: 0)
                try:
                    commands[name].invoke(context)
                except typer.Exit as end:
                    assert not end.exit_code, words


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.stem)
def test_the_files_and_extras_of_other_commands_exist(page):
    for place in re.findall(r"(?:python|pytest(?: -n 0)?) \"?((?:scripts|tests)/[\w/.]+)", TEXTS[page]):
        assert (ROOT / place).exists(), place
    extras = re.findall(r"pip install [^`\n]*?(?:\.|attn)\[(\w+)\]", TEXTS[page])
    assert set(extras) <= EXTRAS, extras
