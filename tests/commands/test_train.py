"""The whole way, as a newcomer goes it: train, look, score, go on, add a variant."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.config.compose import compose
from experiments.config.messages import options
from experiments.launch.cell import execute

ROOT = Path(__file__).resolve().parents[2]


def result(runs: Path) -> dict:
    (path,) = runs.glob("*/result.json")
    return json.loads(path.read_text())


@pytest.mark.parametrize("variant", options("variant"))
def test_every_variant_trains(tiny, tmp_path, variant):
    own = [f"runs={tmp_path / 'runs'}", f"cache={tmp_path / 'cache'}", "logger.wandb=off"]
    assert execute(compose([f"variant={variant}", "heads=2", *tiny, *own])) == 0
    found = result(tmp_path / "runs")
    assert found["status"] == "done"
    assert found["config"]["variant"]["name"] == variant
    assert 0 < found["validation_loss"] < 8


def test_a_finished_run_is_returned_at_once_and_scored_on_other_text(attn, tiny, tmp_path, text_file):
    first = attn("train", "heads=2", *tiny)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
    again = attn("train", "heads=2", *tiny)
    assert (first.returncode, again.returncode) == (0, 0)
    assert again.stdout == first.stdout
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}

    def score(*words: str) -> dict:
        done = attn("evaluate", "multi_head", *words, "--checkpoint", "newest", "--format", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)[0]

    assert score()["loss"] == result(tmp_path / "runs")["validation_loss"]
    assert score("split=test")["split"] == "test"
    other = tmp_path / "other.txt"
    other.write_text("\n\n".join(text_file.read_text().split("\n\n")[:100]))
    whole = ("data=text", f"data.train={other}", "split=train", "trainer.evaluation_sequences=null")
    assert score(*whole)["tokens"] > score()["tokens"]
    assert score("backend=reference")["loss"] == pytest.approx(score()["loss"], abs=1e-2)
    refused = attn("evaluate", "multi_head", "objective=causal")
    assert refused.returncode == 2 and "was trained for objective=masked only" in refused.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's")
def test_a_process_that_trains_is_tuned_unless_the_user_did(attn, environment, tiny, tmp_path, monkeypatch):
    def variables(runs: str) -> dict[str, str]:
        assert attn("train", "heads=2", *tiny, f"runs={runs}").returncode == 0
        (path,) = (tmp_path / runs).glob("*/environment.json")
        return json.loads(path.read_text())["variables"]

    assert "glibc.malloc.hugetlb=1" in variables("tuned")["GLIBC_TUNABLES"]
    assert variables("tuned")["GOMP_SPINCOUNT"] == "5000"
    monkeypatch.setitem(environment, "GLIBC_TUNABLES", "glibc.malloc.check=0")
    monkeypatch.setitem(environment, "GOMP_SPINCOUNT", "1")
    own = variables("own")
    assert (own["GLIBC_TUNABLES"], own["GOMP_SPINCOUNT"]) == ("glibc.malloc.check=0", "1")


def test_two_variants_see_the_same_data_and_start_from_the_same_shared_weights(attn, tiny, tmp_path):
    words = [word for word in tiny if not word.startswith("max_steps")]
    attn("train", "-m", "variant=multi_head,talking_heads", "backend=reference", "heads=2", "max_steps=1", *words)
    found = [json.loads(path.read_text()) for path in (tmp_path / "runs").glob("*/result.json")]
    assert len(found) == 2
    assert found[0]["unigram_loss"] == found[1]["unigram_loss"]
    assert found[0]["corpus"] == found[1]["corpus"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["data=text", "data.train=absent.txt"], "absent.txt"),
        (["data=text", "data.train=latin.txt"], "UTF-8"),
        (["data=text", "data.train=empty.txt"], "empty"),
        (["variant=talking_heads", "variant.key_heads=2", "variant.static=[weights]"], "key_heads"),
        (["variant=talking_heads", "backend=sdpa"], "sdpa"),
        (["max_steps=null"], "max_steps"),
        (["batch_size=100000"], "batch_size=100000: a batch needs"),
    ],
)
def test_mistakes_that_only_the_data_or_the_sizes_show(attn, tmp_path, tiny, words, said):
    (tmp_path / "latin.txt").write_bytes("caf\xe9 ".encode("latin-1") * 1000)
    (tmp_path / "empty.txt").write_text("")
    keys = {word.split("=")[0] for word in words}
    done = attn("train", *(word for word in tiny if word.split("=")[0] not in keys), *words)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists() or not any((tmp_path / "runs").iterdir())


def test_a_kernel_for_gpus_is_refused_on_a_cpu_in_one_line_before_anything_is_written(attn, tmp_path, tiny):
    done = attn("train", *tiny, "backend=triton")
    assert done.returncode == 2 and not done.stdout and list(tmp_path.iterdir()) == []
    assert "backend=triton: it runs on a CUDA GPU, not on cpu; here it must be one of auto," in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_run_folder_that_cannot_be_written(attn, tiny, tmp_path):
    (tmp_path / "file").write_text("")
    done = attn("train", *tiny, "runs=file")
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert "a file stands where a folder should be" in done.stderr


def test_a_new_variant_is_the_two_files_of_the_documentation(tmp_path, tiny, environment):
    """The example of docs/adding_a_variant.md, in a copy of the project: nothing else is touched."""
    copy = tmp_path / "copy"
    for name in ("attention", "conf", "experiments"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "cli.py", copy)
    text = (ROOT / "docs" / "adding_a_variant.md").read_text(encoding="utf-8")
    for path, body in re.findall(r"`((?:attention|conf)/\S+)`\n\n```\w+\n(.*?)```", text, re.DOTALL):
        (copy / path).write_text(body, encoding="utf-8")

    def attn(*words: str) -> subprocess.CompletedProcess[str]:
        own = environment | {"PYTHONPATH": str(copy)}
        command = [sys.executable, str(copy / "cli.py"), *words]
        return subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, text=True, timeout=120)

    assert "cosine" in attn("variants").stdout
    trained = attn("train", "variant=cosine", "heads=2", *tiny)
    assert trained.returncode == 0, trained.stderr
    assert result(tmp_path / "runs")["status"] == "done"
    refused = attn("train", "variant=cosine", "variant.temperature=-1")
    assert "variant.temperature = -1" in refused.stderr


def test_a_run_of_other_text_is_neither_returned_nor_continued(attn, tiny, text_file, tmp_path):
    text = tmp_path / "words.txt"
    text.write_bytes(text_file.read_bytes())
    words = [*(word for word in tiny if not word.startswith("data.train")), "data.train=words.txt"]
    assert attn("train", *words).returncode == 0
    text.write_text(text.read_text() + " more")
    again = attn("train", *words)
    assert again.returncode == 2 and "trained on other text" in again.stderr
    (result,) = tmp_path.glob("runs/*/result.json")
    result.unlink()
    again = attn("train", *words)
    assert again.returncode == 2 and "bring that back" in again.stderr
    assert any(tmp_path.glob("runs/*/checkpoint/*.safetensors"))


def test_a_sweep_over_text_that_is_not_there_starts_nothing(attn, tmp_path):
    done = attn("train", "-m", "seed=0,1", "data=text", "data.train=absent.txt")
    assert done.returncode == 2 and "absent.txt" in done.stderr
    assert list(tmp_path.iterdir()) == []
