"""The space of a search, from overrides in Hydra's grammar, and what can't be one."""

from __future__ import annotations

import pytest

from experiments.failures.failure import Mistake
from experiments.search.space import Choice, NumberRange, space_of


@pytest.mark.parametrize(
    ("override", "parameter", "points"),
    [
        ("learning_rate=interval(1e-4,1e-2)", NumberRange("learning_rate", 1e-4, 1e-2), None),
        ("learning_rate=tag(log,interval(1e-4,1e-2))", NumberRange("learning_rate", 1e-4, 1e-2, log=True), None),
        ("heads=int(interval(2,6))", NumberRange("heads", 2, 6), 5),
        ("heads=range(2,7)", NumberRange("heads", 2, 6), 5),
        ("heads=range(2,7,2)", NumberRange("heads", 2, 6, step=2), 3),
        ("heads=range(6,1,-2)", NumberRange("heads", 2, 6, step=2), 3),
        ("learning_rate=range(0.1,0.45,0.1)", NumberRange("learning_rate", 0.1, 0.4, step=0.1), 4),
        # not 0.8999999999999999, which Optuna would take for the end of 0.0, 0.3, 0.6
        ("model.dropout=range(0.0,1.0,0.3)", NumberRange("model.dropout", 0.0, 0.9, step=0.3), 4),
        ("heads=3,6,12", Choice("heads", ("3", "6", "12")), 3),
        ("heads=3,6,3", Choice("heads", ("3", "6")), 2),
        ("learning_rate=interval(0.1,0.1)", NumberRange("learning_rate", 0.1, 0.1), 1),
        ("norm=choice(pre,post)", Choice("norm", ("pre", "post")), 2),
        ("variant=glob(talking_heads)", Choice("variant", ("talking_heads",)), 1),
    ],
)
def test_an_override_of_several_values_is_a_parameter(override, parameter, points):
    space = space_of(["layers=2", override, "hydra.sweeper.trials=3"])
    assert space.parameters == (parameter,) and space.points == points
    assert space.fixed == ("layers=2",)


def test_a_value_is_written_as_a_sweep_would_write_it():
    steps = NumberRange("learning_rate", 0.1, 0.4, step=0.1)
    assert steps.written(0.1 + 2 * 0.1) == "0.3"
    assert NumberRange("heads", 2, 6).written(3) == "3"
    assert float(NumberRange("learning_rate", 0.1, 0.4).written(0.1 + 2 * 0.1)) == 0.1 + 2 * 0.1


def test_the_ends_of_a_space_differ_from_the_first_in_one_key_and_show_every_choice():
    space = space_of(["heads=1,2,3", "learning_rate=interval(0.1,0.4)"])
    first, *others = space.ends()
    assert first == {"heads": "1", "learning_rate": "0.1"}
    assert [{key: word for key, word in each.items() if word != first[key]} for each in others] == [
        {"heads": "2"}, {"heads": "3"}, {"learning_rate": "0.4"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("heads=3", "no override has several values"),
        ("heads=tag(lgo,interval(1,2))", "there is no tag 'lgo' (did you mean log?)"),
        ("heads=tag(log,choice(1,2))", "the tag log works only with interval"),
        ("heads=tag(log,range(1,9,2))", "cannot have steps"),
        ("learning_rate=tag(log,interval(0,1))", "must be above 0"),
        ("learning_rate=interval(1,0.1)", "the lower one first"),
        ("learning_rate=interval(0,inf)", "finite"),
        ("heads=range(3,3)", "lists no value"),
        ("variant=glob(nothing*)", "lists no value"),
    ],
)
def test_what_can_not_be_drawn_is_refused_by_its_override(override, said):
    with pytest.raises(Mistake, match=said.replace("(", r"\(").replace(")", r"\)").replace("?", r"\?")):
        space_of([override])
