"""`attn finetune RUN task=NAME`: the words are checked and handed to what trains, sweeps and shows any run."""

from __future__ import annotations

from pathlib import Path

from experiments.command_line import MULTIRUN_FLAGS, only_asks, split_words
from experiments.compare import find_run
from experiments.explain import options
from experiments.finetune.pretrained import DECIDED
from experiments.launch import DRY_RUN, launch
from experiments.mistake import Mistake, nearest


def finetune(words: list[str]) -> int:
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


def check_keys(words: list[str]) -> None:
    """Raises Mistake for what the pretrained run decides, and without a task."""
    keys = {word.partition("=")[0]: word for word in words}
    for key, word in keys.items():
        if key.split(".")[0] in DECIDED:
            raise Mistake(f"{word}: {key} is the pretrained run's", "attn finetune --help lists what can be set")
        if key in ("pretrained", "origin"):
            raise Mistake(f"{word}: the run is named without a key", "attn finetune RUN task=NAME")
    if "task" not in keys:
        known = options("task")
        wrong = next((key for key in keys if nearest(key, ["task"])), "")
        raise Mistake(
            "which task?" + (nearest(wrong, ["task"]) if wrong else ""), f"task=NAME; there are: {', '.join(known)}"
        )


def _quoted(path: str) -> str:
    """As Hydra's grammar reads any text."""
    escaped = path.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
