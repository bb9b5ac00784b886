"""The numbers that papers print, and the user's own reading of them."""

from __future__ import annotations

import pytest

from experiments.failures.failure import Mistake
from experiments.tables.definition import published
from experiments.tables.rendering.render import render
from tests.fixtures.tables import NAME
from tests.tables.known import made

pytestmark = pytest.mark.usefixtures("heads_table")


def test_the_users_own_reading_of_the_paper(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text('tables: {"1": {rows: {h8: {squad_f1: 90.5, squad_f1_pm: 0.3, mnli: null}}}}')
    text = render(made(file=file), "markdown")
    assert "90.5 +- 0.3 (u)" in text and "85 +- 0.2 (s)" in text and "90.61 +- 0.14 (s)" in text
    assert "--published mine.yaml" in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rows: {}", "contains no tables"),
        ('tables: {"1": {rows: {h9: {squad_f1: 1}}}}', "table 1 has no 'h9'"),
        ('tables: {"1": {rows: {h8: {squad_f: 1}}}}', "did you mean squad_f1"),
        ('tables: {"1": {rows: {h8: {squad_f1: much}}}}', "must be a number"),
        ('tables: {"1": {rows: {h8: {squad_f1: .nan}}}}', "must be a number"),
        ('tables: {"1": {rows: {8: {squad_f1: 90.0}}}}', "table 1 has no '8'.*did you mean h8"),
        ('tables: {"1": {rows: {h8: {1: 90.0}}}}', "table 1, row h8 has no '1'"),
        ('tables: {"2a": {rows: {h8: {squad_f1: 90.0}}}}', "the paper has no '2a'"),
        ("{", "--published .*mine.yaml: line 1: while parsing"),
        (b"a: 1\n\xff\xfe", "mine.yaml: line 2: the byte 0xff is not UTF-8"),
    ],
)
def test_a_file_of_published_numbers_that_is_wrong(tmp_path, text, said):
    file = tmp_path / "mine.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(Mistake, match=said):
        published.read(NAME, "1", file)
    with pytest.raises(Mistake, match="No such file"):
        published.read(NAME, "1", tmp_path / "absent.yaml")
