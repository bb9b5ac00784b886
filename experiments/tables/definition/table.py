"""A table as its YAML says it: rows, claims and budgets, checked. Nothing about any one table is written in Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from experiments.settings.group import Group, Positive, Size, Text
from experiments.settings.mistake import Mistake, nearest
from experiments.tables.definition.folder import learning_rates
from experiments.tables.definition.inequality import IDENTIFIER, Comparison, Part, parse

BudgetName = Literal["nano", "small", "medium", "paper"]
Direction = Literal["higher", "lower"]
IN_NATS = ("validation_loss", "distance")  # scores
Identifier = Annotated[str, Field(pattern=f"^{IDENTIFIER}$")]


class Row(Group):
    """A row of a table: a configuration, trained with every seed."""

    label: Text
    overrides: Text  # as after `attn train`, or the arguments of the source's function
    family: Text | None = None  # whose tuned learning rate it takes
    published: Text | None = None  # its row in the published table


class Printed(Group):
    """The table of the paper that the rows correspond to, and which of its numbers ours are held against."""

    table: Text
    metric: Text
    better: Direction


class Margin(Group):
    """The smallest difference of a score that would matter, such as half of a published effect of the same unit."""

    value: Positive
    reason: Text


class Scheme(Group):
    """How positions are given to every row: a claim about heads or widths has to stand under more than one."""

    label: Text
    overrides: Text


class Claim(Group):
    """An inequality between rows, or several that must all hold (see `experiments.tables.definition.inequality`)."""

    says: Text
    of: Literal["score", "step_time", "parameters"] = "score"
    budgets: list[BudgetName] | None = None  # that it is about; null: all
    parts: Annotated[list[Text], Field(min_length=1)]
    of_failure: bool = False  # about cells that do not train: those at the plateau decide as well
    published: Text | None = None  # what the paper has for it, with its evidence

    @model_validator(mode="after")
    def _numbers_are_scores(self) -> Claim:
        if self.of != "score" and any(isinstance(part, Part) and part.constant for part in self.parsed()):
            raise ValueError(f"parts: a number stands for a score, and this claim is of {self.of}")
        return self

    def parsed(self) -> list[Comparison]:
        """Every comparison of the claim, over all rows of the table."""
        return [part for sentence in self.parts for part in parse(sentence)]

    def parts_at(self, present: Mapping[str, object]) -> list[Comparison]:
        """The comparisons of the claim that the rows which are present allow."""
        return [part for sentence in self.parts for part in parse(sentence, present)]


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
    def _number(cls, value: Any) -> Any:
        return float(value) if isinstance(value, str) else value


class Budget(Group):
    """What a machine of some size can afford of a table."""

    task: Text  # how a row is scored, for the reader
    score: Text = "validation_loss"  # where the score stands in a result
    better: Direction = "lower"
    diverged: Text | None = None  # score of a cell that ended in NaN: this one of the other cells
    seeds: Size
    rows: list[Text] | None = None  # null: all
    overrides: str  # of every row
    finetune: dict[Identifier, Text] = Field(default_factory=dict)  # name -> overrides as after `attn finetune RUN`
    columns: list[Text] = Field(default_factory=list)  # as the table's, of this budget alone
    metric: Text | None = None  # the published one that this score is held against; null: the table's
    margin: Margin  # of the score; where a budget says nothing, the table's
    positions: dict[Identifier, str] | None = None  # scheme -> what it needs besides at this size; null: all, nothing
    learning_rates: dict[Text, Tuning] = Field(default_factory=dict)  # by family, or family@scheme; or a set
    note: Text | None = None

    @property
    def score_name(self) -> str:
        """The score as a column is called."""
        return self.score.rpartition(".")[2]

    @property
    def unit(self) -> str:
        """The unit of the score; empty where it has one of its own."""
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
                    f"{place}: this budget has no such fine-tuning{nearest(place, known)}; there are: {known}"
                )
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
    """A table: rows, what is claimed of them, and what each budget makes of it."""

    title: Text
    shows: Text
    paper: Text
    source: Text  # runs: cells of attn train; else a module of experiments/tables/measured or numerical
    published: Printed | None = None
    rows: Annotated[dict[Identifier, Row], Field(min_length=1)]
    baseline: Text
    columns: list[Text] = Field(default_factory=list)  # further numbers of the results to show, as means over seeds
    positions: dict[Identifier, Scheme] = Field(default_factory=dict)  # the paper's own first; empty: those of the rows
    margin: Margin  # of a loss in nats
    claims: dict[Text, Claim]
    budgets: dict[BudgetName, Budget]

    def budget(self, name: str) -> Budget:
        """The budget of that name. Raises Mistake for one that the table doesn't have."""
        for key, budget in self.budgets.items():
            if key == name:
                return budget
        raise Mistake(f"--budget {name}: must be one of {', '.join(self.budgets)}" + nearest(name, self.budgets))

    def printed_at(self, budget_name: str) -> Printed | None:
        """The published metric that a budget's score is held against."""
        budget = self.budget(budget_name)
        if self.published is None or budget.metric is None:
            return self.published
        return self.published.model_copy(update={"metric": budget.metric, "better": budget.better})

    def rows_at(self, budget_name: str) -> dict[str, Row]:
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
        """The table's margin is that of a budget whose score is a loss and that has none of its own."""
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
        named |= {
            f"claims.{key}.parts": [row for part in claim.parsed() for row in part.rows]
            for key, claim in self.claims.items()
        }
        named |= {f"budgets.{key}.rows": budget.rows or [] for key, budget in self.budgets.items()}
        for place, rows in named.items():
            for row in rows:
                if row not in self.rows:
                    raise ValueError(f"{place}: there is no row {row!r}" + nearest(row, self.rows))
        for key, budget in self.budgets.items():
            for scheme in budget.positions or ():
                if scheme not in self.positions:
                    meant = nearest(scheme, self.positions)
                    raise ValueError(f"budgets.{key}.positions: there is no scheme {scheme!r}{meant}")
            if budget.rows is not None and self.baseline not in budget.rows:
                raise ValueError(f"budgets.{key}.rows: the baseline {self.baseline} is missing")
        return self

    @model_validator(mode="after")
    def _whole_budgets(self) -> Table:
        if self.source != "runs" and any(budget.finetune for budget in self.budgets.values()):
            raise ValueError(f"source: {self.source} has nothing that could be fine-tuned")
        for key, budget in self.budgets.items():
            for row in self.rows_at(key).values() if budget.learning_rates else ():
                tuned = {family.partition("@")[0] for family in budget.learning_rates}
                if row.family not in tuned:
                    meant = nearest(str(row.family), budget.learning_rates)
                    raise ValueError(f"budgets.{key}.learning_rates: the family {row.family} has none{meant}")
        return self
