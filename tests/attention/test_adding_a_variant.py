"""docs/adding_a_variant.md: its examples are files of the project, and its statements about settings are true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

import attention
from attention.layers.attention_layer import AttendOptions, AttentionLayer, Sizes
from experiments.failures.failure import Mistake
from experiments.model.layers.build_attention import build_attention
from experiments.settings import variant as settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/adding_a_variant.md").read_text(encoding="ascii")
EXAMPLES = re.findall(r"^`((?:attention|conf)/\S+)`\n\n```\w+\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_page_has_a_variant_of_two_files():
    assert len(EXAMPLES) == 2


@pytest.mark.parametrize(("path", "code"), EXAMPLES)
def test_an_example_is_the_file(path, code):
    assert code == (ROOT / path).read_text(encoding="ascii")


def test_the_page_names_what_a_layer_is_asked_for_and_what_it_declares():
    for name in (*Sizes._fields, *AttendOptions._fields, "project", "cost", "keep_heads", "attend", "combine"):
        assert f"`{name}" in PAGE or f"{name}," in PAGE or f"{name})" in PAGE, name
    declared = [name for name, kind in AttentionLayer.__annotations__.items() if kind.startswith("ClassVar")]
    assert declared and all(f"| `{name}` |" in PAGE for name in declared)


CLASS = """
class Attention(AttentionLayer):
    def __init__(self, hidden_size: int, dropout: float, gain: float, shift: Real) -> None: ...
"""


def test_an_annotation_decides_whether_a_number_may_be_negative(tmp_path, monkeypatch):
    (tmp_path / "example.py").write_text(CLASS)
    monkeypatch.setattr(attention, "__path__", [str(tmp_path)])
    schema = settings.schema("example")
    good = {"name": "example", "hidden_size": 1, "dropout": 0.0, "gain": 0.0, "shift": -1.5}
    assert schema(**good).shift == -1.5
    for change in ({"hidden_size": 0}, {"dropout": 1.0}, {"gain": -0.1}, {"shift": float("inf")}):
        with pytest.raises(ValidationError):
            schema(**good | change)


def test_a_stage_of_the_page_is_one_of_the_frame():
    assert all(f"`{stage}`" in PAGE for stage in AttentionLayer.stages)


def test_a_class_without_a_method_that_it_needs_is_named_with_its_file(tmp_path, monkeypatch):
    (tmp_path / "costless.py").write_text(f"from attention.layers.attention_layer import AttentionLayer\n{COSTLESS}")
    monkeypatch.setattr(attention, "__path__", [str(tmp_path), *attention.__path__])
    with pytest.raises(Mistake, match=r"/costless.py: the class Attention lacks cost and sizes$"):
        build_attention({"name": "costless"})


COSTLESS = """
class Attention(AttentionLayer):
    def __init__(self) -> None: ...

    def project(self, x, memory):
        return x, memory, memory
"""
