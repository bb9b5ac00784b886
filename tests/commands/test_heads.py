"""`attn heads` as a shell runs it, on two tiny runs, and what it refuses."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from pyarrow import parquet

from experiments.commands import heads as command
from experiments.failures.failure import Mistake
from experiments.heads import output
from experiments.heads.measures.pruning import load_pruned
from experiments.heads.options import HeadsOptions
from experiments.heads.section import Column, Section
from experiments.record.errors import RunFolderError
from experiments.results.find import find_run
from tests.fixtures.figures import leave_undrawn
from tests.fixtures.permissions import as_another_user

TREE = "\n".join(
    f"{index}\t{word}\t_\t_\t_\t_\t{head}\t{relation}\t_\t_"
    for index, (word, head, relation) in enumerate([("te", 2, "det"), ("no", 0, "root"), ("ta", 2, "obj")], 1)
)


@pytest.fixture
def drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw each kind of figure once, as SVG, and the first also as PNG.

    The kinds are those of talking heads. The other run has the same ones, except for one.
    """
    save, draw = output.save_sections, Figure.savefig
    leave_undrawn(monkeypatch)
    leave_empty, bitmaps = Figure.savefig, []

    def draw_some(figure: Figure, target: Path | io.BytesIO, *, format: str, **options: Any) -> None:
        if format == "png":
            bitmaps.append(target)
        (leave_empty if len(bitmaps) > 1 and format == "png" else draw)(figure, target, format=format, **options)

    def save_some(sections: Sequence[Section], folder: Path) -> None:
        with monkeypatch.context() as patched:
            if folder.parent.name.startswith("talking_heads"):
                patched.setattr(Figure, "savefig", draw_some)
            save(sections, folder)

    monkeypatch.setattr(output, "save_sections", save_some)


@pytest.mark.usefixtures("drawn_once")
def test_two_runs_side_by_side(attn, tiny, tmp_path):
    for variant in ("multi_head", "talking_heads"):
        assert attn("train", f"variant={variant}", "heads=3", *tiny).returncode == 0
    (tmp_path / "trees.conllu").write_text("\n\n".join(25 * [TREE]), encoding="utf-8")
    options = ["--sequences", "6", "--sentence", "te <b>no</b>", "--treebank", "trees.conllu", "--export", "2"]
    options += ["--equal", "2", "--gates", "2"]
    done = attn("heads", "multi_head", "talking_heads", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert float(re.findall(r"differ by at most (\S+)", done.stderr)[-1]) < 1e-4

    both = (tmp_path / done.stdout.strip()).read_text(encoding="utf-8")
    folders = sorted((tmp_path / "runs").glob("*_head*"))
    for folder in folders:
        kinds = {path.name for path in (folder / "heads").iterdir()}
        expected = {
            "maps",
            "roles",
            "syntax",
            "distances",
            "importance",
            "pruning",
            "rank",
            "matching",
            "equal",
            "gates",
        }
        assert {f"{name}.{kind}" for name in expected for kind in ("png", "svg")} <= kinds
        assert ("projections.png" in kinds) == folder.name.startswith("talking")
        heads = parquet.read_table(folder / "heads" / "heads.parquet").to_pylist()
        assert [(row["layer"], row["head"]) for row in heads] == [(i, h) for i in (1, 2) for h in (1, 2, 3)]
        with pytest.raises(Mistake, match=r"pruned-2: is a model from which `attn heads` removed heads, not a run"):
            find_run(str(folder / "heads" / "pruned-2"), tmp_path / "runs")
        pruned = load_pruned(folder / "heads" / "pruned-2")
        assert sum(layer.attention.value_heads for layer in pruned.model.layers) == 2
        gated = load_pruned(folder / "heads" / "gated")
        assert sum(layer.attention.value_heads for layer in gated.model.layers) == 6
        for model in (pruned.model, gated.model):
            assert model(torch.tensor([[1, 2, 3]])).isfinite().all()
        assert (folder.name.startswith("talking")) == ("<path" in (folder / "heads" / "maps.svg").read_text())
        alone = (folder / "heads" / "index.html").read_text(encoding="utf-8")
        assert "<h1>" + folder.name in alone and "<b>no" not in alone
        assert folder.name in both
        for text in (alone, both):
            assert not re.search(r"""(src|href)=["'](?!data:|\#)""", text) and "@import" not in text
    assert "Not in this run." in both


@pytest.mark.parametrize("names", ["a", "ab"])
def test_a_section_that_was_made_earlier_stays_and_says_so(tmp_path, names):
    path = tmp_path / "index.html"
    first, gates = Section("What the heads look at", "one"), Section("Gates <L0>", "expensive")

    def write(*sections: Section) -> str:
        output.write_page(path, [Column(name, "about", sections) for name in names])
        return path.read_text()

    assert output.EARLIER_NOTE not in write(first, gates)
    for _ in range(2):
        text = write(Section("What the heads look at", "two"))
        assert text.count(output.EARLIER_NOTE) == 1 and text.count("<section") == 2
        assert text.count("expensive") == len(names) and text.count(">Gates &lt;L0&gt;<") == 2
        assert "<p>two</p>" in text and "<p>one</p>" not in text
    assert output.EARLIER_NOTE not in write(first, gates)


def test_a_name_with_html_in_it_stays_text():
    text = output.page([Column("<img src=x onerror=alert(1)>", "</p><script>", [Section("Title", "a < b")])])
    assert "<img src=x" not in text and "&lt;img src=x" in text and "</p><script>" not in text and "a &lt; b" in text


def refused(tmp_path: Path, names: list[str], **changes: object) -> str:
    with pytest.raises(Mistake) as error:
        command.show_heads(names, tmp_path, HeadsOptions(**{"sequences": 4} | changes))
    return str(error.value)


@pytest.mark.parametrize("penalty", [-1.0, math.nan, math.inf])
def test_a_penalty_is_a_finite_number(penalty):
    with pytest.raises(Mistake, match=r"--penalty .*: must be a finite number of at least 0"):
        HeadsOptions(penalty=penalty)


@pytest.mark.parametrize("sentence", ["", " "])
def test_a_sentence_without_a_word_is_refused_before_its_run_is_looked_for(sentence):
    with pytest.raises(Mistake, match="--sentence: is empty"):
        HeadsOptions(sentence=sentence)


def test_no_name_is_no_run(tmp_path):
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "config.yaml").touch()
    assert find_run("on", tmp_path) == tmp_path / "only"
    with pytest.raises(Mistake, match="a run's name is empty"):
        find_run("", tmp_path)


def test_what_cannot_be_shown_is_said(tmp_path, monkeypatch):
    assert "there is no run 'nothing'" in refused(tmp_path, ["nothing"])
    assert "3 runs" in refused(tmp_path, ["a", "b", "c"])
    monkeypatch.setattr("experiments.failures.missing_extra.find_spec", lambda name: None)
    assert re.search(r"needs matplotlib, .*sklearn\n.*\.\[heads\]", refused(tmp_path, ["a"]))


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_read(open_folder):
    (run := open_folder / "run").mkdir()
    (run / "config.yaml").touch()
    run.chmod(0o555)
    said = "run/heads/index.html: permission denied; name a copy of the run"
    with as_another_user(), pytest.raises(RunFolderError, match=said):
        command.show_heads(["run"], open_folder, HeadsOptions())
    run.chmod(0o755)
    (run / "heads").touch()
    with pytest.raises(RunFolderError, match=r"heads/index.html: a file stands where a folder should be; remove it"):
        command.show_heads(["run"], open_folder, HeadsOptions())


def test_an_export_that_the_positions_do_not_allow_is_refused_before_anything_is_computed(attn, tiny, tmp_path):
    words = [word for word in tiny if not word.startswith("model.position")]
    assert attn("train", "heads=3", "model.position=alibi", *words).returncode == 0
    said = refused(tmp_path / "runs", ["multi_head"], export=2)
    assert said.startswith("--export: the positions of this model (model.position) have a bias for every head")
    assert not list(tmp_path.glob("runs/*/heads"))


def test_wrong_options_name_themselves_and_what_is_allowed(attn, tiny, tmp_path, monkeypatch):
    assert attn("train", "heads=3", *tiny).returncode == 0
    cases: list[tuple[str, object, str]] = [
        ("sequences", 0, "at least 1"),
        ("sentence", "te " * 40, "at most length = 16"),
        ("export", 7, "from 0 to 6"),
        ("treebank", tmp_path / "none.conllu", "there is no such file"),
        ("equal", 0, "at least 1"),
        ("gates", -1, "at least 1"),
        ("penalty", -1.0, "at least 0"),
    ]
    for name, value, told in cases:
        said = refused(tmp_path / "runs", ["multi_head"], **{name: value})
        assert f"--{name}" in said and told in said
    # the second thing asked for is looked at before the first is done
    assert "--sentence" in refused(tmp_path / "runs", ["multi_head"], export=2, sentence="te " * 40)
    assert "are the same run" in refused(tmp_path / "runs", ["multi_head", "multi_head-"])
    # a file is blamed before anything is opened
    (words := tmp_path / "words.txt").write_text("The dogs bark.")
    monkeypatch.setattr("experiments.heads.trained_run.open_trained_run", None)
    assert "no sentence" in refused(tmp_path / "runs", ["multi_head"], treebank=words)
    assert not list(tmp_path.glob("runs/*/heads"))
