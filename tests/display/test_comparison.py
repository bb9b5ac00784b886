"""`attn compare` on result files of known content."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import time
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from experiments.commands.compare import compare_runs
from experiments.config.compose import compose
from experiments.dashboard.page import page_data
from experiments.display.comparison import TAKEN_FROM, matching, table_of, tables_of, telling
from experiments.display.rows import readable, show
from experiments.failures.failure import Mistake
from experiments.record.code_digest import code_digest
from experiments.record.folder import config_text
from experiments.record.result import UNKNOWN
from experiments.results.find import find_run, find_runs
from experiments.settings.plugins import CONF
from tests.fixtures.record import leave_result


def result(run: str, loss: float | None, seed: int = 0, heads: int = 6, start: str = "random", **top: object) -> dict:
    config = {"layers": 4, "hidden_size": 192, "heads": heads, "key_size": 192 // heads, "value_size": 192 // heads}
    config |= {"norm": "pre", "learning_rate": 3e-3, "runs": run, "seed": seed}
    config |= {"optimizer": {"learning_rate": top.get("learning_rate", 3e-3)}, "logger": {"tags": [run]}}
    config |= {"variant": {"name": "talking_heads", "key_heads": heads, "start": start}, **top}
    measured = {"validation_loss": loss, "perplexity": 100.0, "unigram_loss": 6.5, "tokens_per_second": 5000.4}
    measured |= {"peak_memory_bytes": 5 * 10**8, "parameters": {"total": 2_000_000}, "steps": 800, "backend": "blocked"}
    ended = {"run": run, "config": config, "seed": seed, "status": "done" if loss else "nan"}
    return UNKNOWN | ended | measured


@pytest.fixture
def runs(tmp_path) -> Path:
    for each in (result("a", 5.0), result("b", 4.5, seed=1), result("c", None), result("d", 4.9, heads=24)):
        folder = tmp_path / each.pop("run")
        folder.mkdir()
        (folder / "config.yaml").write_text(config_text(each["config"]))
        (folder / "tokenizer.json").write_text("{}")
        (folder / "predictions.json").write_text("[0.5]")
        leave_result(folder, **each)
    return tmp_path


def shown(capsys, *which: str, runs: Path, sort: str = "loss", format: str = "json") -> list[dict]:
    compare_runs(list(which), runs, sort, format)
    out = capsys.readouterr().out
    return json.loads(out) if format == "json" else list(csv.DictReader(io.StringIO(out)))


def test_sorted_with_unknown_values_last(runs, capsys):
    assert [row["run"] for row in shown(capsys, runs=runs)] == ["b", "d", "a", "c"]
    assert [row["run"] for row in shown(capsys, runs=runs, sort="-loss")] == ["a", "d", "b", "c"]
    assert [row["loss"] for row in shown(capsys, runs=runs, format="csv")] == ["4.5", "4.9", "5.0", ""]


def test_conditions_that_differ_are_shown_and_said_although_the_runs_are_apart_without_them(tmp_path, capsys):
    longer = {"max_steps": 4000, "data": {"train": "other.txt"}}
    for each in (result("a", 5.0, max_steps=800), result("b", 4.0, heads=24, **longer)):
        (tmp_path / each["run"]).mkdir()
        leave_result(tmp_path / each.pop("run"), **each)
    compare_runs([], tmp_path, "loss", "json")
    captured = capsys.readouterr()
    assert [(row["run"], row["max_steps"]) for row in json.loads(captured.out)] == [("b", 4000), ("a", 800)]
    assert captured.err == "losses can be compared only between runs with the same max_steps, data\n"
    # of one condition nothing is said
    compare_runs(["max_steps=800"], tmp_path, "loss", "json")
    captured = capsys.readouterr()
    assert "max_steps" not in captured.out + captured.err


def test_the_time_is_linear_in_the_runs():
    results = [result(f"run{seed}", 5.0, seed=seed) for seed in range(10_000)]
    start = time.process_time()
    assert len(table_of(results)) == 10_000
    # a fifth of a second; what looks at all results for every row takes twelve
    assert time.process_time() - start < 4


def test_filtered(runs, capsys):
    assert [row["run"] for row in shown(capsys, "heads=24", runs=runs)] == ["d"]
    assert [row["run"] for row in shown(capsys, "heads=6", "seed=0", runs=runs)] == ["a", "c"]
    assert [row["run"] for row in shown(capsys, "variant.start=random", "seed=1", runs=runs)] == ["b"]
    assert [row["run"] for row in shown(capsys, "a", "d", "heads=6", runs=runs)] == ["a"]
    assert [row["run"] for row in shown(capsys, "heads=6,24", "seed=0", runs=runs)] == ["d", "a", "c"]


@pytest.mark.parametrize(
    ("which", "sort", "message"),
    [
        (["head=6"], "loss", "head: no run has such a setting.*heads"),
        ([], "los", "--sort los: there is no such column.*loss"),
        (["heads=7"], "loss", "no finished run in .*/ matches heads=7$"),
        (["variant=talkin_heads"], "loss", r"matches variant=talkin_heads \(did you mean talking_heads\?\)$"),
        (["heads=6", "heads=12"], "loss", "heads is given twice: 6 and 12"),
        (["e"], "loss", "there is no run 'e'"),
    ],
)
def test_mistakes(runs, which, sort, message):
    with pytest.raises(Mistake, match=message):
        compare_runs(which, runs, sort, "table")


def test_a_folder_of_runs_that_is_not_there_is_named(tmp_path):
    (tmp_path / "file").touch()
    for name, said in (
        ("", "in .*/\n"),
        ("nowhere", "in .*nowhere/, which does not exist\n"),
        ("file", "in .*file, which is not a folder\n"),
    ):
        for which in ([], ["heads=6"]):
            with pytest.raises(Mistake, match=f"no finished run {said}  attn train makes one"):
                compare_runs(which, tmp_path / name, "loss", "table")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"NaN", b"null", b"\xff\xfe", b"[" * 100_000, b'{"digest": 1}'])
def test_a_damaged_result_is_marked_and_said_and_has_no_number(runs, capsys, content):
    (runs / "a" / "result.json").write_bytes(content)
    compare_runs([], runs, "loss", "json")
    captured = capsys.readouterr()
    row = {row["run"]: row for row in json.loads(captured.out)}["a"]
    assert (row["status"], row["heads"], row["loss"], row["perplexity"]) == ("changed", 6, None, None)
    (line,) = captured.err.splitlines()
    assert line.startswith(f"changed: {runs / 'a' / 'result.json'}: ")


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("result.json", '"validation_loss": 5.0', '"validation_loss": 4.0'),
        ("result.json", '"heads": 6', '"heads": 12'),
        ("config.yaml", "heads: 6", "heads: 12"),
        ("tokenizer.json", "{}", "[]"),
        ("predictions.json", "0.5", "1.0"),
    ],
)
def test_a_run_that_was_edited_is_marked_too_when_it_is_in_the_index(runs, capsys, name, before, after):
    compare_runs([], runs, "loss", "json")
    capsys.readouterr()
    text = (runs / "a" / name).read_text()
    assert before in text
    (runs / "a" / name).write_text(text.replace(before, after))
    for _ in range(2):
        compare_runs([], runs, "loss", "json")
        captured = capsys.readouterr()
        row = {row["run"]: row for row in json.loads(captured.out)}["a"]
        assert (row["status"], row["loss"]) == ("changed", None)
        assert row["heads"] == (None if name == "config.yaml" else 6)
        assert captured.err.startswith(f"changed: {runs / 'a' / name}: ") and captured.err.count("\n") == 1


def test_a_run_is_named_by_its_name_or_the_start_of_it(runs):
    assert find_run("a", runs) == runs / "a"
    for name in ("ab", "ac"):
        (runs / name).mkdir()
        (runs / name / "config.yaml").touch()
    assert find_run("a", runs) == runs / "a", "whole, though others begin with it"
    assert find_run("ab", runs) == find_run(str(runs / "ab"), Path("elsewhere")) == runs / "ab"
    (runs / "a" / "config.yaml").unlink()
    with pytest.raises(Mistake, match="'a' is the start of 2 runs"):
        find_run("a", runs)


def test_a_pattern_that_no_shell_has_read_is_looked_for_in_its_own_folder(runs, monkeypatch):
    monkeypatch.chdir(runs.parent)
    assert find_runs("[ab]*", runs) == find_runs(f"{runs}/[ab]*", Path("elsewhere")) == [runs / "a", runs / "b"]
    assert find_runs("a**", runs) == [runs / "a"]
    for name in ("b**a", ".", "/"):
        with pytest.raises(Mistake, match="there is no run"):
            find_runs(name, runs)
    with pytest.raises(Mistake, match="no run 'elsewhere/a' in elsewhere/"):
        find_runs("elsewhere/a", runs)
    (runs / "talking_heads-l2-post").mkdir()
    (runs / "talking_heads-l2-post" / "config.yaml").touch()
    with pytest.raises(Mistake, match=r"did you mean talking_heads\?"):
        find_run("talkin_heads", runs)
    with pytest.raises(Mistake, match=r"did you mean talking_heads-l2-post\?"):
        find_run("talking_heads-l2-pst", runs)
    # a folder that is no run hides none
    (runs.parent / "d").mkdir(exist_ok=True)
    assert find_runs("d", runs) == [runs / "d"]


def test_columns_that_tell_nothing_more_are_left_out():
    columns = {"heads": [6, 6, 12], "key_size": [16, 16, 8], "seed": [0, 1, 0]}
    assert list(telling(columns, [()] * 3)) == ["heads", "seed"]
    assert list(telling(columns, ["a", "a", "b"])) == ["seed"]
    assert list(telling(columns, ["a", "b", "c"])) == []
    assert list(telling({"heads": []}, [])) == []


def test_a_setting_that_differs_has_a_column_whatever_else_differs_with_it():
    plain = table_of([result("a", 5.0), result("b", 4.5, seed=1), result("c", 4.0, heads=24)])
    assert "variant.key_heads" not in plain[0] and "learning_rate" not in plain[0] and "logger.tags" not in plain[0]
    one, other = {"learning_rate": 3e-3, "warmup": 10}, {"learning_rate": 1e-3, "warmup": 20}
    for differing in ({"seed": 1}, {"heads": 24}, {"start": "identity"}):
        rows = table_of([result("a", 5.0, **one), result("b", 4.5, **other, **differing)])
        assert [(row["learning_rate"], row["warmup"]) for row in rows] == [(3e-3, 10), (1e-3, 20)], differing
        # it follows from another column
        assert "optimizer.learning_rate" not in rows[0]
    assert [row["variant.start"] for row in rows] == ["random", "identity"]


def test_a_setting_that_only_one_kind_has_differs_within_the_kind():
    muon, adamw = {"kind": "muon", "beta1": 0.9, "momentum": 0.95}, {"kind": "adamw", "beta1": 0.9}
    rows = table_of([result("a", 5.0, optimizer=muon), result("b", 4.5, optimizer=adamw)])
    assert [row["optimizer.kind"] for row in rows] == ["muon", "adamw"]
    assert not {"optimizer.momentum", "optimizer.beta1"} & rows[0].keys()
    rows = table_of([result(str(momentum), 5.0, optimizer=muon | {"momentum": momentum}) for momentum in (0.9, 0.95)])
    assert [row["optimizer.momentum"] for row in rows] == [0.9, 0.95]


def test_a_choice_that_changes_no_result_has_no_column():
    trainers = ({"devices": 1, "sharded": False, "device": "cuda:0"}, {"devices": 2, "sharded": True, "device": "cuda"})
    one, other = (result(str(seed), 5.0, seed=seed, trainer=each) for seed, each in enumerate(trainers))
    assert table_of([one, other])[0].keys() == table_of([one, one])[0].keys()
    # each seed may be fine-tuned from its own pretrained run
    one, other = (result(str(seed), 5.0, seed=seed, origin={"run": f"pretrained-{seed}"}) for seed in (0, 1))
    assert "origin.run" not in table_of([one, other])[0]
    assert "origin.run" in table_of([one, other | {"seed": 0}])[0]


def test_a_setting_is_known_to_follow_from_that_of_its_default():
    for path in sorted(CONF.glob("*/*.yaml")):
        group, text = path.parent.name, path.read_text()
        if group in ("experiment", "hydra", "variant") or "${" not in text:
            continue
        tree = yaml.safe_load(text)
        for key, value in (tree if "# @package _global_" not in text else tree.get(group, {})).items():
            sources = re.findall(r"\$\{(\.?[a-z_]+)\}", str(value))
            of_group = [source.replace(".", f"{group}.") for source in sources]
            assert not sources or TAKEN_FROM.get(f"{group}.{key}", key) in of_group, (path, key)
    # what a variant takes from more than its sizes
    taken = {
        key for path in (CONF / "variant").glob("*.yaml") for key in re.findall(r"(\w+): \$\{model\.", path.read_text())
    }
    assert taken == {"linear_bias", "dropout"}


def test_a_loss_never_stands_beside_one_of_another_objective_unnamed():
    masked, causal = (result(kind, 5.0, objective={"kind": kind}, heads=heads) for kind, heads in
                      (("masked", 6), ("causal", 24)))  # fmt: skip
    rows = table_of([masked, causal])
    assert next(iter(rows[0])) == "objective" and [row["objective"] for row in rows] == ["masked", "causal"]
    assert "objective" not in table_of([masked, masked])[0]
    assert matching(["objective=causal"], [masked, causal]) == [causal]


def test_scores_stand_before_the_loss_and_only_where_there_are_any():
    translated = result("a", 5.0, objective={"kind": "translation"}) | {"text_scores": {"bleu": 31.5}}
    tuned = result("b", 0.5, objective={"kind": "causal"}, task={"name": "sst2"})
    tuned |= {"perplexity": None, "scores": {"accuracy": 90.0}}
    plain, of_task = tables_of([translated, tuned, result("c", 4.0, objective={"kind": "masked"})])
    assert [row["bleu"] for row in plain] == [31.5, None] and "accuracy" not in plain[0]
    columns = list(plain[0])
    assert columns[0] == "objective" and columns.index("bleu") + 1 == columns.index("loss")
    assert [row["accuracy"] for row in of_task] == [90.0] and next(iter(of_task[0])) == "task"
    assert not {"objective", "bleu", "perplexity"} & of_task[0].keys()


def test_a_narrow_terminal_gets_what_rows_share_above_the_table():
    rows = table_of([result("a", 5.0), result("b", 4.5, seed=1)])
    narrow = Console(file=io.StringIO(), width=60, force_terminal=True, color_system=None)
    show(rows, "table", console=narrow)
    above, _, table = narrow.file.getvalue().partition("\n\n")
    assert "heads 6" in above and "peak_memory 500 MB" in above and "parameters 2,000,000" in above
    assert table.split("\n")[0].split() == ["seed", "loss", "run"]
    assert all(len(line) <= 60 for line in narrow.file.getvalue().splitlines())


@pytest.mark.parametrize("width", [40, 50, 60, 80])
def test_a_narrow_terminal_keeps_names_and_numbers_whole(width):
    names = [f"talking_heads-l2-d48-h6-k8-v8-pre-s{seed}-84d63673" for seed in (0, 1)]
    rows = table_of([result(name, 5.0 + seed, seed=seed) for seed, name in enumerate(names)])
    rows = [
        row | {"tokens_per_second": 10273.4 + row["seed"], "peak_memory_bytes": 288e6 + row["loss"]} for row in rows
    ]
    narrow = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    show(rows, "table", console=narrow)
    said = narrow.file.getvalue()
    for whole in (*names, "5.0000", "6.0000", "10,273", "10,274", "288 MB"):
        assert re.search(rf"(?<![\w,.]){re.escape(whole)}(?![\w,.])", said), (whole, said)


def test_runs_that_differ_in_most_columns_still_are_a_table_at_80_columns():
    rows = table_of([result("a", 5.0, seed=10), result("b", 4.5, key_size=128)])
    costs = (("compiled", 3_204.0, 2_583_040), ("blocked", 757.4, 13_583_808))
    for row, (backend, speed, parameters) in zip(rows, costs, strict=True):
        row |= {"variant": "multi_head", "run": f"multi_head-l4-d192-h6-k32-v32-pre-{row['run']}-1129bada"}
        row |= {"backend": backend, "tokens_per_second": speed, "parameters": parameters}
        row |= {"peak_memory_bytes": 100 * speed, "perplexity": row["loss"]}
    rows[1]["variant"] = "additive"
    terminal = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    show(rows, "table", console=terminal)
    lines = [line.split() for line in terminal.file.getvalue().splitlines()]
    assert ["multi_head", "32", "10", "5.0000", "5.0000", "3,204", "0", "MB", "2,583,040", "compiled"] in lines


@pytest.mark.parametrize("width", [40, 60, 70, 80, 100, 120])
def test_an_interval_stays_in_one_line_and_a_sentence_stands_below_its_row(width):
    sentence = "with a head size independent of d / h, every added head improves a causal model"
    rows = [
        {"row": f"given{row}", "what": sentence, "heads": row, "difference": f"+0.{row}333 [+0.{row}000, +0.{row}666]"}
        for row in (1, 2, 3)
    ]
    rows[0]["what"] = sentence.upper()
    terminal = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    show(rows, "table", console=terminal)
    lines = terminal.file.getvalue().splitlines()
    assert all(len(line.rstrip()) <= width for line in lines)
    for row in rows:
        (line,) = (line for line in lines if row["difference"] in line)
        # in a block each value has a line of its own
        assert width == 40 or row["row"] in line
    said = " ".join(terminal.file.getvalue().split())
    assert width != 60 or (sentence in said and sentence.upper() in said)


def test_numbers_of_a_column_have_as_many_digits_after_the_point():
    assert [readable("perplexity", value) for value in (107.96, 100.5, 999.96)] == ["108.0", "100.5", "1,000.0"]
    assert [readable("loss", value) for value in (4.5, 1e-5, 1234.5)] == ["4.5000", "1e-05", "1,234"]


def test_markdown_is_rounded_and_json_is_not(runs, capsys):
    compare_runs(["b"], runs, "loss", "markdown")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("| variant | layers |") and "| 5,000 | 500 MB | 2,000,000 |" in lines[2]
    assert shown(capsys, "b", runs=runs)[0]["tokens_per_second"] == 5000.4


def test_a_pipe_gets_every_row_on_a_line_and_a_terminal_the_first(monkeypatch):
    monkeypatch.setattr("experiments.display.rows.TERMINAL_ROWS", 2)
    rows = [{"run": f"run-{number}", "loss": 4.0 + number, "peak_memory_bytes": 10**8} for number in range(3)]
    pipe = Console(file=io.StringIO(), width=20)
    show(rows, "table", console=pipe)
    assert pipe.file.getvalue() == (
        "run      loss  peak_memory\n"
        "run-0  4.0000       100 MB\n"
        "run-1  5.0000       100 MB\n"
        "run-2  6.0000       100 MB\n"
    )  # fmt: skip
    terminal = Console(file=io.StringIO(), width=60, force_terminal=True, color_system=None)
    show(rows, "table", console=terminal)
    assert "run-1" in terminal.file.getvalue() and "run-2" not in terminal.file.getvalue()
    assert "the first 2 of 3 rows; a pipe or --format csv has all" in " ".join(terminal.file.getvalue().split())


def test_a_run_whose_name_is_not_utf8_is_marked_beside_the_others(runs, capsys):
    shutil.copytree(runs / "a", runs / os.fsdecode(b"z\xff"))
    for format in ("json", "table"):
        compare_runs([], runs, "loss", format)
        shown = capsys.readouterr()
        assert "z\\udcff: the path of a run must be UTF-8" in shown.err and shown.out.encode()
    compare_runs([], runs, "loss", "json")
    rows = json.loads(capsys.readouterr().out)
    assert [(row["run"], row["loss"], row["status"]) for row in rows][-1] == ("z\\udcff", None, "changed")
    assert [row["run"] for row in rows][:3] == ["b", "d", "a"]


def test_runs_that_read_other_tokens_of_the_same_text_are_said(tmp_path, capsys):
    config = compose([]).model_dump()
    read = {"a": {"packed/x": "one"}, "b": {"packed/x": "one"}, "c": {"packed/x": "other"}, "d": {"packed/y": "third"}}
    for name, sequences in (read | {"e": None}).items():
        (folder := tmp_path / name).mkdir()
        (folder / "config.yaml").write_text(config_text(config))
        leave_result(folder, config=config, sequences=sequences, validation_loss=5.0, perplexity=100.0)
    compare_runs([], tmp_path, "loss", "json")
    assert "a and c read different tokens of the same text" in capsys.readouterr().err
    compare_runs(["a", "b", "d", "e"], tmp_path, "loss", "json")
    assert "tokens of" not in capsys.readouterr().err
    (note,) = page_data([], tmp_path)["notes"][1:]
    assert note.startswith("Remark: a and c read different tokens of the same text")
    assert note.removeprefix("Remark: ").removesuffix(".") == capsys.readouterr().err.strip()


def test_runs_of_the_same_settings_with_different_kernels_are_said(tmp_path, capsys):
    """As when the compiler failed while one cell of a sweep began."""
    plain, other = (compose([f"variant={name}"]).model_dump() for name in ("multi_head", "talking_heads"))
    cells = {"a": (plain, "compiled"), "b": (plain | {"seed": 1}, "sdpa"), "c": (other, "blocked"), "d": (plain, None)}
    for name, (config, backend) in cells.items():
        (folder := tmp_path / name).mkdir()
        (folder / "config.yaml").write_text(config_text(config))
        leave_result(folder, config=config, seed=config["seed"], backend=backend, validation_loss=5.0, perplexity=100.0)
    line = "a (compiled) and b (sdpa) differ only in the seed, but ran with different kernels"
    for selection, said in (([], True), (["a", "b"], True), (["a", "c", "d"], False), (["b", "c"], False)):
        compare_runs(selection, tmp_path, "loss", "json")
        assert (line in capsys.readouterr().err) == said, selection


def test_results_of_other_code_than_the_present_are_said(tmp_path, capsys):
    config = compose(["variant=talking_heads"]).model_dump()
    changed, made = "ab" * 32, code_digest(config, "compiled")
    foreign = config | {"variant": {"name": "not_in_this_checkout"}}
    for name, own, digest in [("a", config, made), ("b", config, changed), ("c", foreign, made), ("d", config, None)]:
        (folder := tmp_path / name).mkdir()
        (folder / "config.yaml").write_text(config_text(own))
        leave_result(folder, config=own, backend="compiled", code_digest=digest, validation_loss=5.0, perplexity=100.0)
    (imported := tmp_path / "e").mkdir()
    (imported / "config.yaml").write_text(config_text(config))
    untrained = code_digest(config, "compiled", trained=False)
    leave_result(imported, status="imported", config=config, backend="compiled", code_digest=untrained)
    line = "computed with other code than the present one: {} runs; to train them again, give their commands with runs="
    for selection, said in (([], "b and 1 more of 5"), (["a", "b"], "b of 2"), (["a", "d", "e"], None)):
        compare_runs(selection, tmp_path, "loss", "json")
        printed = capsys.readouterr().err
        assert printed.startswith(line.format(said)) if said else "other code" not in printed, printed
    assert any("other code than the present one: b of 1 runs" in note for note in page_data(["b"], tmp_path)["notes"])


@pytest.mark.parametrize(
    ("condition", "values", "line"),
    [
        ("precision", ("bf16", "fp32"), "a (bf16) and c (fp32) computed in different precision"),
        ("device", ("NVIDIA H100", "AMD EPYC"), "a (NVIDIA H100) and c (AMD EPYC) ran on different machines"),
    ],
)
def test_another_precision_or_machine_than_that_of_other_runs_is_said(tmp_path, capsys, condition, values, line):
    """As precision=auto and device=auto choose them, so that the settings are the same."""
    config = compose([]).model_dump()
    for seed, (name, value) in enumerate({"a": values[0], "b": values[0], "c": values[1], "d": None}.items()):
        (folder := tmp_path / name).mkdir()
        own = config | {"seed": seed}
        (folder / "config.yaml").write_text(config_text(own))
        leave_result(folder, config=own, seed=seed, validation_loss=5.0, perplexity=100.0, **{condition: value})
    for selection, said in (([], True), (["a", "c"], True), (["a", "b", "d"], False)):
        compare_runs(selection, tmp_path, "loss", "json")
        assert (line in capsys.readouterr().err) == said, selection
        assert any(line in note for note in page_data(selection, tmp_path)["notes"]) == said, selection
        capsys.readouterr()
