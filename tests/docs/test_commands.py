"""Every `attn` command of every page is one that `attn` accepts."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

import cli
from experiments.commands.train import take_options
from experiments.config.command_line import only_prints, split_arguments
from experiments.launch.plan import plan
from experiments.tables.definition.folder import names

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.compile(r"^```(?:bash|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PAGES = {
    path: [shlex.split(line, comments=True)[1:] for block in BLOCKS.findall(text) for line in block.splitlines()
           if line.startswith("attn ")]
    for path in sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    if (text := path.read_text(encoding="utf-8"))
}  # fmt: skip
# what a reader of the page adds to the project first
ADDED = ("plugins=mine", "mine/mixing")


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("page", [page for page, commands in PAGES.items() if commands], ids=lambda page: page.stem)
def test_the_commands_of_a_page_are_accepted(page):
    commands = typer.main.get_command(cli.app).commands
    for name, *words in PAGES[page]:
        if set(words) & set(ADDED):
            continue
        if name == "train":
            _, rest = take_options(words)
            overrides, flags = split_arguments(rest)
            assert only_prints(flags) or plan(overrides, flags).cells, words
        else:
            # click refuses options and missing arguments
            context = commands[name].make_context(name, list(words))
            if name == "table" and context.params["name"]:
                assert context.params["name"] in names()
