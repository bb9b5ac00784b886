"""The step times of a table's rows are kept for the code and the kernel that were timed."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from experiments.bench import rounds
from experiments.bench.contenders import Work
from experiments.bench.worker import Turn
from experiments.tables import step_times
from experiments.tables.definition.request import Request, load
from experiments.tables.sources.choose import source_of
from experiments.tables.step_times import NOT_MEASURED, measure, recorded
from tests.fixtures.tables import NAME
from tests.tables.known import table_under

pytestmark = pytest.mark.usefixtures("heads_table")


def table(folder, *overrides: str):
    request = Request(NAME, load(NAME), "nano", range(1), overrides, runs=folder)
    return request, source_of(request, {key: each.definition for key, each in request.configurations.items()})


def test_times_with_other_overrides_are_kept_beside_them(tmp_path, monkeypatch):
    turn = Turn(0.1, 0, ["sdpa"])
    monkeypatch.setattr(
        rounds, "timed", lambda contenders, count: [rounds.Timing([turn], turn, Work(1, 1, 1)) for _ in contenders]
    )
    plain, deeper = table(tmp_path), table(tmp_path, "layers=2")
    for request, source in (plain, deeper):
        assert recorded(request, source) == NOT_MEASURED != measure(request, source, Console(file=io.StringIO()), 1)
    assert NOT_MEASURED not in (recorded(*plain), recorded(*deeper))


def test_rows_are_timed_beside_those_under_the_same_positions(tmp_path, monkeypatch):
    turn, asked = Turn(0.1, 0, ["sdpa"]), []

    def timed(contenders, count):
        asked.append({contender.settings.model.position for contender in contenders})
        return [rounds.Timing([turn], turn, Work(1, 1, 1)) for _ in contenders]

    monkeypatch.setattr(rounds, "timed", timed)
    request = Request(NAME, table_under("rotary", "learned"), "nano", range(1), runs=tmp_path)
    source = source_of(request, {key: each.definition for key, each in request.configurations.items()})
    console = Console(file=io.StringIO())
    assert [*measure(request, source, console, 1).seconds] == [*request.configurations]
    assert asked == [{"rotary"}, {"learned"}]
    assert "timing a step of 3 rows under learned positions" in console.file.getvalue()


def test_more_rounds_are_added_to_those_of_the_same_kernel(tmp_path, monkeypatch):
    request, source = table(tmp_path)
    kernels, asked = {"h16": "compiled"}, []

    def timed(contenders, count):
        asked.append(count)
        # a step of every later call takes longer
        turns = [[Turn(0.1 * len(asked), 0, [kernels.get(row, "sdpa")])] * count for row in ("h8", "h16", "h32")]
        return [rounds.Timing(of_row, of_row[0], Work(1, 1, 1)) for of_row in turns]

    monkeypatch.setattr(rounds, "timed", timed)
    quiet = Console(file=io.StringIO())
    measure(request, source, quiet, 12)
    kernels["h16"] = "blocked"
    found = measure(request, source, quiet, 13)
    assert asked == [12, 1] and found.rounds == 1
    both = dict.fromkeys(range(12), 0.1) | {12: 0.2}
    assert found.seconds == {"h8": both, "h16": {12: 0.2}, "h32": both}


def test_times_of_some_rows_and_of_all_are_one_measurement(tmp_path, monkeypatch):
    asked = []

    def timed(contenders, count):
        asked.append((len(contenders), count))
        turns = [Turn(0.1, 0, ["sdpa"])] * count
        return [rounds.Timing(turns, turns[0], Work(1, 1, 1)) for _ in contenders]

    monkeypatch.setattr(rounds, "timed", timed)
    quiet = Console(file=io.StringIO())
    every, source = table(tmp_path)
    claims = {"C4": every.table.claims["C4"].model_copy(update={"parts": ["h8 > h16"]})}
    chosen = replace(every, table=every.table.model_copy(update={"claims": claims}), chosen_claims=["C4"])
    assert measure(chosen, source_of(chosen), quiet, 12).seconds.keys() == {"h8", "h16"}
    assert recorded(every, source) == NOT_MEASURED
    found = measure(every, source, quiet, 12)
    assert asked == [(2, 12), (3, 12)] and found == recorded(every, source)
    assert {row: [*seconds] for row, seconds in found.seconds.items()} == {
        "h8": [*range(24)], "h16": [*range(24)], "h32": [*range(12, 24)]
    }  # fmt: skip
    assert found.rounds == 12 and recorded(chosen, source_of(chosen)).rounds == 24


def test_times_of_another_kernel_are_measured_again(tmp_path, monkeypatch):
    request, source = table(tmp_path)
    turns = [Turn(0.1, 0, ["compiled"]), Turn(0.2, 0, ["compiled"])]

    def timed(contenders, count):
        return [rounds.Timing(turns, turns[0], Work(1, 1, 1)) for _ in contenders]

    monkeypatch.setattr(rounds, "timed", timed)
    assert recorded(request, source) == NOT_MEASURED
    measured = measure(request, source, Console(file=io.StringIO()), 2)
    assert measured.seconds == {key: {0: 0.1, 1: 0.2} for key in ("h8", "h16", "h32")}
    assert recorded(request, source) == measured
    digests = step_times.code_digests

    def edited(settings, kernels):
        return digests(settings, kernels) | ({"attention/kernels/compiled.py": "edited"} if kernels else {})

    monkeypatch.setattr(step_times, "code_digests", edited)
    assert recorded(request, source) == NOT_MEASURED
