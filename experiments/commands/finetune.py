"""`attn finetune RUN task=NAME`: the words are checked and handed to what trains, sweeps and shows any run."""

from __future__ import annotations

from pathlib import Path

from experiments.commands.train import DRY_RUN, launch
from experiments.config.command_line import MULTIRUN_FLAGS, only_asks, split_words
from experiments.config.pretrained import check_keys
from experiments.record.find import find_run
from experiments.settings.mistake import ExitCode, Mistake


def finetune(words: list[str]) -> ExitCode:
    """Do what the words after `attn finetune` say; the exit code. Raises Mistake before anything is changed."""
    overrides, flags = split_words([word for word in words if word != DRY_RUN])
    names = [word for word in overrides if "=" not in word]
    others = [word for word in overrides if "=" in word]
    flags += [DRY_RUN] if DRY_RUN in words else []
    if not names and only_asks(flags):
        return launch([*others, *flags], "finetune")
    if not names:
        raise Mistake("which run?", "attn finetune RUN task=NAME; `attn compare` lists the finished ones")
    check_keys(others)
    if len(names) > 1 and not MULTIRUN_FLAGS & set(flags):
        raise Mistake(f"{' and '.join(names)}: several runs are a sweep", "add -m")
    runs = next((Path(word.partition("=")[2]) for word in others if word.startswith("runs=")), Path("runs"))
    found = [str(find_run(name, runs)) for name in names]
    return launch([*others, *flags, f"pretrained={','.join(map(_quoted, found))}"], "finetune")


def _quoted(path: str) -> str:
    """As Hydra's grammar reads any text."""
    escaped = path.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
