"""`attn table` on a tiny text: cells shared with `attn train`, killed at random, refused by name."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from experiments.bench import rounds
from experiments.bench.rounds import Timing
from experiments.bench.worker import Turn
from experiments.commands.frame.options import COSTS_OF_TABLES, TableOptions
from experiments.commands.table import check_sizes, seeds_of, show_table
from experiments.failures.exit_code import ExitCode
from experiments.failures.failure import Mistake
from experiments.processes.answering import Answerer
from experiments.record.folder import RunFolder
from experiments.tables import paper_differences, step_times, until_resolved
from experiments.tables.definition import folder
from experiments.tables.definition.request import Request, load
from experiments.tables.rendering.render import write_all
from experiments.tables.sources import step_clock
from experiments.tables.sources.choose import source_of
from experiments.tables.sources.computed import Computed
from experiments.tables.sources.runs import Runs
from experiments.tables.sources.source import Outcomes, Prediction, TableCell
from experiments.tables.sources.step_clock import StepClock
from tests.fixtures.record import leave_result
from tests.fixtures.tables import NAME
from tests.tables.known import made

TABLE = "shazeer2020/projections"
# the row h16 of the test's table
CELL = ["experiment=nano_table", "objective.rate=0.4", "learning_rate=3e-3", "variant=multi_head", "heads=16"]


def rows_of(text: str, key: str = "row") -> dict[str, dict[str, str]]:
    return {row[key]: row for row in csv.DictReader(io.StringIO(text))}


def test_a_table_is_made_rendered_and_shared(attn, short, tmp_path, heads_table, monkeypatch):
    # the bench is tried where it stands; here each row takes a tenth of a second
    turn = Turn(0.1, 10**6, ["sdpa"], 0.25)
    monkeypatch.setattr(
        rounds, "timed", lambda contenders, count: [Timing([turn] * count, turn, None)] * len(contenders)
    )
    short = [*(word for word in short if not word.startswith("max_steps")), "max_steps=4"]
    done = attn("table", NAME, "--seeds", "2", "--out", "out", "--wandb", *short)
    assert done.returncode == 0, done.output
    assert len(list(tmp_path.glob("runs/*/result.json"))) == 6
    assert "90.89 +- 0.15 (s)" in done.stdout and "C4, not " in done.stdout
    # nobody is logged in
    logged, not_sent = (line for line in done.stderr.splitlines() if "W&B" in line)
    assert logged == "W&B offline: runs/wandb" and "the report in W&B was not updated: " in not_sent
    (mirrored,) = tmp_path.glob("runs/wandb/offline-*/run-table-*.wandb")
    (saved,) = tmp_path.glob("runs/tables/*.json")
    assert mirrored.name == f"run-table-{saved.stem}.wandb" and saved.stem.startswith("me2026-heads-nano-")
    assert len(list(mirrored.parent.glob("files/media/table/*.table.json"))) == 2, "the rows, and the claims"
    assert (tmp_path / "out" / "me2026_heads.md").read_text().startswith("# More heads of less width")
    # what the comparison page reads
    assert json.loads(saved.read_text())["name"].startswith(f"{NAME} ")

    # the cells are those of attn train, and in the order of the seeds
    assert [line.split("-s")[1][0] for line in done.stderr.splitlines() if ": done" in line] == list("000111")
    row = [*CELL, "trainer.compile=false"]
    again = attn("train", *row, "seed=1", *short)
    assert again.returncode == 0 and "validation loss" in again.output and "step" not in again.stderr
    assert len(list(tmp_path.glob("runs/*/result.json"))) == 6

    # a step of each row is timed once
    assert "timing a step of 3 rows" in done.stderr, done.output
    assert "step times: medians of 12 interleaved rounds" in done.stdout and "100 ms" in done.stdout
    assert "waited 25% of its time for a core" in done.stdout

    rendered = attn("table", NAME, "--seeds", "3", "--render-only", "--format", "csv", *short)
    assert rendered.returncode == 0
    rows = rows_of(rendered.stdout)
    assert {row["state"] for row in rows.values()} == {"2 of 3 done, missing"}
    losses = [json.loads(path.read_text())["validation_loss"] for path in tmp_path.glob("runs/*-h16-*/result.json")]
    assert float(rows["h16"]["validation_loss"]) == pytest.approx(sum(losses) / 2)

    # earlier seeds that have begun count too, because nobody may choose between seeds
    second = attn("table", NAME, "--seeds", "1-1", "--render-only", "--format", "markdown", *short)
    assert second.returncode == 0 and "--seeds 1-1" in second.stdout and "* seeds: 0-1\n" in second.stdout
    assert (tmp_path / "runs/tables" / f"{saved.stem}-1-1.json").exists()

    # a result of other attention code is refused, not shown
    (path, _) = tmp_path.glob("runs/*-h32-*/result.json")
    result = RunFolder(path.parent).result().to_dict()
    leave_result(path.parent, **result | {"code_digest": "0" * 64})
    refused = attn("table", NAME, "--seeds", "2", "--format", "markdown", *short)
    assert refused.returncode == 3
    assert "1 of 2 done, refused" in refused.stdout and "has changed since" in refused.stdout


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


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        (["c4"], "'c4': me2026/heads makes no such claim at the budget nano (did you mean C4?)\n  its claims are C4"),
        (["C4", "C4"], "'C4': is given 2 times"),
    ],
)
def test_a_claim_that_the_table_does_not_make_is_refused(attn, heads_table, claims, said):
    refused = attn("table", NAME, *(word for claim in claims for word in ("--claim", claim)))
    assert (refused.returncode, refused.stderr) == (2, f"attn table: --claim {said}\n")


def test_a_claim_without_a_comparison_at_the_budget_is_refused(attn):
    refused = attn("table", "bhojanapalli2020/figure1", "--claim", "wider")
    why = "the budget nano of bhojanapalli2020/figure1 has the rows of none of its comparisons"
    assert (refused.returncode, refused.stderr) == (
        2,
        f"attn table: --claim 'wider': {why}\n  give a larger --budget\n",
    )


@pytest.mark.parametrize("asked", ["--dry-run", "--plan=4"])
def test_a_file_that_is_missing_is_named_before_anything_is_measured(attn, tmp_path, heads_table, asked):
    done = attn("table", NAME, asked, "data=text", "data.train=missing.txt")
    assert done.returncode == 2 and done.stdout == ""
    assert "data.train=missing.txt: there is no such file" in done.stderr and "cost of" not in done.stderr
    assert not list(tmp_path.glob("runs/*"))


def test_rates_that_were_not_tuned_are_named_by_a_plan_and_refused_where_seeds_are_added(
    attn, short, tmp_path, heads_table
):
    table = folder.TABLES / f"{heads_table}.yaml"
    table.write_text(re.sub("tried: {.*?}", "tried: {}", table.read_text()))
    refused = attn("table", NAME, "--until-resolved", *short)
    assert refused.returncode == 2 and not list(tmp_path.glob("runs/*"))
    tuning = rf"no learning rate was tuned\n  attn table {NAME} --tune .*max_steps=\d+.* finds the rates"
    assert re.search(tuning, refused.stderr)
    done = attn("table", NAME, "--plan", "4", *short)
    assert done.returncode == 0 and Path(done.stdout.strip()).is_file()
    assert re.search("The learning rate of multi_head was not tuned with .*max_steps=.*, so its rows can", done.stderr)


def test_a_plan_is_not_made_where_the_library_that_decides_it_is_missing(attn, tmp_path, heads_table, monkeypatch):
    monkeypatch.setattr("experiments.failures.missing_extra.find_spec", lambda name: None)
    done = attn("table", NAME, "--plan", "4")
    assert done.returncode == 2 and "--plan needs scipy\n  pip install" in done.stderr
    assert not list(tmp_path.glob("runs/*"))


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


def test_steps_of_one_row_after_the_other_are_timed_in_one_process(tiny, tmp_path, capfd, with_kernel):
    from experiments.config.compose import compose

    masked = compose([*tiny, f"cache={with_kernel(tmp_path / 'cache')}"])
    pairs = ["model=transformer_nano", "layers=1", "hidden_size=32", "length=8", "batch_size=2", "trainer.device=cpu"]
    pairs.append("tokenizer.vocabulary_size=300")
    with StepClock(Console()) as clock:
        assert clock.seconds(masked) > 0 and clock.seconds(compose(pairs)) > 0
        answerer = clock._answerer
        no_heads = masked.model_copy(update={"variant": {**masked.variant, "heads": 0}})
        assert clock.seconds(no_heads) is None and clock._answerer is answerer
        answerer.process.kill()
        assert clock.seconds(masked) is None and clock._answerer is None
    printed = capfd.readouterr().out
    assert printed.count("not timed: ") == 2 and "not timed: killed by SIGKILL" in printed and "heads" in printed
    assert not (tmp_path / "runs").exists()


def test_an_end_while_the_kernel_is_built_leaves_no_process_and_no_file(tiny, tmp_path, monkeypatch):
    from experiments.config.compose import compose

    compiler, started = tmp_path / "compiler", tmp_path / "started"
    compiler.write_text(f'#!/bin/sh\ncase "$*" in *-dM*) ;; *) echo $$ > {started}; exec sleep 60;; esac\n')
    compiler.chmod(0o700)
    monkeypatch.setenv("CXX", str(compiler))
    settings = compose([*tiny, f"cache={tmp_path / 'cache'}", "variant=talking_heads", "backend=auto"])
    with Answerer(step_clock.MODULE) as answerer:
        answerer.send(settings.model_dump())
        deadline = time.monotonic() + 60
        while not (started.exists() and started.read_text().strip()):
            assert answerer.process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
    assert [path.name for path in tmp_path.rglob("cache/**/*") if path.is_file()] == ["lock"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)


@pytest.mark.campaign
def test_a_row_that_ends_the_process_leaves_the_next_one_its_time(tiny, tmp_path, with_kernel):
    from experiments.config.compose import compose

    masked = compose([*tiny, f"cache={with_kernel(tmp_path / 'cache')}"])
    with StepClock(Console()) as clock:
        assert clock.seconds(masked) > 0
        clock._answerer.process.kill()
        assert clock.seconds(masked) is None and clock.seconds(masked) > 0


def test_the_settings_of_the_budget_paper_are_composed_once_for_all_reports(tmp_path, monkeypatch, capsys):
    composed, compose_rows = [], paper_differences.source_of
    monkeypatch.setattr(paper_differences, "source_of", lambda *asked: composed.append(asked) or compose_rows(*asked))
    monkeypatch.setattr(Runs, "check", lambda source: None)

    def thrice(request, source, report, *rest):
        for _ in range(3):
            report(Outcomes(source))

    monkeypatch.setattr(until_resolved, "until_resolved", thrice)
    assert show_table(TABLE, [], TableOptions(mode="--until-resolved", runs=tmp_path)) == ExitCode.SWEEP_FAILED
    assert len(composed) == 1 and "set-up (at --budget paper): " in capsys.readouterr().out


def test_a_page_is_replaced_by_one_of_the_same_settings_only(attn, tmp_path, heads_table):
    out = tmp_path / "out"
    write_all(made(overrides=("data=text", "data.train=/of/me/a.txt")), out)
    page = (out / "me2026_heads.md").read_bytes()
    text = ["data=text", "data.train=b/a.txt", "logger.wandb=off"]
    for overrides in ([], [*text, "layers=2"], ["data.train=other.txt", "data=text"]):
        refused = attn("table", NAME, "--out", "out", *overrides)
        said = "--out out: me2026_heads.md there was made with data=text data.train=a.txt\n"
        assert refused.returncode == 2 and said in refused.stderr, overrides
    assert (out / "me2026_heads.md").read_bytes() == page and not (tmp_path / "runs").exists()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "a.txt").write_text("a text")
    replaced = attn("table", NAME, "--seeds", "2", "--render-only", "--out", "out", *reversed(text))
    assert replaced.returncode == 0 and (out / "me2026_heads.md").read_bytes() != page, replaced.output
    write_all(made(), out)
    refused = attn("table", NAME, "--out", "out", "layers=2")
    assert refused.returncode == 2 and "there was made without overrides" in refused.stderr
    # the numbers say it, whatever became of the page
    (out / "me2026_heads.md").write_text("attn table me2026/heads layers=2\n")
    assert attn("table", NAME, "--out", "out", "layers=2").stderr == refused.stderr
    (out / "me2026_heads.json").write_text("{}")
    refused = attn("table", NAME, "--out", "out", "--render-only")
    assert refused.returncode == 2 and "me2026_heads.json: is not what was written" in refused.stderr


def test_a_cell_that_fails_ends_no_table(attn, short, tmp_path, heads_table, monkeypatch):
    monkeypatch.setattr(step_times, "measure", lambda *_: step_times.NOT_MEASURED)
    words = [*CELL, *short]
    (cell,) = Runs({"h16": words}, Path("runs")).cells([0])
    damaged = tmp_path / "runs" / cell.name
    damaged.mkdir(parents=True)
    (damaged / "result.json").write_text("{")
    done = attn("table", NAME, "--seeds", "1", "--format", "csv", *short)
    assert done.returncode == 3, done.output
    states = {row: found["state"] for row, found in rows_of(done.stdout).items()}
    assert states == {"h8": "done", "h16": "0 of 1 done, refused", "h32": "done"}
    assert f"{cell.name}: " in done.stderr and "result.json" in done.stderr
    # and so of any other file of a cell
    (facts,) = tmp_path.glob("runs/*-h8-*/environment.json")
    facts.write_text("{")
    shown = attn("table", NAME, "--seeds", "1", "--format", "csv", "--render-only", *short)
    assert shown.returncode == 0, shown.output
    assert rows_of(shown.stdout)["h8"]["state"] == "0 of 1 done, refused"


@pytest.mark.parametrize(
    ("of", "part", "said"),
    [
        ("score", "h8 > h16 > h32 by hh", "the row h8 has no size hh"),
        ("score", "h8 > h16 > h32 by layers", "the sides do not differ in layers"),
        ("parameters", "h16 - h8 = layer * h", "there is no size 'layer'"),
    ],
)
def test_a_claim_about_sizes_that_rows_do_not_have_is_refused_before_the_training(heads_table, of, part, said):
    table = load(heads_table)
    claims = {"sizes": table.claims["C4"].model_copy(update={"of": of, "parts": [part]})}
    request = Request(heads_table, table.model_copy(update={"claims": claims}), "nano", range(1))
    with pytest.raises(Mistake, match=said):
        check_sizes(request, source_of(request))


def test_seeds_by_their_number_or_by_the_first_and_the_last():
    assert [*seeds_of("3")] == [0, 1, 2]
    assert [*seeds_of("24-26")] == [24, 25, 26]
    assert seeds_of("0-2") == seeds_of("3")
    assert [*seeds_of("4294967295-4294967295")] == [2**32 - 1]
    with pytest.raises(Mistake, match="the last seed must be at most 4294967295"):
        seeds_of("4294967295-4294967296")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["shazeer2020/head"], "did you mean shazeer2020/heads?"),
        (["heads_t5"], "did you mean shazeer2020/heads_t5?"),
        ([TABLE, "--budget", "tiny"], "must be one of nano, small, medium, paper"),
        ([TABLE, "--budget", "smal"], "did you mean small?"),
        ([TABLE, "--out", __file__], "is not a folder\n  name a folder"),
        ([TABLE, "--seeds", "0"], "--seeds 0: must be a number of seeds, from 1 on, or FIRST-LAST"),
        ([TABLE, "--seeds", "five"], "--seeds five"),
        ([TABLE, "--seeds", "7-6"], "--seeds 7-6"),
        ([TABLE, "variant=multi_head"], "the table itself sets variant"),
        (["bhojanapalli2020/theorem1", "--tune"], "has a rate to tune"),
        (["bhojanapalli2020/theorem1", "--workers", "2"], "--workers 2: these cells are computed one after the other"),
        ([TABLE, "--dry-run", "--format", "latex"], "--format latex: a list is printed as table, markdown or csv"),
        (["--format", "latex"], "--format latex: a list"),
        ([TABLE, "seed=4"], "--seeds sets seed"),
        ([TABLE, "hiden_size=4"], "did you mean hidden_size?"),
        ([TABLE, "hidden_size=8"], "key_size"),
        ([TABLE, "data=text", "data.train=absent.txt"], "absent.txt"),
        ([TABLE, "--published", "absent.yaml"], "absent.yaml"),
        ([TABLE, "--format", "html"], "--format html: must be one of table, markdown, csv, latex"),
        (["bhojanapalli2020/theorem1", "--published", "x.yaml"], "no published numbers"),
        (["bhojanapalli2020/theorem1", "token=9"], "did you mean tokens?"),
        (["max_steps=2"], "which table?"),
    ],
)
def test_mistakes_are_named_and_change_nothing(attn, tmp_path, words, said):
    done = attn("table", *words)
    assert done.returncode == 2, done.output
    assert said in done.stderr and "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_in_every_row_is_said_once(attn):
    said = attn("table", TABLE, "hiden_size=4").stderr
    assert said.count("there is no setting 'hiden_size'") == 1 and "none: " not in said


def test_a_mistake_in_one_row_names_it():
    with pytest.raises(Mistake, match=r"^b: ") as caught:
        Runs({"a": ["heads=2"], "b": ["heads=0"]}, Path("runs"))
    assert "a: " not in str(caught.value).splitlines()[0]


def test_what_can_not_be_kept_is_still_shown(attn, short, tmp_path, heads_table):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "tables").write_text("in the way")
    shown = attn("table", NAME, "--render-only", "--format", "csv", *short)
    assert set(rows_of(shown.stdout)) == {"h8", "h16", "h32"}
    assert shown.returncode == 1 and "a file stands where a folder should be" in shown.stderr


@pytest.mark.parametrize(
    ("kind", "said"), [("loop", "Too many levels of symbolic links"), ("file", "a file stands where a folder should")]
)
def test_runs_that_cannot_be_read_end_the_search_for_seeds(attn, tmp_path, heads_table, kind, said):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    done = attn("table", heads_table, "--render-only", "--runs", kind)
    assert done.returncode == 1 and said in done.stderr and done.stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "loop"]


def test_a_folder_that_computed_cells_can_not_have_is_named(attn, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "computed").write_text("in the way")
    done = attn("table", "bhojanapalli2020/theorem1", "--seeds", "1")
    assert done.returncode == 1 and "a file stands where a folder should be" in done.stderr
    assert "Traceback" not in done.stderr


def test_rows_made_equal_by_an_override_are_refused():
    rows = {"a": ["heads=2"], "b": ["heads=2"]}
    with pytest.raises(Mistake, match="the rows a and b are the same run"):
        Runs(rows, Path("runs"))


def test_computed_cells_are_kept_each_in_a_file(tmp_path):
    from rich.console import Console

    console = Console(file=io.StringIO())
    full = ["form=free", "tokens=3", "heads=1", "key_size=3", "starts=1"]
    rows = {"a": full, "b": [*full[:3], "key_size=1", "starts=1"]}
    source = Computed("column_stochastic", rows, tmp_path / "runs")
    cells = source.cells(range(2))
    assert [(cell.row, cell.seed) for cell in cells] == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    source.make(cells[:1], "group", console)
    assert [source.outcome(cell).state for cell in cells] == ["done", "missing", "missing", "missing"]
    assert source.kept_seeds() == {0}
    (kept,) = (tmp_path / "runs").glob("*/*")
    before = kept.stat().st_mtime_ns
    source.make(cells, "group", console)
    assert kept.stat().st_mtime_ns == before
    assert {source.outcome(cell).state for cell in cells} == {"done"} and source.kept_seeds() == {0, 1}
    kept.write_text("{")
    assert source.outcome(cells[0]).state == "refused"


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


def test_what_is_computed_is_shown_without_scipy_and_not_computed(attn, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    shown = attn("table", "bhojanapalli2020/theorem1", "--render-only")
    assert shown.returncode == 0, shown.stderr
    made = attn("table", "bhojanapalli2020/theorem1")
    assert made.returncode == 2 and "a fit by least squares needs scipy" in made.stderr
    planned = attn("table", "bhojanapalli2020/theorem1", "--dry-run")
    assert planned.returncode == 0 and "200 of unknown length" in planned.stdout, planned.stderr


def test_the_list_alone_composes_and_measures_nothing(capsys, monkeypatch):
    from experiments.tables import costs

    monkeypatch.setattr(costs, "source_of", lambda *anything: pytest.fail("a source was asked"))
    monkeypatch.setattr(costs, "compose", lambda *anything: pytest.fail("settings were composed"))
    assert show_table(None, [], TableOptions(format="csv")) == 0
    rows = rows_of(capsys.readouterr().out, "table")
    assert set(rows) == set(costs.names()) and rows["shazeer2020/heads"]["nano"] == "80"
