"""The definition of a table in its YAML: rows, claims and budgets, checked.

Python code never refers to a particular table.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field, field_validator, model_validator

from experiments.failures.failure import Mistake
from experiments.failures.wording import did_you_mean
from experiments.record.result_numbers import not_one_number
from experiments.settings.group import Group, Number, Positive, Text
from experiments.tables.definition.folder import learning_rates
from experiments.tables.definition.inequality import IDENTIFIER, Statement, parse

BudgetName = Literal["nano", "small", "medium", "paper"]
BUDGETS: tuple[str, ...] = get_args(BudgetName)
PAPER: BudgetName = "paper"  # the budget nearest to the paper's set-up; its learning rates count as tuned
Direction = Literal["higher", "lower"]
IN_NATS = ("validation_loss", "distance")  # scores
# who claims it; a check is true by proof or by construction, so it tests the code and is no evidence
Origin = Literal["paper", "secondary sources", "this project", "check"]
Identifier = Annotated[str, Field(pattern=f"^{IDENTIFIER}$")]
SET_BY_OPTION = {"seed": "--seeds", "runs": "--runs"}  # keys that an option of `attn table` sets


def sense_of(better: Direction) -> int:
    """The sign of a difference that is an advantage: 1 if higher is better, -1 if lower."""
    return 1 if better == "higher" else -1


def column_name(place: str) -> str:
    """The column of the number at a place of a result, such as `f1` of `finetune.squad.scores.f1`."""
    return place.rpartition(".")[2]


def _checked_words(text: str) -> str:
    try:
        keys = Counter(word.partition("=")[0] for word in shlex.split(text))
    except ValueError:
        raise ValueError(f"{text!r}: a quotation mark has no partner") from None
    for key, count in keys.items():
        if count > 1:
            raise ValueError(f"{key} is given {count} times")
        if key in SET_BY_OPTION:
            raise ValueError(f"{SET_BY_OPTION[key]} sets {key}")
    return text


Overrides = Annotated[str, AfterValidator(_checked_words)]  # as in a shell
SomeOverrides = Annotated[Overrides, Field(min_length=1)]


class TableRow(Group):
    """A row of a table: a configuration, trained with every seed."""

    label: Text
    overrides: SomeOverrides  # as after `attn train`, or the arguments of the source's function
    family: Text | None = None  # the family whose tuned learning rate it takes
    published: Text | None = None  # its row in the published table


class Printed(Group):
    """The table of the paper that the rows correspond to, and the metric that our scores are compared with."""

    table: Text
    metric: Text
    better: Direction


class Margin(Group):
    """The smallest difference of a score that would matter, such as half of a published effect in the same unit."""

    value: Positive
    reason: Text


class Scheme(Group):
    """A position encoding that all rows use. A claim about heads or widths has to hold under more than one."""

    label: Text
    overrides: SomeOverrides


# no scheme of a file is without overrides
OWN_POSITIONS = Scheme.model_construct(label="those of the rows", overrides="")


class Claim(Group):
    """An inequality between rows, or several that must all hold (see `experiments.tables.definition.inequality`)."""

    says: Text
    of: Literal["score", "step_time", "parameters"] = "score"
    budgets: list[BudgetName] | None = None  # the budgets that it is about; null: all
    parts: Annotated[list[Text], Field(min_length=1)]
    of_failure: bool = False  # cells that fail to train decide what is better; not what is as good
    origin: Origin
    published: Text | None = None  # the evidence for it

    @model_validator(mode="after")
    def _relations_of_its_numbers(self) -> Claim:
        if self.of != "score" and any(part.constant for part in self.parsed()):
            raise ValueError(f"parts: a number stands for a score, but this claim is of {self.of}")
        counted = self.of == "parameters"
        signs = (">", "=") if counted else (">", ">~", "~")
        for part in self.parsed():
            if part.relation not in signs or (counted and part.steps):
                raise ValueError(f"parts: {part}: a claim of {self.of} compares two sides with {' or '.join(signs)}")
        return self

    @property
    def paired_by(self) -> str:
        """What the numbers of its comparisons share: a seed, or a round of the bench."""
        return "round" if self.of == "step_time" else "seed"

    def parsed(self) -> list[Statement]:
        """Every comparison of the claim, over all rows of the table."""
        return [part for sentence in self.parts for part in parse(sentence)]

    @property
    def rows(self) -> list[str]:
        """The rows that it compares, over all rows of the table, each once."""
        return list(dict.fromkeys(row for part in self.parsed() for row in part.rows))

    def parts_at(self, present: Mapping[str, object]) -> list[Statement]:
        """The comparisons of the claim that can be made with the rows that are present."""
        return [part for sentence in self.parts for part in parse(sentence, present)]


class Tuning(Group):
    """The learning rate of a family of rows, with the rates that were tried."""

    chosen: Positive | None  # null: that of the budget's settings
    where: Text  # cell, steps and seeds of the trials
    # learning rate -> mean score; empty: not tuned; null: the paper's own rate
    tried: Annotated[dict[Positive, float], Field(strict=False)] | None
    limits: Text | None = None  # in what its trials fell short of those of `--tune`, such as `one seed`

    @property
    def is_fair(self) -> bool:
        """Whether the rate was chosen for this family, by trials or by the paper."""
        return self.tried is None or bool(self.tried)

    @field_validator("tried", mode="before")
    @classmethod
    def _numbers(cls, tried: Any) -> Any:
        # YAML reads 3e-3 as text
        return {float(rate): score for rate, score in tried.items()} if isinstance(tried, dict) else tried

    @field_validator("chosen", mode="before")
    @classmethod
    def _number(cls, value: Any) -> Any:
        return float(value) if isinstance(value, str) else value


UNTUNED = Tuning(chosen=None, where="not tuned", tried={})


class Budget(Group):
    """The form of a table for machines of some size."""

    task: Text  # how a row is scored, for the reader
    score: Text = "validation_loss"  # where the score stands in a result
    better: Direction = "lower"
    diverged: Text | None = None  # a cell that ended in NaN gets this number of the other cells as its score
    seeds: Number
    rows: list[Text] | None = None  # null: all
    overrides: Overrides  # of every row
    # name -> overrides as after `attn finetune RUN`
    finetune: dict[Identifier, SomeOverrides] = Field(default_factory=dict)
    columns: list[Text] = Field(default_factory=list)  # like the table's, for this budget alone
    metric: Text | None = None  # published metric that this score is compared with; null: the table's
    margin: Margin  # of the score; a budget without one takes the table's
    trend_margin: Margin | None = None  # of a trend over all of its sizes; null: margin
    positions: dict[Identifier, Overrides] | None = (
        None  # scheme -> overrides that it needs at this size; null: all schemes, no overrides
    )
    learning_rates: dict[Text, Tuning] = Field(default_factory=dict)  # by family, or family@scheme; or a set
    note: Text | None = None

    @property
    def score_name(self) -> str:
        """The name of the score's column."""
        return column_name(self.score)

    @property
    def sense(self) -> int:
        """The sign of a difference of the score that is an advantage: 1 or -1."""
        return sense_of(self.better)

    def margin_of(self, part: Statement) -> Margin:
        """The smallest difference that would matter in a comparison of scores."""
        return (self.trend_margin if part.steps else None) or self.margin

    @property
    def unit(self) -> str:
        """The unit of the score; empty if the score has none."""
        return "nats" if self.score_name in IN_NATS else ""

    @field_validator("learning_rates", mode="before")
    @classmethod
    def _set(cls, rates: Any) -> Any:
        return learning_rates(rates) if isinstance(rates, str) else rates

    @model_validator(mode="after")
    def _scores_of_tasks(self) -> Budget:
        for place in (self.score, *self.columns):
            first, *rest = place.split(".")
            if first == "finetune" and (len(rest) != 3 or rest[0] not in self.finetune or rest[1] != "scores"):
                known = [f"finetune.{name}.scores.METRIC" for name in self.finetune]
                raise ValueError(
                    f"{place}: this budget has no such fine-tuning{did_you_mean(place, known)}; there are: {known}"
                )
        if self.diverged and self.score.startswith("finetune."):
            raise ValueError(f"diverged: {self.diverged} is a loss, and can't stand in for {self.score}")
        return self

    @model_validator(mode="after")
    def _best_rate(self) -> Budget:
        for family, tuning in self.learning_rates.items():
            scores = tuning.tried or {}
            if scores and tuning.chosen != max(scores, key=lambda rate: self.sense * scores[rate]):
                raise ValueError(f"learning_rates.{family}: {tuning.chosen} is not the best of those tried")
        return self


class Table(Group):
    """A table: its rows, the claims about them, and its budgets."""

    title: Text
    shows: Text
    paper: Text
    source: Text  # runs: cells of attn train; else a module of experiments/tables/measured or numerical
    published: Printed | None = None
    rows: Annotated[dict[Identifier, TableRow], Field(min_length=1)]
    baseline: Text
    columns: list[Text] = Field(default_factory=list)  # further numbers of the results to show, as means over seeds
    positions: dict[Identifier, Scheme] = Field(default_factory=dict)  # the paper's own first; empty: those of the rows
    margin: Margin  # of a loss in nats
    claims: dict[Text, Claim]
    budgets: dict[BudgetName, Budget]

    def budget(self, name: str) -> Budget:
        """The budget of that name. Raises Mistake if the table does not have it."""
        for key, budget in self.budgets.items():
            if key == name:
                return budget
        raise Mistake(f"--budget {name}: must be one of {', '.join(self.budgets)}" + did_you_mean(name, self.budgets))

    def printed_at(self, budget_name: str) -> Printed | None:
        """The published metric that a budget's score is compared with."""
        budget = self.budget(budget_name)
        if self.published is None or budget.metric is None:
            return self.published
        return self.published.model_copy(update={"metric": budget.metric, "better": budget.better})

    def rows_at(self, budget_name: str) -> dict[str, TableRow]:
        """The rows of a budget, in the table's order."""
        row_keys = self.budget(budget_name).rows
        return {key: row for key, row in self.rows.items() if row_keys is None or key in row_keys}

    def claims_at(self, budget_name: str) -> dict[str, Claim]:
        """The claims that are about a budget, in the table's order."""
        return {
            key: claim for key, claim in self.claims.items() if claim.budgets is None or budget_name in claim.budgets
        }

    def schemes_at(self, budget_name: str) -> dict[str, Scheme]:
        """The schemes of positions of a budget, in the table's order."""
        chosen = self.budget(budget_name).positions
        return {key: scheme for key, scheme in self.positions.items() if chosen is None or key in chosen}

    @model_validator(mode="before")
    @classmethod
    def _margins(cls, tree: Any) -> Any:
        """A budget without a margin takes the table's, if its score is a loss."""
        budgets = tree.get("budgets") if isinstance(tree, dict) else None
        if not isinstance(budgets, dict) or "margin" not in tree:
            return tree
        losses = {
            key: {"margin": tree["margin"], **budget}
            for key, budget in budgets.items()
            if isinstance(budget, dict) and budget.get("better", "lower") == "lower"
        }
        return {**tree, "budgets": {**budgets, **losses}}

    @model_validator(mode="after")
    def _known_rows(self) -> Table:
        named = {"baseline": [self.baseline]}
        named |= {f"claims.{key}.parts": claim.rows for key, claim in self.claims.items()}
        named |= {f"budgets.{key}.rows": budget.rows or [] for key, budget in self.budgets.items()}
        if self.published is None and (printed := [key for key, row in self.rows.items() if row.published]):
            raise ValueError(f"rows.{printed[0]}.published: the table itself has no key published")
        for place, rows in named.items():
            for row in rows:
                if row not in self.rows:
                    known = ", ".join(self.rows)
                    raise ValueError(
                        f"{place}: there is no row {row!r}{did_you_mean(row, self.rows)}; there are: {known}"
                    )
        for key, budget in self.budgets.items():
            for scheme in budget.positions or ():
                if scheme not in self.positions:
                    meant = did_you_mean(scheme, self.positions)
                    raise ValueError(f"budgets.{key}.positions: there is no scheme {scheme!r}{meant}")
            if budget.rows is not None and self.baseline not in budget.rows:
                raise ValueError(f"budgets.{key}.rows: the baseline {self.baseline} is missing")
        return self

    @model_validator(mode="after")
    def _whole_budgets(self) -> Table:
        if self.source != "runs" and any(budget.finetune for budget in self.budgets.values()):
            raise ValueError(f"source: {self.source} trains nothing that could be fine-tuned")
        self._check_numbers()
        for key, budget in self.budgets.items():
            if budget.learning_rates:
                self._check_rates(key, budget.learning_rates)
        return self

    def _check_rates(self, budget_name: str, rates: Mapping[str, Tuning]) -> None:
        """Raises ValueError for a row without a rate under a scheme, and for a rate under one that does not exist."""
        place, schemes = f"budgets.{budget_name}.learning_rates", self.schemes_at(budget_name)
        families = [rate.partition("@")[0] for rate in rates]
        for rate in rates:
            _, at, scheme = rate.partition("@")
            if at and scheme not in schemes:
                meant = did_you_mean(scheme, schemes)
                raise ValueError(f"{place}: {rate}: the budget has no scheme {scheme!r}{meant}")
        for key, row in self.rows_at(budget_name).items():
            if row.family is None:
                known = ", ".join(dict.fromkeys(families))
                raise ValueError(f"{place}: the row {key} has no family; there are: {known}")
            if row.family not in families:
                meant = did_you_mean(row.family, families)
                raise ValueError(f"{place}: the family {row.family} has no learning rate{meant}")
            for scheme in schemes:
                if rates.keys().isdisjoint({row.family, f"{row.family}@{scheme}"}):
                    raise ValueError(f"{place}: the family {row.family} has no learning rate under the scheme {scheme}")

    def _check_numbers(self) -> None:
        """Raises ValueError for a score that is no number of a result of `attn train`; other sources have their own."""
        named = {"columns": self.columns}
        for key, budget in self.budgets.items():
            named[f"budgets.{key}.score"] = [budget.score]
            named[f"budgets.{key}.diverged"] = [budget.diverged] if budget.diverged else []
            named[f"budgets.{key}.columns"] = budget.columns
        for where, places in named.items() if self.source == "runs" else ():
            for place in places:
                # those of fine-tunings are checked with the task
                if not place.startswith("finetune.") and (wrong := not_one_number(place)):
                    raise ValueError(f"{where}: {wrong}")
