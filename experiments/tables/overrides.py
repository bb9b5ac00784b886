"""The words of a cell, from those of its budget, its row and the user: what is said later wins."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from experiments.settings.mistake import Mistake, nearest
from experiments.tables.definition import Budget, Row

OWN = {"seed": "--seeds", "runs": "--runs"}  # keys that an option of `attn table` sets
FINETUNE = "finetune."


def of_rows(rows: Mapping[str, Row], budget: Budget, given: Sequence[str]) -> dict[str, list[str]]:
    """The words of each row. Raises Mistake for a given key that the table varies or that an option sets."""
    given, of_tasks = apart(given)
    for name in of_tasks:
        if name not in budget.finetune:
            known = ", ".join(budget.finetune) or "nothing"
            raise Mistake(f"{FINETUNE}{name}: this budget fine-tunes {known}" + nearest(name, budget.finetune))
    _check_given(rows, given)
    common = split(budget.words)
    found = {}
    for key, row in rows.items():
        own = split(row.words)
        # in a group that the user chooses, what the row sets stays: by it the rows differ
        inside = [word for word in own if "." in key_of(word)]
        found[key] = merged(common, _rate(row, budget), own, given, inside)
    return found


def apart(given: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """The user's words for every cell, and those `finetune.NAME.KEY=VALUE` for fine-tuning as NAME: KEY=VALUE."""
    of_cells = [word for word in given if not word.startswith(FINETUNE)]
    of_tasks: dict[str, list[str]] = {}
    for word in given:
        if word.startswith(FINETUNE):
            name, _, rest = word.removeprefix(FINETUNE).partition(".")
            of_tasks.setdefault(name, []).append(rest)
    return of_cells, of_tasks


def split(text: str) -> list[str]:
    """The words of a YAML; sizes that follow from others, ${...}, in the quotes that Hydra's grammar wants."""
    parts = (word.partition("=") for word in shlex.split(text))
    return [f"{key}='{value}'" if "${" in value else f"{key}{equals}{value}" for key, equals, value in parts]


def merged(*parts: list[str]) -> list[str]:
    """One word a key. A later choice of a group also puts away what was set inside of it before."""
    kept: dict[str, str] = {}
    for words in parts:
        for word in words:
            key = key_of(word)
            kept = {other: text for other, text in kept.items() if other != key and not other.startswith(f"{key}.")}
            kept[key] = word
    return list(kept.values())


def key_of(word: str) -> str:
    return word.partition("=")[0]


def _rate(row: Row, budget: Budget) -> list[str]:
    tuning = budget.learning_rates.get(row.family or "")
    return [f"learning_rate={tuning.chosen!r}"] if tuning else []


def _check_given(rows: Mapping[str, Row], given: list[str]) -> None:
    varied = {key_of(word): row for row in rows.values() for word in split(row.words)}
    for word in given:
        key = key_of(word)
        if "=" not in word:
            raise Mistake(f"{word!r} is not an override", "write key=value, for example layers=2")
        if key in OWN:
            raise Mistake(f"{word}: in a table, {OWN[key]} sets {key}")
        if key in varied:
            raise Mistake(f"{word}: the table itself sets {key}, for example in {varied[key].label!r}")
