"""The user's request for a table."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from experiments.failures.wording import joined
from experiments.files.digest import digest
from experiments.record.folder import LOCATION_KEYS
from experiments.settings import plugins
from experiments.tables.definition.folder import check_name, files_start, read
from experiments.tables.definition.overrides import by_stage, deciding, key_of
from experiments.tables.definition.table import (
    BUDGETS,
    OWN_POSITIONS,
    PAPER,
    UNTUNED,
    Budget,
    Claim,
    Printed,
    Scheme,
    Table,
    TableRow,
    Tuning,
    column_name,
)

RATE = "learning_rate"  # key of the setting
# groups and keys for which a learning rate need not be tuned again: the text, which a table names, and how and where
# a run is computed, evaluated and kept
FREE_OF_RATE = LOCATION_KEYS | {
    "data", "precision", "backend", "trainer.precision", "trainer.device", "trainer.devices", "trainer.sharded",
    "trainer.threads", "trainer.compile", "trainer.micro_batch", "trainer.evaluate_every",
    "trainer.evaluation_sequences", "trainer.log_every", "trainer.checkpoint_every",
}  # fmt: skip


@dataclass(frozen=True)
class Configuration:
    """A row under one scheme of positions. With a seed, it is a cell."""

    row: str
    scheme: str  # empty in a table without schemes
    definition: TableRow  # with the overrides of the scheme

    @property
    def key(self) -> str:
        """The key of the configuration."""
        return configuration_key(self.row, self.scheme)


@dataclass(frozen=True)
class Request:
    """A table at a budget, with its seeds, further overrides, and the folder of its cells."""

    name: str  # PAPER/TABLE
    table: Table
    budget_name: str
    seeds: range
    overrides: Sequence[str] = ()  # of every cell; `finetune.NAME.KEY=VALUE` is of a fine-tuning
    runs: Path = Path("runs")
    published_file: Path | None = None  # YAML with published numbers that the user has read
    # whether the user asked for these seeds; otherwise they are the budget's, with all that have begun
    names_seeds: bool = False
    chosen_claims: Sequence[str] = ()  # empty: all that are about the budget

    @property
    def budget(self) -> Budget:
        """The budget of the request."""
        return self.table.budget(self.budget_name)

    @property
    def rows(self) -> dict[str, TableRow]:
        """The rows of this budget; if the user chose claims, those that they compare, and the baseline."""
        rows = self.table.rows_at(self.budget_name)
        if not self.chosen_claims:
            return rows
        compared = {row for claim in self.claims.values() for part in claim.parts_at(rows) for row in part.rows}
        return {key: row for key, row in rows.items() if key in compared | {self.table.baseline}}

    @property
    def claims(self) -> dict[str, Claim]:
        """The claims that are about this budget, or those of them that the user chose."""
        claims = self.table.claims_at(self.budget_name)
        return {key: claim for key, claim in claims.items() if not self.chosen_claims or key in self.chosen_claims}

    @property
    def other_claims(self) -> dict[str, Claim]:
        """The claims that are about this budget, but that the user did not choose."""
        chosen = self.claims
        return {key: claim for key, claim in self.table.claims_at(self.budget_name).items() if key not in chosen}

    @property
    def schemes(self) -> dict[str, Scheme]:
        """The schemes of positions of this budget; in a table without schemes, one without a name."""
        return self.table.schemes_at(self.budget_name) or {"": OWN_POSITIONS}

    @cached_property
    def configurations(self) -> dict[str, Configuration]:
        """Every row of this budget under each of its schemes, by key.

        All rows of a scheme stand before those of the next.
        """
        return {
            configuration_key(key, name): Configuration(key, name, self._under(row, name, scheme))
            for name, scheme in self.schemes.items()
            for key, row in self.rows.items()
        }

    @property
    def cell_count(self) -> int:
        """The number of cells with the seeds of the budget."""
        return len(self.configurations) * self.budget.seeds

    @property
    def gives_rate(self) -> bool:
        """Whether the user gives the learning rate."""
        return any(key_of(override) == RATE for override in self.overrides)

    @property
    def untuned_overrides(self) -> list[str]:
        """The user's overrides for which no learning rate was tuned, such as another optimizer or more steps."""
        of_pretraining, _ = by_stage(self.overrides)
        keys = ((key_of(override), override) for override in of_pretraining)
        return [override for key, override in keys if not {key, key.partition(".")[0]} & FREE_OF_RATE]

    @cached_property
    def tunings(self) -> dict[str, Tuning]:
        """The tuning of the learning rate of each configuration that belongs to a family.

        A family without a rate takes that of the budget's settings, which only the paper's own budget has tuned. With
        overrides for which it was not tuned, every rate counts as not tuned, as does one that the user gives.
        """
        definitions = {key: configuration.definition for key, configuration in self.configurations.items()}
        families = {key: row.family for key, row in definitions.items() if row.family}
        if self.gives_rate:
            return dict.fromkeys(families, UNTUNED.model_copy(update={"where": "given on the command line"}))
        rates = self.budget.learning_rates
        overrides = self.untuned_overrides
        if not rates and (self.budget_name != PAPER or overrides):
            rates = dict.fromkeys(families.values(), UNTUNED)
        if overrides:
            untuned = {"tried": {}, "where": f"not tuned with {joined(overrides)}"}
            rates = {family: tuning.model_copy(update=untuned) for family, tuning in rates.items()}
        return {key: rates[family] for key, family in families.items() if family in rates}

    @property
    def family_tunings(self) -> dict[str, Tuning]:
        """The tunings of the rows' learning rates, by family."""
        return {self.configurations[key].definition.family or "": tuning for key, tuning in self.tunings.items()}

    @property
    def is_untuned(self) -> bool:
        """Whether no learning rate was tuned, so that whichever row is worse, it cannot decide a claim about scores."""
        return bool(self.tunings) and not any(tuning.is_fair for tuning in self.tunings.values())

    @property
    def untuned_families(self) -> list[str]:
        """The families whose learning rate was not tuned."""
        return [family for family, tuning in self.family_tunings.items() if not tuning.is_fair]

    @property
    def printed(self) -> Printed | None:
        """The published metric that the score is compared with."""
        return self.table.printed_at(self.budget_name)

    @property
    def columns(self) -> list[str]:
        """The places of further numbers of the results to show."""
        return [*self.table.columns, *self.budget.columns]

    @property
    def column_names(self) -> list[str]:
        """The names of these columns."""
        return list(map(column_name, self.columns))

    @property
    def span(self) -> str:
        """FIRST-LAST for seeds that do not begin with 0, else empty."""
        return f"{self.seeds[0]}-{self.seeds[-1]}" if self.seeds[0] else ""

    @property
    def table_stem(self) -> str:
        """The start of the names of all files of this table and budget in the runs' folder."""
        return f"{self.name.replace('/', '-')}-{self.budget_name}"

    @property
    def settings_stem(self) -> str:
        """The start of the names of the files that do not depend on the seeds, with the claims that the user chose and
        a digest of any overrides that can change a result.
        """
        overrides = sorted(deciding(self.overrides))
        return "-".join([self.table_stem, *self._claims_in_names, *([digest(overrides)[:8]] if overrides else [])])

    @property
    def stem(self) -> str:
        """The start of names of files, and the name of a run in W&B."""
        return "-".join([self.settings_stem, *([self.span] if self.span else [])])

    @property
    def result_stem(self) -> str:
        """The start of the names of the files for readers, such as `shazeer2020_heads-small-4-7`; nano is left out."""
        budget = "" if self.budget_name == "nano" else self.budget_name
        return "-".join(filter(None, (files_start(self.name), budget, *self._claims_in_names, self.span)))

    @property
    def group(self) -> str:
        """The group of the cells in W&B."""
        return f"table-{self.name.replace('/', '-')}"

    @property
    def options(self) -> list[str]:
        """The options that choose claims and seeds."""
        return [*self._claims, *(["--seeds", self.span or str(len(self.seeds))] if self.names_seeds else [])]

    def command(self) -> str:
        """The command that makes the table.

        Of a file, or a folder of the user's own, it gives only the name, because folders differ between machines.
        """
        arguments = ["attn", "table", self.name, "--budget", self.budget_name, *self.options]
        if self.published_file:
            arguments += ["--published", self.published_file.name]
        return shlex.join([*arguments, *own_folders(), *map(without_folder, self.overrides)])

    def tuning_command(self) -> str:
        """The command that tunes the learning rates of the request's settings, on the text of the budget."""
        settings = [override for override in self.untuned_overrides if key_of(override) != RATE]
        return self._at_budget("--tune", settings)

    def dry_run_command(self) -> str:
        """The command that estimates the time of cells with the request's settings, on the text of the budget."""
        return self._at_budget("--dry-run", self.untuned_overrides)

    def until_resolved_command(self) -> str:
        """The command that makes the table until every claim is decided."""
        return self._at_budget("--until-resolved", self.untuned_overrides)

    def _at_budget(self, mode: str, settings: Sequence[str]) -> str:
        budget = [] if self.budget_name == BUDGETS[0] else ["--budget", self.budget_name]
        return shlex.join(["attn", "table", self.name, *budget, mode, *self._claims, *own_folders(), *settings])

    @property
    def _claims(self) -> list[str]:
        """The options that choose claims."""
        return [word for claim in self.chosen_claims for word in ("--claim", claim)]

    @property
    def _claims_in_names(self) -> list[str]:
        """The claims that the user chose, in the table's order, as parts of the names of files."""
        return [re.sub(r"\W+", "_", claim) for claim in self.claims] if self.chosen_claims else []

    def _under(self, row: TableRow, name: str, scheme: Scheme) -> TableRow:
        """A row with the positions of a scheme, and with the learning rate that was tuned under it if one was."""
        family = configuration_key(row.family or "", name)
        tuned_family = family if family in self.budget.learning_rates else row.family
        overrides = filter(None, (row.overrides, scheme.overrides, self.added_to_scheme(name)))
        return row.model_copy(update={"overrides": " ".join(overrides), "family": tuned_family})

    def added_to_scheme(self, name: str) -> str:
        """The overrides that this budget adds to a scheme of positions; empty for none."""
        return (self.budget.positions or {}).get(name, "")


def configuration_key(row: str, scheme: str) -> str:
    """The key of a row under a scheme of positions: ROW@SCHEME, or ROW in a table without schemes."""
    return f"{row}@{scheme}" if scheme else row


def load(name: str) -> Table:
    """The table of that name. Raises Mistake if there is none, and if its YAML is not a table."""
    check_name(name)
    return read(name, Table)


def portable_overrides(overrides: Sequence[str]) -> list[str]:
    """The overrides that can change a result; files have no folder, because folders differ between machines."""
    return [*map(without_folder, deciding(overrides))]


def own_folders() -> list[str]:
    """The arguments that name the folders of the user's own, without the folders around them."""
    return [*map(without_folder, plugins.arguments())]


def without_folder(override: str) -> str:
    """An override, in which a file is given by its name alone."""
    key, equals, value = override.partition("=")
    return f"{key}{equals}{Path(value).name}" if "/" in value else override
