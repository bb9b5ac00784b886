"""What `attn heads` has measured, as the page holds it."""

from __future__ import annotations

import json

import pytest

from experiments.dashboard import page
from experiments.dashboard.head_numbers import heads_of, matrices
from experiments.dashboard.page import page_data
from experiments.results.index import Index
from tests.fixtures.growth import takes_linear_time


@pytest.mark.parametrize("talking", [True, False])
def test_by_layer_and_head_with_three_digits(make, measured, tmp_path, talking):
    folder = make("a")
    measured(folder, talking=talking)
    with Index(tmp_path / "runs") as index:
        (found,) = heads_of(folder, index).values()
    assert found["measures"] == {"entropy": [[1.1, 1.2], [2.1]], "gradient": [[0.5, 1.0], [0.5]]}
    assert found["roles"] == [["r11", "r12"], ["r21"]]
    assert sorted(found["plane"])[0] == [1, 1, 0.333, 0.0]
    matrix = [[11.0, 12.0, 13.0], [21.0, 22.0, 23.0]]
    assert found["projections"] == ({"P_l": [matrix, matrix], "P_w": [matrix, matrix]} if talking else {})


def test_an_encoder_decoder_has_three_kinds_of_attention(make, measured, tmp_path):
    folder = make("a")
    measured(folder, sides=True)
    with Index(tmp_path / "runs") as index:
        found = heads_of(folder, index)
    assert list(found) == ["encoder", "decoder", "cross"]
    assert [each["measures"]["entropy"][0][0] for each in found.values()] == [1.1, 11.1, 21.1]
    assert "previous" in found["decoder"]["measures"] and "previous" not in found["cross"]["measures"]
    assert all(len(each["plane"]) == 3 and len(each["projections"]["P_l"]) == 2 for each in found.values())


def test_heads_without_a_softmax_have_only_their_importance(make, measured, tmp_path):
    folder = make("a")
    measured(folder, talking=False)
    for name in ("heads", "plane"):
        (folder / "heads" / f"{name}.parquet").unlink()
    with Index(tmp_path / "runs") as index:
        found = heads_of(folder, index)
    assert found == {"": {"measures": {"gradient": [[0.5, 1.0], [0.5]]}, "roles": [], "plane": [], "projections": {}}}


def test_the_time_of_projections_is_linear_in_the_layers():
    def begin(layers):
        rows = [
            {"layer": layer, "matrix": "P_l", "before": before, "after": after, "value": layer}
            for layer in range(1, layers + 1)
            for before in (1, 2)
            for after in (1, 2)
        ]
        return lambda: matrices(rows)

    assert begin(3)() == {"P_l": [[[layer, layer]] * 2 for layer in (1, 2, 3)]}
    assert takes_linear_time(begin, 500)


def test_runs_that_were_not_measured_have_none(make, measured, tmp_path):
    make("a")
    measured(make("b", seed=1))
    data = page_data([], tmp_path / "runs")
    assert list(data["heads"]) == [1]
    assert len(data["notes"]) == 1


def test_heads_without_room_are_left_out_and_it_is_said(make, measured, tmp_path, monkeypatch):
    for seed in range(3):
        measured(make(f"run-{seed}", seed=seed))
    size = len(json.dumps(page_data([], tmp_path / "runs")["heads"][0], separators=(",", ":")))
    monkeypatch.setattr(page, "HEADS", 2 * size)
    data = page_data([], tmp_path / "runs")
    assert list(data["heads"]) == [0, 1]
    assert data["notes"][-1] == "There is no room here for the heads of 1 more run."


def test_a_table_of_heads_that_was_changed_is_left_out_and_named(make, measured, tmp_path):
    folder = make("a")
    measured(folder)
    table, digests = folder / "heads" / "importance.parquet", folder / "heads" / "digests.json"
    whole = table.read_bytes()
    assert list(page_data([], tmp_path / "runs")["heads"]) == [0]
    for path, content, reason in (
        (table, whole.replace(b"gradient", b"gradjent"), "importance.parquet: it was changed: its digest differs"),
        (digests, b"{}", "digests.json: it has no digest"),
        (digests, None, "heads.parquet: it has no digest"),
    ):
        table.write_bytes(whole)
        path.unlink() if content is None else path.write_bytes(content)
        data = page_data([], tmp_path / "runs")
        assert not data["heads"] and any(reason in note for note in data["notes"]), data["notes"]
