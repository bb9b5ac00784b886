"""`attn finetune RUN task=NAME`: checks the arguments and passes them on to the code that trains any run."""

from __future__ import annotations

from pathlib import Path

from experiments.commands.train import launch_with, take_options
from experiments.config.command_line import (
    MULTIRUN_FLAGS,
    CommandLine,
    check_overrides,
    question,
    quoted,
    split_arguments,
)
from experiments.config.pretrained import check_keys
from experiments.config.primary import FINETUNING
from experiments.failures.exit_code import ExitCode
from experiments.failures.failure import Mistake
from experiments.results.find import find_run, is_name
from experiments.results.selection import settings_in


def finetune(arguments: list[str]) -> ExitCode:
    """Carry out the command and return the exit code. Raises Mistake before anything is changed."""
    options, rest = take_options(arguments)
    words, flags = split_arguments(rest)
    runs = _runs([word for word in words if word.lstrip("+").startswith("runs=")])
    names = [word for word in words if is_name(word, runs)]
    overrides = settings_in(words, runs)
    if not names and question(flags):
        return launch_with(options, CommandLine(overrides, flags, FINETUNING))
    if not names:
        raise Mistake("which run?", "attn finetune RUN task=NAME; `attn compare` lists the finished ones")
    check_keys(overrides)
    if len(names) > 1 and not MULTIRUN_FLAGS & set(flags):
        raise Mistake(f"{' and '.join(names)}: several values need a sweep", "add -m")
    folders = [str(find_run(name, runs)) for name in names]
    pretrained = f"pretrained={','.join(map(quoted, folders))}"
    return launch_with(options, CommandLine([*overrides, pretrained], flags, FINETUNING))


def _runs(overrides: list[str]) -> Path:
    """The folder of the run folders. Raises Mistake for a sweep over several, because the runs are looked for in it."""
    for override, text in zip(check_overrides(overrides, FINETUNING), overrides, strict=True):
        if override.key_or_group == "runs":
            if override.is_sweep_override():
                raise Mistake(f"{text}: must be one folder", "give the runs by their paths")
            return Path(str(override.value()))
    return Path("runs")
