"""A file of a kind whose class cannot be used is named, with what it lacks."""

from __future__ import annotations

import re

import pytest

from experiments.failures.failure import Mistake
from experiments.objectives import kinds as package
from experiments.settings.kinds import kinds
from experiments.settings.objective import ObjectiveSettings

SKIP = """
from typing import ClassVar, Literal
from experiments.objectives.objective import {0}

class Skip({0}):
    architecture: ClassVar[str] = "causal_decoder"
    kind: Literal["{1}"]
    def {2}(self, vocabulary):
        raise NotImplementedError
"""


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        (
            "skip_one",
            ("ObjectiveKind", "skip_two", "build"),
            'of ObjectiveKind with the field kind: Literal["skip_one"]',
        ),
        ("skip_two", ("ObjectiveSettings", "skip_two", "build"), "has no subclass of ObjectiveKind with"),
        ("skip_three", ("ObjectiveKind", "skip_three", "biuld"), "the class Skip lacks build"),
    ],
)
def test_a_class_that_cannot_be_a_kind_is_named_with_what_it_lacks(name, words, said, tmp_path, monkeypatch):
    monkeypatch.setattr(package, "__path__", [str(tmp_path)])
    (tmp_path / f"{name}.py").write_text(SKIP.format(*words))
    with pytest.raises(Mistake, match=f"^{re.escape(str(tmp_path / name))}.py: .*{re.escape(said)}"):
        kinds("experiments.objectives.kinds", ObjectiveSettings, "ObjectiveKind")
