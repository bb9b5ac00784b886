"""A table as its YAML says it: rows, claims and budgets, checked. Nothing about any one table is written in Python.

`attn table shazeer2020/heads` is `conf/table/shazeer2020/heads.yaml`; what the paper printed is in
`conf/table/shazeer2020/published.yaml`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from experiments.config.messages import CONF
from experiments.settings.group import Group, Positive, Size, Text
from experiments.settings.mistake import Mistake, nearest
from experiments.tables.inequality import NAME, Part, parse

TABLES = CONF / "table"
PUBLISHED = "published"  # the YAML of a paper that is no table
RATES = TABLES / "nano" / "learning_rates.yaml"  # of families that several tables have
BUDGETS = ("nano", "small", "medium", "paper")

Identifier = Annotated[str, Field(pattern=f"^{NAME}$")]


class Row(Group):
    label: Text
    words: Text  # as after `attn train`, or the arguments of the source's function
    family: Text | None = None  # whose tuned learning rate it takes
    published: Text | None = None  # its row in the published table


class Printed(Group):
    """The table of the paper that the rows correspond to, and which of its numbers ours are held against."""

    table: Text
    metric: Text
    better: Literal["higher", "lower"]


class Claim(Group):
    """An inequality between rows, or several that must all hold (see `experiments.tables.inequality`)."""

    says: Text
    of: Literal["score", "step_time", "parameters"] = "score"
    parts: Annotated[list[Text], Field(min_length=1)]
    published: Text | None = None  # what the paper has for it, with its evidence

    def parsed(self) -> list[Part]:
        return [part for sentence in self.parts for part in parse(sentence)]


class Tuning(Group):
    """The learning rate of a family of rows, with what was tried: none is taken on trust."""

    chosen: Positive
    where: Text  # cell, steps and seeds of the trials
    tried: Annotated[dict[Positive, float], Field(strict=False)]  # learning rate -> mean score; empty: not tuned

    @field_validator("tried", mode="before")
    @classmethod
    def _numbers(cls, tried: Any) -> Any:
        # YAML reads 3e-3 as a text
        return {float(rate): score for rate, score in tried.items()} if isinstance(tried, dict) else tried

    @field_validator("chosen", mode="before")
    @classmethod
    def _number(cls, chosen: Any) -> Any:
        return float(chosen) if isinstance(chosen, str) else chosen


class Budget(Group):
    """What a machine of some size can afford of a table."""

    task: Text  # how a row is scored, for the reader
    score: Text = "validation_loss"  # where the score stands in a result
    better: Literal["higher", "lower"] = "lower"
    diverged: Text | None = None  # score of a cell that ended in NaN: this one of the other cells
    seeds: Size
    rows: list[Text] | None = None  # null: all
    words: str  # for every row
    finetune: dict[Identifier, Text] = Field(default_factory=dict)  # name -> words as after `attn finetune RUN`
    columns: list[Text] = Field(default_factory=list)  # as the table's, of this budget alone
    metric: Text | None = None  # the published one that this score is held against; null: the table's
    margin: Positive | None = None  # of the score: a smaller difference counts as none
    learning_rates: dict[Text, Tuning] = Field(default_factory=dict)  # by family; or the name of a set in RATES
    note: Text | None = None

    @field_validator("learning_rates", mode="before")
    @classmethod
    def _set(cls, rates: Any) -> Any:
        return rates_of(rates) if isinstance(rates, str) else rates

    @model_validator(mode="after")
    def _scores_of_tasks(self) -> Budget:
        for place in (self.score, *self.columns):
            first, *rest = place.split(".")
            if first == "finetune" and (len(rest) != 3 or rest[0] not in self.finetune or rest[1] != "scores"):
                known = [f"finetune.{name}.scores.METRIC" for name in self.finetune]
                raise ValueError(f"{place}: nothing here is fine-tuned so{nearest(place, known)}; there are: {known}")
        if self.diverged and self.score.startswith("finetune."):
            raise ValueError(f"diverged: {self.diverged} is a loss, and can't stand in for {self.score}")
        return self

    @model_validator(mode="after")
    def _best_rate(self) -> Budget:
        for family, tuning in self.learning_rates.items():
            best = min if self.better == "lower" else max
            if tuning.tried and tuning.chosen != best(tuning.tried, key=lambda rate: tuning.tried[rate]):
                raise ValueError(f"learning_rates.{family}: {tuning.chosen} is not the best of those tried")
        return self


class Table(Group):
    title: Text
    shows: Text
    paper: Text
    source: Text  # runs: cells of attn train; else a module of experiments/tables/sources
    published: Printed | None = None
    rows: Annotated[dict[Identifier, Row], Field(min_length=1)]
    baseline: Text
    columns: list[Text] = Field(default_factory=list)  # further numbers of the results to show, as means over seeds
    claims: dict[Text, Claim]
    budgets: dict[Literal["nano", "small", "medium", "paper"], Budget]

    @model_validator(mode="after")
    def _names(self) -> Table:
        known = {"baseline": [self.baseline]}
        known |= {
            f"claims.{key}.parts": [row for part in claim.parsed() for row in part.rows]
            for key, claim in self.claims.items()
        }
        known |= {f"budgets.{key}.rows": budget.rows or [] for key, budget in self.budgets.items()}
        for place, names in known.items():
            for name in names:
                if name not in self.rows:
                    raise ValueError(f"{place}: there is no row {name!r}" + nearest(name, self.rows))
        if self.source != "runs" and any(budget.finetune for budget in self.budgets.values()):
            raise ValueError(f"source: {self.source} trains nothing that could be fine-tuned")
        for key, budget in self.budgets.items():
            if budget.rows is not None and self.baseline not in budget.rows:
                raise ValueError(f"budgets.{key}.rows: the baseline {self.baseline} is missing")
            for row in self.rows_at(key).values() if budget.learning_rates else ():
                if row.family not in budget.learning_rates:
                    meant = nearest(str(row.family), budget.learning_rates)
                    raise ValueError(f"budgets.{key}.learning_rates: the family {row.family} has none{meant}")
            if budget.margin is None and any(
                part.has_margin for claim in self.claims.values() for part in claim.parsed()
            ):
                raise ValueError(f"budgets.{key}.margin is missing: a claim says that two rows are as good")
        return self

    def printed_at(self, budget: str) -> Printed | None:
        """The published metric that a budget's score is held against."""
        metric, better = self.budgets[budget].metric, self.budgets[budget].better  # type: ignore[index]
        if self.published is None or metric is None:
            return self.published
        return self.published.model_copy(update={"metric": metric, "better": better})

    def rows_at(self, budget: str) -> dict[str, Row]:
        """The rows of a budget, in the table's order."""
        chosen = self.budgets[budget].rows  # type: ignore[index]
        return {key: row for key, row in self.rows.items() if chosen is None or key in chosen}


def rates_of(name: str) -> dict[str, Any]:
    """A set of RATES: the tuning of each family. Raises ValueError."""
    sets = yaml.safe_load(RATES.read_text(encoding="utf-8"))
    if name not in sets:
        raise ValueError(f"{RATES.name} has no set {name!r}{nearest(name, sets)}; there are: {', '.join(sets)}")
    chosen = sets[name]
    return {family: {"where": chosen["where"], **tuning} for family, tuning in chosen["families"].items()}


def names() -> list[str]:
    """Every table there is, as PAPER/NAME."""
    found = (path for path in TABLES.glob("*/*.yaml") if path.stem not in (PUBLISHED, RATES.stem))
    return sorted(f"{path.parent.name}/{path.stem}" for path in found)


def load(name: str) -> Table:
    """Raises Mistake for a name that there isn't, and for a YAML that isn't a table."""
    known = names()
    if name not in known:
        without_paper = {each.split("/")[1]: each for each in known}
        meant = nearest(without_paper.get(name, name), known)
        raise Mistake(f"there is no table {name!r}" + meant, f"there are: {', '.join(known)}")
    path = TABLES / f"{name}.yaml"
    return checked(Table, yaml.safe_load(path.read_text(encoding="utf-8")), f"conf/table/{name}.yaml")


def checked(kind: type[Any], tree: Any, where: str) -> Any:
    """`tree` as a `kind`. Raises Mistake that names every wrong key."""
    try:
        return kind.model_validate(tree)
    except ValidationError as errors:
        lines = [f"{where}: {'.'.join(map(str, error['loc']))}: {error['msg']}" for error in errors.errors()]
        raise Mistake("\n".join(lines)) from errors


def budget_of(table: Table, name: str) -> Budget:
    if name not in table.budgets:
        raise Mistake(f"--budget {name}: must be one of {', '.join(table.budgets)}" + nearest(name, table.budgets))
    return table.budgets[name]
