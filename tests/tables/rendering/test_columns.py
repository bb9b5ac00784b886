"""The rows of a report as tables for people."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.tables.rendering.columns import divided, readable_table
from tests.tables.known import made

pytestmark = pytest.mark.usefixtures("heads_table")


def columns(keys: list[str]) -> list[list[str]]:
    """The columns of the tables into which one with these columns is divided."""
    return [list(rows[0]) for rows in divided([dict.fromkeys(keys)])]


def test_no_column_and_no_row_is_lost_in_two_tables():
    rows = readable_table(made())
    scores, costs = divided(rows)
    assert [first | second for first, second in zip(scores, costs, strict=True)] == rows
    assert {*scores[0]} & {*costs[0]} == {"row"}
    assert list(scores[0])[-1] == "difference" and list(costs[0])[-1] == "memory_bytes"
    keys = list(rows[0])
    assert columns(keys[:4]) == [keys[:4]]


def test_the_second_table_has_the_published_numbers_and_the_names_of_the_rows():
    published = [f"published {metric}" for metric in "abcdef"]
    assert columns(["row", "positions", "difference", "step", *published, "mark"]) == [
        ["row", "positions", "difference", "mark"], ["row", "positions", "step", *published]
    ]  # fmt: skip
    # of a table without any result yet
    assert columns(["row", "what", "heads", "d_k", *published, "mark"])[0] == ["row", "what", "heads", "d_k", "mark"]


def test_the_width_of_values_is_shown_where_it_differs_from_that_of_keys():
    report = made()
    given = {key: sizes | {"d_v": sizes["d_k"]} for key, sizes in report.given.items()}
    assert "d_v" not in readable_table(replace(report, given=given))[0]
    given["h32"] |= {"d_v": 7}
    shown = {row["row"]: row["d_v"] for row in readable_table(replace(report, given=given))}
    assert shown == {key: sizes["d_k"] for key, sizes in given.items()} | {"h32": 7}
