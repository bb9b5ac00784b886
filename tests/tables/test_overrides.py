"""The overrides of a table's rows: which of several wins, and what a user may not set."""

from __future__ import annotations

import pytest

from experiments.config.compose import compose
from experiments.failures.failure import Mistake
from experiments.tables.definition.overrides import by_stage, merged, parse, row_overrides
from experiments.tables.definition.request import load
from experiments.tables.definition.table import Budget, Tuning


def test_a_tuned_rate_reaches_the_rows_of_its_family_and_the_command_line_wins():
    table = load("xiong2020/warmup")
    tuned = {"post": Tuning(chosen=1e-4, where="here", tried={})}
    budget: Budget = table.budgets["nano"].model_copy(update={"learning_rates": tuned})
    overrides = row_overrides(table.rows_at("nano"), budget, [])
    assert "learning_rate=0.0001" in overrides["post_warm12"] and "learning_rate=0.0001" not in overrides["pre_warm12"]
    overrides = row_overrides(table.rows_at("nano"), budget, ["learning_rate=0.5"])
    assert [word for word in overrides["post_warm12"] if "learning_rate" in word] == ["learning_rate=0.5"]


def test_later_overrides_win_and_a_group_puts_away_what_was_set_inside_it():
    assert merged(["a=1", "data=c4", "data.max_documents=3"], ["a=2", "data=text"]) == ["a=2", "data=text"]


@pytest.mark.parametrize("order", [1, -1])
def test_a_group_discards_no_key_that_is_given_beside_it_in_whatever_order(order):
    given = ["data=text", "data.train=mine.txt"][::order]
    assert merged(["data=c4", "data.max_documents=3"], given) == given


def test_a_key_that_is_given_twice_is_refused():
    with pytest.raises(Mistake, match="length is given twice: length=16 and length=16"):
        by_stage(["length=16", "data=text", "length=16"])
    with pytest.raises(Mistake, match=r"finetune\.sst2\.seed is given twice"):
        by_stage(["finetune.sst2.seed=1", "seed=1", "finetune.sst2.seed=2"])
    assert parse("heads=6 key_size=${times:4,${value_size}}") == ["heads=6", "key_size='${times:4,${value_size}}'"]


def test_a_group_that_the_user_chooses_keeps_what_the_rows_set_inside_it():
    table = load("shazeer2020/dynamic")
    overrides = row_overrides(table.rows_at("nano"), table.budgets["nano"], ["optimizer=muon"])
    rates = {row: compose(overrides[row]).optimizer.head_mixing_rate_factor for row in ("all", "all_fast")}
    assert rates == {"all": 0.1, "all_fast": 1.0}
    assert compose(overrides["all"]).optimizer.kind == "muon"


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("norm=pre", "the table itself sets norm"),
        ("seed=3", "--seeds"),
        ("runs=x", "--runs"),
        ("heads", "key=value"),
        ("hydra/launcher=joblib", "a table trains on this machine"),
        ("layers=2,3", "takes one value of a setting"),
    ],
)
def test_what_a_user_may_not_override(override, said):
    table = load("xiong2020/warmup")
    with pytest.raises(Mistake, match=said):
        row_overrides(table.rows, table.budgets["nano"], [override])
