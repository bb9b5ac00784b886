"""The overrides of a row's cells, from those of its budget, its own and the user's: what is said later wins."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from experiments.settings.mistake import Mistake, nearest
from experiments.tables.definition.table import Budget, Row

SET_BY_OPTION = {"seed": "--seeds", "runs": "--runs"}  # keys that an option of `attn table` sets
FINETUNE_PREFIX = "finetune."


def row_overrides(rows: Mapping[str, Row], budget: Budget, user_overrides: Sequence[str]) -> dict[str, list[str]]:
    """The overrides of each row's cells.

    Raises Mistake for an override of the user's that the table varies, that an option sets, or that is about a
    fine-tuning the budget doesn't have.
    """
    of_pretraining, of_finetuning = by_stage(user_overrides)
    for name in of_finetuning:
        if name not in budget.finetune:
            known = ", ".join(budget.finetune) or "nothing"
            raise Mistake(f"{FINETUNE_PREFIX}{name}: this budget fine-tunes {known}" + nearest(name, budget.finetune))
    _check_free(rows, of_pretraining)
    of_budget = parse(budget.overrides)
    overrides = {}
    for key, row in rows.items():
        of_row = parse(row.overrides)
        # in a group that the user chooses, what the row sets stays: by it the rows differ
        inside_groups = [override for override in of_row if "." in key_of(override)]
        overrides[key] = merged(of_budget, _learning_rate(row, budget), of_row, of_pretraining, inside_groups)
    return overrides


def by_stage(overrides: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """(those of the pretraining, those of each fine-tuning by its name): `finetune.NAME.KEY=VALUE` is KEY=VALUE."""
    of_pretraining = [override for override in overrides if not override.startswith(FINETUNE_PREFIX)]
    of_finetuning: dict[str, list[str]] = {}
    for override in overrides:
        if override.startswith(FINETUNE_PREFIX):
            name, _, rest = override.removeprefix(FINETUNE_PREFIX).partition(".")
            of_finetuning.setdefault(name, []).append(rest)
    return of_pretraining, of_finetuning


def parse(text: str) -> list[str]:
    """The overrides of a YAML; sizes that follow from others, ${...}, in the quotes that Hydra's grammar wants."""
    parts = (override.partition("=") for override in shlex.split(text))
    return [f"{key}='{value}'" if "${" in value else f"{key}{equals}{value}" for key, equals, value in parts]


def merged(*parts: list[str]) -> list[str]:
    """One override a key. A later choice of a group also discards earlier overrides of its keys."""
    by_key: dict[str, str] = {}
    for overrides in parts:
        for override in overrides:
            key = key_of(override)
            by_key = {other: text for other, text in by_key.items() if other != key and not other.startswith(f"{key}.")}
            by_key[key] = override
    return list(by_key.values())


def key_of(override: str) -> str:
    """The key that an override sets."""
    return override.partition("=")[0]


def _learning_rate(row: Row, budget: Budget) -> list[str]:
    tuning = budget.learning_rates.get(row.family or "")
    return [f"learning_rate={tuning.chosen!r}"] if tuning else []


def _check_free(rows: Mapping[str, Row], overrides: list[str]) -> None:
    varied = {key_of(override): row for row in rows.values() for override in parse(row.overrides)}
    for override in overrides:
        key = key_of(override)
        if "=" not in override:
            raise Mistake(f"{override!r} is not an override", "write key=value, for example layers=2")
        if key in SET_BY_OPTION:
            raise Mistake(f"{override}: in a table, {SET_BY_OPTION[key]} sets {key}")
        if key in varied:
            raise Mistake(f"{override}: the table itself sets {key}, for example in {varied[key].label!r}")
