"""`attn compare` on result files of known content."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import re
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from experiments.commands.compare import compare_runs
from experiments.config.compose import compose
from experiments.dashboard.page import page_data
from experiments.display.rows import show
from experiments.failures.failure import Mistake
from experiments.record.code.digests import code_digest
from experiments.record.folder import config_text
from experiments.results.columns import table_of
from tests.fixtures.record import leave_result, small_result


@pytest.fixture
def runs(tmp_path) -> Path:
    for each in (
        small_result("a", 5.0),
        small_result("b", 4.5, seed=1),
        small_result("c", None),
        small_result("d", 4.9, heads=24),
    ):
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
    for each in (small_result("a", 5.0, max_steps=800), small_result("b", 4.0, heads=24, **longer)):
        (tmp_path / each["run"]).mkdir()
        leave_result(tmp_path / each.pop("run"), **each)
    compare_runs([], tmp_path, "loss", "json")
    captured = capsys.readouterr()
    assert [(row["run"], row["max_steps"]) for row in json.loads(captured.out)] == [("b", 4000), ("a", 800)]
    assert captured.err == "losses can be compared only between runs with the same max_steps, data\n"
    # what has no loss is compared with none
    without_loss = small_result("c", None, max_steps=800, data={"train": "third.txt"}) | {"status": "oom"}
    (tmp_path / without_loss["run"]).mkdir()
    leave_result(tmp_path / without_loss.pop("run"), **without_loss)
    compare_runs(["max_steps=800"], tmp_path, "loss", "json")
    assert capsys.readouterr().err == ""
    # of one condition nothing is said
    compare_runs(["max_steps=800"], tmp_path, "loss", "json")
    captured = capsys.readouterr()
    assert "max_steps" not in captured.out + captured.err


def test_a_run_whose_path_has_an_equals_sign_is_named_by_it(runs, capsys):
    (moved := runs / "sweep=2").mkdir()
    (runs / "a").rename(moved / "a")
    assert [row["run"] for row in shown(capsys, str(moved / "a"), "d", "seed=0", runs=runs)] == ["d", "a"]


def test_filtered(runs, capsys):
    assert [row["run"] for row in shown(capsys, "heads=24", runs=runs)] == ["d"]
    assert [row["run"] for row in shown(capsys, "heads=6", "seed=0", runs=runs)] == ["a", "c"]
    assert [row["run"] for row in shown(capsys, "variant.start=random", "seed=1", runs=runs)] == ["b"]
    assert [row["run"] for row in shown(capsys, "a", "d", "heads=6", runs=runs)] == ["a"]
    assert [row["run"] for row in shown(capsys, "heads=6,24", "seed=0", runs=runs)] == ["d", "a", "c"]


def test_a_setting_that_is_null_in_all_runs_is_one(tmp_path, capsys):
    (tmp_path / "a").mkdir()
    leave_result(tmp_path / "a", **small_result("a", 5.0, epochs=None) | {"run": None})
    assert len(shown(capsys, "epochs=null", runs=tmp_path)) == 1


@pytest.mark.parametrize(
    ("which", "sort", "message"),
    [
        (["head=6"], "loss", "head=6: no run has such a setting.*heads"),
        (["start=random"], "loss", r"no run has such a setting \(did you mean variant.start\?\)$"),
        (["=6"], "loss", "^=6: no run has such a setting"),
        (["optimizer=muon"], "loss", "optimizer=muon: optimizer is a group of settings\n.*optimizer.learning_rate"),
        ([], "los", "--sort los: there is no such column.*loss"),
        (["heads=7"], "loss", "no finished run in .*/ matches heads=7$"),
        (["runs=elsewhere"], "loss", "matches runs=elsewhere\n  --runs FOLDER names another folder"),
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
    line, diverged = captured.err.splitlines()
    assert line.startswith(f"changed: {runs / 'a' / 'result.json'}: ")
    assert diverged.startswith("diverged (status nan): c of 4 runs; try a third of its learning_rate")


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
        assert captured.err.startswith(f"changed: {runs / 'a' / name}: ") and captured.err.count("\n") == 2


def test_a_narrow_terminal_gets_what_rows_share_above_the_table():
    rows = table_of([small_result("a", 5.0), small_result("b", 4.5, seed=1)])
    narrow = Console(file=io.StringIO(), width=60, force_terminal=True, color_system=None)
    show(rows, "table", console=narrow)
    above, _, table = narrow.file.getvalue().partition("\n\n")
    assert "heads 6" in above and "peak_memory 500 MB" in above and "parameters 2,000,000" in above
    assert table.split("\n")[0].split() == ["seed", "loss", "run"]
    assert all(len(line) <= 60 for line in narrow.file.getvalue().splitlines())


@pytest.mark.parametrize("width", [40, 50, 60, 80])
def test_a_narrow_terminal_keeps_names_and_numbers_whole(width):
    names = [f"talking_heads-l2-d48-h6-k8-v8-pre-s{seed}-84d63673" for seed in (0, 1)]
    rows = table_of([small_result(name, 5.0 + seed, seed=seed) for seed, name in enumerate(names)])
    rows = [
        row | {"tokens_per_second": 10273.4 + row["seed"], "peak_memory_bytes": 288e6 + row["loss"]} for row in rows
    ]
    narrow = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    show(rows, "table", console=narrow)
    said = narrow.file.getvalue()
    for whole in (*names, "5.0000", "6.0000", "10,273", "10,274", "288 MB"):
        assert re.search(rf"(?<![\w,.]){re.escape(whole)}(?![\w,.])", said), (whole, said)


def test_runs_that_differ_in_most_columns_still_are_a_table_at_80_columns():
    rows = table_of([small_result("a", 5.0, seed=10), small_result("b", 4.5, key_size=128)])
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


def test_markdown_is_rounded_and_json_is_not(runs, capsys):
    compare_runs(["b"], runs, "loss", "markdown")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("| variant | layers |") and "| 5,000 | 500 MB | 2,000,000 |" in lines[2]
    assert shown(capsys, "b", runs=runs)[0]["tokens_per_second"] == 5000.4


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


def test_runs_of_the_same_settings_and_seed_with_different_losses_are_said(tmp_path, capsys):
    """As when an older run was kept beside its repetition under another name."""
    config = compose([]).model_dump()
    seeds_and_losses = {"a": (0, 5.0), "b": (1, 5.5), "old_a": (0, 6.0), "same_as_b": (1, 5.5), "z": (2, 5.0)}
    for name, (seed, loss) in seeds_and_losses.items():
        (folder := tmp_path / name).mkdir()
        (folder / "config.yaml").write_text(config_text(config | {"seed": seed}))
        known = {"backend": "compiled", "validation_loss": loss, "perplexity": 100.0}
        leave_result(folder, config=config | {"seed": seed}, seed=seed, **known)
    line = (
        "a (5.0000) and old_a (6.0000) have the same settings and seed, but different losses; a mean counts one of them"
    )
    for selection, said in (([], True), (["b", "same_as_b"], False), (["a", "b", "z"], False)):
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


@pytest.fixture
def sweep(tmp_path) -> Path:
    """Two variants with two numbers of heads, six seeds each, under two budgets; one run has diverged."""
    for variant, heads, steps, seed in itertools.product(("multi_head", "talking_heads"), (6, 24), (40, 60), range(6)):
        # seeds share a part of their luck
        loss = 5 + seed / 10 - heads / 100 - steps / 1000 - (variant == "talking_heads") * (0.1 + seed % 3 / 50)
        diverges = (variant, heads, steps, seed) == ("talking_heads", 24, 60, 5)
        config = {"variant": {"name": variant, "key_heads": heads}, "max_steps": steps}
        name = f"{variant}-{heads}-{steps}-{seed}"
        result = small_result(name, None if diverges else loss, seed, heads, **config)
        (folder := tmp_path / result.pop("run")).mkdir()
        (folder / "config.yaml").write_text(config_text(result["config"]))
        leave_result(folder, **result | {"tokens_per_second": 1000.0 * (seed + heads), "late_gain": 0.001})
    return tmp_path


def test_configurations_have_the_numbers_of_the_comparison_page(sweep, capsys):
    compare_runs([], sweep, "loss", "json", over_seeds=True)
    rows = json.loads(capsys.readouterr().out)
    data, place = page_data([], sweep), {}
    for number, of in enumerate(data["configurations"]):
        comparison = data["comparisons"][of["comparison"]]
        place[comparison["says"], of["name"]] = number, of, comparison
    assert len(rows) == len(place) == 8
    for row in rows:
        number, of, comparison = place[row["conditions"], row["configuration"]]
        means = dict(zip(data["measures"], of["means"], strict=True))
        errors = dict(zip(data["measures"], of["errors"], strict=True))
        assert row["seeds"] == len(of["ended"])
        for column in ("loss", "tokens_per_second"):
            assert row[column] == pytest.approx(means[column], rel=1e-5)
        assert row["loss_deviation"] == pytest.approx(errors["loss"] * row["seeds"] ** 0.5, rel=1e-5)
        baseline = comparison["baselines"][0]
        if number == baseline:
            assert row["verdict"] == "baseline" and row["difference"] is None
            continue
        shown = comparison["differences"][baseline][number]
        half = (row["difference_high"] - row["difference_low"]) / 2
        assert (row["difference"], half) == pytest.approx((shown["mean"], shown["half"]), rel=1e-4)
        assert (row["pairs"], row["verdict"], row["why"] or "") == (shown["n"], shown["word"], shown["why"])
    assert {row["verdict"] for row in rows} == {"baseline", "better", "not tested"}


def test_configurations_for_people_have_a_table_for_each_set_of_conditions(sweep, capsys):
    compare_runs([], sweep, "heads", "markdown", over_seeds=True, baseline=["variant=talking_heads", "heads=6"])
    captured = capsys.readouterr()
    first, second = captured.out.split("\n\n")
    assert "| max_steps 40 |" in first and "| max_steps 60 |" in second and len(first.splitlines()) == 6
    assert re.search(r"\| 6 \| 5\.1500 \+- 0\.1871 \|.*\| \+0\.1200 \[\+0\.\d{3}, \+0\.\d{3}\] \| 6 \| worse \|", first)
    assert first.count("baseline") == second.count("baseline") == 1
    # a size that follows, and what no row has
    assert not {"key_size", "value_size", "why", "loss_deviation", "configuration"} & set(re.findall(r"\w+", first))
    said = captured.err.splitlines()
    assert "in no mean, because they have not finished with a loss: 1 of 48 runs" in said
    assert "losses can be compared only between runs with the same max_steps" in said
    assert "talking_heads, heads 24: not tested: talking_heads, heads 24 diverged with 1 of 6 seeds" in said
    compare_runs(["max_steps=40"], sweep, "-difference", "latex", over_seeds=True)
    text = capsys.readouterr().out
    assert r"\toprule" in text and "max_steps" not in text and r"talking\_heads" in text


def test_a_size_of_heads_that_does_not_follow_is_shown(tmp_path, capsys):
    for heads in (6, 12):
        (folder := tmp_path / str(heads)).mkdir()
        leave_result(folder, **small_result("", 5.0, heads=heads, key_size=8) | {"run": None})
    compare_runs([], tmp_path, "loss", "markdown", over_seeds=True)
    header = capsys.readouterr().out.splitlines()[0]
    assert "| key_size |" in header and "value_size" not in header


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"baseline": ["heads=6"]}, "--baseline heads=6: needs --over-seeds"),
        ({"over_seeds": True, "baseline": ["d"]}, "--baseline d: must be KEY=VALUE\n  such as variant=multi_head"),
        (
            {"over_seeds": True, "baseline": ["variant=talkin_heads"]},
            r"--baseline: no configuration with a loss matches variant=talkin_heads \(did you mean talking_heads\?\)$",
        ),
        ({"over_seeds": True, "baseline": ["heads=6", "heads=24"]}, "heads is given twice: 6 and 24"),
        ({"over_seeds": True, "sort": "los"}, "--sort los: there is no such column.*loss"),
    ],
)
def test_mistakes_over_seeds(runs, options, message):
    with pytest.raises(Mistake, match=message):
        compare_runs([], runs, **{"sort": "loss", "format": "table"} | options)
