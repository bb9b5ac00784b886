"""The overrides of a row's cells: those of its budget, its own and the user's, where a later one wins."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from experiments.config.command_line import check_overrides
from experiments.failures.failure import Mistake, once
from experiments.failures.wording import did_you_mean
from experiments.record.folder import LOCATION_KEYS, SHARING_KEYS
from experiments.tables.definition.table import SET_BY_OPTION, Budget, TableRow

FINETUNE_PREFIX = "finetune."


def row_overrides(rows: Mapping[str, TableRow], budget: Budget, user_overrides: Sequence[str]) -> dict[str, list[str]]:
    """The overrides of each row's cells.

    Raises Mistake for an override of the user's that sets a key which the table varies or an option sets, and for one
    of a fine-tuning that the budget does not have.
    """
    of_pretraining, of_finetuning = by_stage(user_overrides)
    for name in of_finetuning:
        if name not in budget.finetune:
            known = ", ".join(budget.finetune) or "nothing"
            raise Mistake(
                f"{FINETUNE_PREFIX}{name}: this budget fine-tunes {known}" + did_you_mean(name, budget.finetune)
            )
    _check_free(rows, of_pretraining)
    of_budget = parse(budget.overrides)
    overrides = {}
    for key, row in rows.items():
        of_row = parse(row.overrides)
        # in a group that the user chooses, the keys that the row sets stay, because the rows differ by them
        inside_groups = [override for override in of_row if "." in key_of(override)]
        overrides[key] = merged(of_budget, _learning_rate(row, budget), of_row, of_pretraining, inside_groups)
    return overrides


def by_stage(overrides: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """The overrides of the pretraining, and those of each fine-tuning by its name: `finetune.NAME.KEY=VALUE` becomes
    KEY=VALUE. Raises Mistake for a key that is given twice.
    """
    of_pretraining: list[str] = []
    of_finetuning: dict[str, list[str]] = {}
    for override in once((key_of(override), override) for override in overrides).values():
        if override.startswith(FINETUNE_PREFIX):
            name, _, rest = override.removeprefix(FINETUNE_PREFIX).partition(".")
            of_finetuning.setdefault(name, []).append(rest)
        else:
            of_pretraining.append(override)
    return of_pretraining, of_finetuning


def parse(text: str) -> list[str]:
    """The overrides of a YAML. Sizes that follow from others, ${...}, get the quotes that Hydra's grammar requires."""
    parts = (override.partition("=") for override in shlex.split(text))
    return [f"{key}='{value}'" if "${" in value else f"{key}{equals}{value}" for key, equals, value in parts]


def merged(*parts: list[str]) -> list[str]:
    """One override for each key. A choice of a group also discards the group's keys in earlier parts."""
    by_key: dict[str, str] = {}
    for overrides in parts:
        chosen = {key_of(override) for override in overrides}
        kept = {
            key: text for key, text in by_key.items() if not any(f"{key}.".startswith(f"{each}.") for each in chosen)
        }
        by_key = kept | {key_of(override): override for override in overrides}
    return list(by_key.values())


def deciding(overrides: Sequence[str]) -> list[str]:
    """The overrides that can change a result. They are those of the settings from which run folders are named."""
    kept = [
        override
        for override in overrides
        if key_of(override).partition(".")[0] not in LOCATION_KEYS and key_of(override) not in SHARING_KEYS
    ]
    return [re.sub(r"^(trainer\.device=cuda):\d+$", r"\1", override) for override in kept]


def key_of(override: str) -> str:
    """The key that an override sets."""
    return override.partition("=")[0]


def _learning_rate(row: TableRow, budget: Budget) -> list[str]:
    tuning = budget.learning_rates.get(row.family or "")
    return [f"learning_rate={tuning.chosen!r}"] if tuning and tuning.chosen else []


def _check_free(rows: Mapping[str, TableRow], overrides: list[str]) -> None:
    varied = {key_of(override): row for row in rows.values() for override in parse(row.overrides)}
    for override, parsed in zip(overrides, check_overrides(overrides), strict=True):
        key = key_of(override)
        if key.startswith("hydra"):
            raise Mistake(f"{override}: a table trains on this machine", "`attn train -m` takes launchers and sweepers")
        if parsed.is_sweep_override():
            raise Mistake(f"{override}: a table takes one value of a setting", "a table of your own can vary it")
        if key in SET_BY_OPTION:
            raise Mistake(f"{override}: in a table, {SET_BY_OPTION[key]} sets {key}")
        if key in varied:
            raise Mistake(f"{override}: the table itself sets {key}, for example in {varied[key].label!r}")
