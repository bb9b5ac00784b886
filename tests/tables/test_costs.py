"""What a table costs before it is made: the list of all tables, and the cells of a dry run."""

from __future__ import annotations

import csv
import io

import pytest
from rich.console import Console

from experiments.commands.frame.options import COSTS_OF_TABLES, TableOptions
from experiments.commands.table import show_table
from experiments.failures.failure import Mistake
from experiments.tables.sources.source import Prediction, TableCell
from experiments.tables.sources.step_clock import StepClock
from tests.fixtures.tables import NAME, rows_of

TABLE = "shazeer2020/projections"


@pytest.fixture
def clocked(monkeypatch):
    """clocked(tokens_per_second): let every step have this speed; returns the list of settings that are timed."""

    def clock(tokens_per_second) -> list:
        timed = []

        def seconds(self, settings):
            timed.append(settings)
            return settings.batch_size * settings.row_length / tokens_per_second(settings)

        monkeypatch.setattr(StepClock, "seconds", seconds)
        return timed

    return clock


def test_a_dry_run_predicts_from_steps_whose_times_are_kept(attn, short, tmp_path, clocked, heads_table, monkeypatch):
    # 100 tokens a second with 8 heads, half of that with 16
    timed = clocked(lambda settings: 800 / settings.heads)
    words = ("table", NAME, "--seeds", "2", "--dry-run", "--format", "csv", *short, f"cache={tmp_path / 'cache'}")
    first = attn(*words)
    assert first.returncode == 0, first.output
    rows = [*csv.DictReader(io.StringIO(first.stdout))]
    assert len(rows) == 6 and {row["state"] for row in rows} == {"missing"}
    # 12 steps of 4 sequences of 16 tokens, and two evaluations of 16 sequences at three times the speed
    assert {row["tokens"] for row in rows} == {"768"}
    seconds = 5 + (768 + 2 * 16 * 16 / 3) / 100
    assert float(rows[0]["seconds"]) == pytest.approx(seconds)
    assert float(rows[1]["seconds"]) == pytest.approx(2 * seconds - 5)
    assert all(10**7 < int(row["peak_memory_bytes"]) < 10**10 for row in rows)
    assert [settings.heads for settings in timed] == [8, 16, 32] and "cost of h16, 2 of 3 rows" in first.stderr
    assert not (tmp_path / "runs").exists()
    assert attn(*words).stdout == first.stdout and len(timed) == 3
    # several cells take as long together as the longest one, or as their sum divided by their number
    monkeypatch.setattr("experiments.cells.resources.usable", lambda: [2, 3, 5, 7])
    for workers, said in (("1", "2.7 min"), ("2", "1.3 min, 2 cells at once"), ("auto", "43 s, 4 cells at once")):
        said = f"missing: 6 cells, about {said}, 4,608 tokens"
        assert said in attn(*words[:6], "table", *words[7:], "--workers", workers).stdout
    refused = attn(*words, "--workers", "5")
    assert refused.returncode == 2 and "--workers 5: this machine has room for 4" in refused.stderr
    # a step takes as long at any learning rate
    assert attn(*words, "learning_rate=1e-4").returncode == 0 and len(timed) == 3
    assert " | 14 s | " in attn(*words[:6], "markdown", *words[7:]).stdout


def test_the_list_is_composed_anew_only_when_a_yaml_has_changed(attn, tmp_path, monkeypatch):
    from experiments.tables import costs

    composed = []

    class Known:
        def cells(self, seeds):
            return [TableCell("h8", 0, "h8")]

        def __init__(self, request, rows):
            composed.append(request)

        def predict(self, cell, clock, roughly):
            return Prediction(3600.0 if len(composed) > 1 else None, 10**6, 10**9)

    monkeypatch.setattr(costs, "source_of", Known)
    monkeypatch.setattr(costs, "names", lambda: [TABLE])
    monkeypatch.setattr(costs, "BUDGETS", ["nano"])
    monkeypatch.setattr(costs, "yaml_files", lambda pattern: [*(tmp_path / "conf").glob(pattern)])
    monkeypatch.setenv("ATTN_CACHE", str(tmp_path / "cache"))
    yaml = tmp_path / "conf" / "any" / "one.yaml"
    yaml.parent.mkdir(parents=True)
    yaml.write_text("one: 1\n")

    def listed() -> str:
        done = attn("table", "--dry-run", "--format", "csv")
        assert done.returncode == 0 and f"costs of {TABLE}, 1 of 1" in done.stderr, done.output
        return rows_of(done.stdout, "table")[TABLE]["nano"]

    # a time that could not be found is looked for again
    assert listed() == "40 cells, unknown time"
    assert listed() == listed() == "40 cells, 1.7 days, 1.0 GB, 40.0M tokens"
    assert len(composed) == 2
    yaml.write_text("one: 2\n")
    assert listed() == "40 cells, 1.7 days, 1.0 GB, 40.0M tokens" and len(composed) == 3


def test_the_list_goes_on_after_a_table_for_which_an_override_is_wrong(attn, tmp_path, monkeypatch):
    from experiments.tables import costs

    class Picky:
        def cells(self, seeds):
            return [TableCell("h8", 0, "h8")]

        def __init__(self, request, rows):
            if request.name in request.overrides[0]:
                raise Mistake(f"{request.name} does not take it", "leave it out")

        def trained(self, row):
            return []

        def predict(self, cell, clock, roughly):
            return Prediction(3600.0, 10**6, 10**9)

    tables = [TABLE, "xiong2020/warmup"]
    monkeypatch.setattr(costs, "source_of", Picky)
    monkeypatch.setattr(costs, "names", lambda: tables)
    monkeypatch.setattr(costs, "BUDGETS", ["nano"])
    monkeypatch.setenv("ATTN_CACHE", str(tmp_path / "cache"))
    done = attn("table", "--dry-run", "--format", "csv", f"data.train={TABLE}")
    assert done.returncode == 0, done.output
    costs_of = {name: row["nano"] for name, row in rows_of(done.stdout, "table").items()}
    assert costs_of[TABLE] == f"{TABLE} does not take it" and " cells, " in costs_of["xiong2020/warmup"]
    refused = attn("table", "--dry-run", f"data.train={tables}")
    assert refused.returncode == 2 and refused.stdout == ""
    assert f"{TABLE} does not take it\n  leave it out" in refused.stderr


def test_the_list_refuses_a_setting_that_no_row_of_a_table_reads(attn, tmp_path, monkeypatch, clocked):
    from experiments.tables import costs

    clocked(lambda settings: 1000.0)
    monkeypatch.setattr(costs, "names", lambda: [TABLE])
    monkeypatch.setattr(costs, "BUDGETS", ["nano"])
    monkeypatch.setenv("ATTN_CACHE", str(tmp_path / "cache"))
    refused = attn("table", "--dry-run", "model.sinusoidal_base=9")
    assert refused.returncode == 2 and refused.stdout == ""
    assert "model.sinusoidal_base=9: nothing reads it with model.position=" in refused.stderr
    # not the baseline, but other rows
    read = attn("table", "--dry-run", "--format", "csv", "optimizer.head_mixing_rate_factor=0.5")
    assert " cells, " in rows_of(read.stdout, "table")[TABLE]["nano"], read.output


@pytest.mark.parametrize(
    ("override", "said"), [("heds=3", "did you mean heads?"), ("model.positon=rotary", "did you mean model.position?")]
)
def test_the_list_refuses_a_key_that_no_table_takes_before_any_is_composed(attn, monkeypatch, override, said):
    from experiments.tables import costs

    monkeypatch.setattr(costs, "source_of", lambda *_: pytest.fail("a table was composed"))
    refused = attn("table", "--dry-run", "layers=2", override)
    key = override.partition("=")[0]
    assert refused.returncode == 2 and refused.stderr == f"attn table: there is no setting {key!r}\n  {said}\n"


def test_the_list_asks_the_tables_about_a_key_that_some_of_them_take(attn, monkeypatch):
    from experiments.tables import costs

    def refuses(*_):
        raise Mistake("asked")

    monkeypatch.setattr(costs, "source_of", refuses)
    # of an option that is not the default, a group, a function, a model that is measured, a fine-tuning
    taken = ["variant.start=identity", "experiment=nano_table", "tokens=4", "measure.pairs=within"]
    assert "asked" in attn("table", "--dry-run", *taken, "finetune.squad.task.train=a.json").stderr


def test_the_list_times_one_small_model_and_counts_flops(tiny, tmp_path, clocked):
    from experiments.config.compose import compose
    from experiments.tables.sources.calibration import predict

    timed, clock = clocked(lambda settings: 1000.0), StepClock(Console())
    own = [f"cache={tmp_path}", "trainer.device=cpu", "trainer.evaluation_sequences=1", "max_steps=10"]
    nano, wide = (predict(compose([*own, f"hidden_size={width}"]), clock, roughly=True) for width in (192, 384))
    # 10 steps of 16 sequences of 64 tokens at 1,000 a second
    assert nano.seconds == pytest.approx(5 + (10 * 16 * 64 + 64 / 3) / 1000)
    assert 2 < (wide.seconds - 5) / (nano.seconds - 5) < 4, "between linear and quadratic in the width"
    assert len(timed) == 1


@pytest.mark.parametrize(
    ("rate", "seconds"),
    [
        # 2 + 3 layers milliseconds a token
        (lambda layers: 1000 / (2 + 3 * layers), 0.038),
        # noise does not make a deeper model faster than one of four layers
        (lambda layers: 1000 * layers, 1 / 4000),
    ],
)
def test_the_time_of_a_deep_model_is_on_the_line_through_those_of_two_shallow_ones(
    tmp_path, clocked, monkeypatch, rate, seconds
):
    from experiments.config.compose import compose
    from experiments.tables.sources import calibration

    timed = clocked(lambda settings: rate(settings.layers))
    monkeypatch.setattr(calibration, "_peak_bytes", lambda settings: 1e8)
    own = [f"cache={tmp_path}", "trainer.device=cpu", "trainer.evaluation_sequences=1", "max_steps=10", "layers=12"]
    found = calibration.predict(compose(own), StepClock(Console()))
    assert [settings.layers for settings in timed] == [2, 4]
    assert found.seconds == pytest.approx(5 + seconds * (10 * 16 * 64 + 64 / 3))


def test_both_sides_of_a_translation_are_counted(tmp_path, clocked):
    from experiments.config.compose import compose
    from experiments.tables.sources.calibration import predict

    clocked(lambda settings: 1000.0)
    words = ["model=transformer_nano", "length=20", "batch_size=4", "max_steps=10", f"cache={tmp_path}"]
    settings = compose([*words, "trainer.device=cpu", "trainer.evaluation_sequences=1"])
    found = predict(settings, StepClock(Console()))
    # 40 tokens a pair, padding counted
    assert found.seconds == pytest.approx(5 + (10 * 4 * 40 + 40 / 3) / 1000)
    assert found.tokens is None and found.peak_memory_bytes > 10**7


def test_the_list_names_every_table_and_what_it_costs(capsys, monkeypatch, tmp_path):
    from experiments.tables import costs

    class Cheap:
        def cells(self, seeds):
            return [TableCell("any", 0, "any")]

        def predict(self, cell, clock, roughly):
            return Prediction(120.0, 10**6, 5 * 10**8)

    monkeypatch.setattr(costs, "source_of", lambda request, rows: Cheap())
    monkeypatch.setenv("ATTN_CACHE", str(tmp_path))
    assert show_table(None, [], TableOptions(mode=COSTS_OF_TABLES, format="csv")) == 0
    rows = rows_of(capsys.readouterr().out, "table")
    assert set(rows) == set(costs.names())
    assert rows["shazeer2020/heads"]["nano"] == "80 cells, 2.7 h, 0.5 GB, 80.0M tokens"


def test_the_list_alone_composes_and_measures_nothing(capsys, monkeypatch):
    from experiments.tables import costs

    monkeypatch.setattr(costs, "source_of", lambda *anything: pytest.fail("a source was asked"))
    monkeypatch.setattr(costs, "compose", lambda *anything: pytest.fail("settings were composed"))
    assert show_table(None, [], TableOptions(format="csv")) == 0
    rows = rows_of(capsys.readouterr().out, "table")
    assert set(rows) == set(costs.names()) and rows["shazeer2020/heads"]["nano"] == "80"
