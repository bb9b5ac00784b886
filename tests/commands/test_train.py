"""The steps of a new user: train, compare, evaluate, continue."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from torch.testing import assert_close

import cli
from experiments.processes.environment_variables import ADDED, TUNED
from experiments.training.step.learner import Learner
from tests.fixtures.device import as_computed


def result(runs: Path) -> dict:
    (path,) = runs.glob("*/result.json")
    return json.loads(path.read_text())


def test_a_finished_run_is_returned_at_once_and_scored_on_other_text(attn, tiny, tmp_path, text_file):
    first = attn("train", "heads=2", *tiny)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
    again = attn("train", "heads=2", *tiny)
    assert (first.returncode, again.returncode) == (0, 0)
    assert again.stdout == first.stdout
    assert ["finished before; nothing is left to train" in done.stderr for done in (first, again)] == [False, True]
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}

    def score(*words: str) -> dict:
        done = attn("evaluate", "multi_head", *words, "--checkpoint", "newest", "--format", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)[0]

    assert score()["loss"] == as_computed(result(tmp_path / "runs")["validation_loss"])
    assert score("split=test")["split"] == "test"
    other = tmp_path / "other.txt"
    other.write_text("\n\n".join(text_file.read_text().split("\n\n")[:100]))
    whole = ("data=text", f"data.train={other}", "split=train", "trainer.evaluation_sequences=null")
    assert score(*whole)["tokens"] > score()["tokens"]
    assert score("backend=reference")["loss"] == pytest.approx(score()["loss"], abs=1e-2)
    refused = attn("evaluate", "multi_head", "objective=causal")
    assert refused.returncode == 2 and "was trained for objective=masked only" in refused.stderr


def test_sizes_that_a_variant_refuses_are_named_before_a_run_begins(attn, tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("ATTN_CACHE", str(tmp_path / "cache"))
    refused = attn("train", "variant=grouped_query", "variant.groups=7", "heads=2", *tiny)
    assert refused.returncode == 2 and not list(tmp_path.iterdir()), refused.output
    assert refused.stderr == "attn train: variant=grouped_query: groups: is 7, must be at most heads = 2\n"


def test_a_folder_whose_name_is_not_utf8_is_refused_before_anything_is_written(attn, tiny, tmp_path):
    (place := tmp_path / os.fsdecode(b"a\xff")).mkdir()
    done = attn("train", "heads=2", *tiny, cwd=place)
    assert done.returncode == 2 and "a\\udcff/runs/multi_head" in done.stderr and "must be UTF-8" in done.stderr
    assert not list(place.iterdir())
    (emoji := tmp_path / "a\nb \U0001f600").mkdir()
    assert attn("train", "heads=2", *tiny, cwd=emoji).returncode == 0
    scored = attn("evaluate", "multi_head", "--format", "json", cwd=emoji)
    assert json.loads(scored.stdout)[0]["loss"] == as_computed(result(emoji / "runs")["validation_loss"])


def test_a_vocabulary_that_the_text_does_not_support_is_said_once_by_every_run(attn, tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("ATTN_CACHE", str(tmp_path / "cache"))
    words = [word.replace("vocabulary_size=300", "vocabulary_size=9000") for word in tiny]
    for seed in (0, 1):
        done = attn("train", "heads=2", f"seed={seed}", *words)
        assert done.returncode == 0 and done.stderr.count("of the 9,000 asked for") == 1, done.stderr
    logs = [path.read_text() for path in tmp_path.glob("runs/*/log.txt")]
    assert [log.count("of the 9,000 asked for") for log in logs] == [1, 1]


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's")
def test_as_a_shell_runs_it_the_process_is_tuned_and_wandb_has_the_run(attn, shell, tiny, tmp_path):
    # the tokens are in the cache then
    assert attn("train", "heads=2", "runs=before", *tiny).returncode == 0
    done = shell("train", "heads=2", *(word for word in tiny if word != "logger.wandb=off"))
    assert done.returncode == 0, done.output
    (path,) = (tmp_path / "runs").glob("*/environment.json")
    variables = json.loads(path.read_text())["variables"]
    assert "glibc.malloc.hugetlb=1" in variables["GLIBC_TUNABLES"] and variables["GOMP_SPINCOUNT"] == "5000"
    assert len(list(tmp_path.glob(f"runs/wandb/offline-*/run-{path.parent.name}-??????.wandb"))) == 1


def test_what_the_user_tuned_stays(monkeypatch):
    started = []
    for name in (*TUNED, ADDED):
        monkeypatch.setenv(name, "own")
    monkeypatch.delenv(ADDED)
    monkeypatch.setattr(os, "execv", lambda *_: pytest.fail("it was started again"))
    monkeypatch.setattr(cli, "app", lambda: started.append({name: os.environ[name] for name in TUNED}))
    monkeypatch.setattr(sys, "argv", ["attn", "train"])
    cli.main()
    assert started == [dict.fromkeys(TUNED, "own")]


def test_two_variants_see_the_same_data_and_start_from_the_same_shared_weights(attn, tiny, tmp_path, monkeypatch):
    starts, seen, take = [], [], Learner.take

    def noted(learner, step, learning_rate):
        if step == 1:
            starts.append({name: tensor.clone() for name, tensor in learner.model.named_parameters()})
            seen.append([])
        outcome = take(learner, step, learning_rate)
        seen[-1].append(outcome.batch)
        return outcome

    monkeypatch.setattr(Learner, "take", noted)
    done = attn("train", "-m", "variant=multi_head,talking_heads", "backend=reference", "heads=2", *tiny)
    assert done.returncode == 0, done.output
    found = [json.loads(path.read_text()) for path in (tmp_path / "runs").glob("*/result.json")]
    assert len(found) == len(starts) == 2
    assert found[0]["unigram_loss"] == found[1]["unigram_loss"]
    assert found[0]["corpus"] == found[1]["corpus"]

    first, second = ([batch._asdict() for batch in batches] for batches in seen)
    assert_close(first, second, rtol=0, atol=0)
    assert len(first) == 12 and not first[0]["inputs"]["tokens"].equal(first[1]["inputs"]["tokens"])

    plain, talking = starts
    assert all("projection" in name for name in talking.keys() - plain.keys()) and plain.keys() < talking.keys()
    for name, tensor in plain.items():
        assert_close(tensor, talking[name], rtol=0, atol=0, msg=name)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["data=text", "data.train=absent.txt"], "absent.txt"),
        (["data=text", f"data.train={'a' * 300}"], f"data.train={'a' * 300}: "),
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


def test_a_kernel_for_gpus_is_refused_on_a_cpu_before_anything_is_written(attn, tmp_path, tiny):
    done = attn("train", *tiny, "backend=cuda")
    assert done.returncode == 2 and not done.stdout and list(tmp_path.iterdir()) == []
    assert "backend=cuda: it runs on a CUDA GPU, not on cpu; here it must be one of auto," in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("key", ["runs", "cache"])
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("file", "a file stands where a folder should be"),
        ("file/below", "a file stands where a folder should be"),
        ("a" * 300, "File name too long"),
    ],
    ids=["file", "below-a-file", "long"],
)
def test_a_path_that_can_be_no_folder_is_refused_with_its_key(attn, tiny, tmp_path, key, path, reason):
    (tmp_path / "file").write_text("")
    done = attn("train", *(word for word in tiny if not word.startswith(f"{key}=")), f"{key}={path}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"attn train: {key}={path}: {reason}\n  choose another folder: {key}=FOLDER\n"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_run_of_other_text_is_neither_returned_nor_continued(attn, tiny, text_file, tmp_path):
    text = tmp_path / "words.txt"
    text.write_bytes(text_file.read_bytes())
    words = [*(word for word in tiny if not word.startswith("data.train")), "data.train=words.txt"]
    assert attn("train", *words).returncode == 0
    text.write_text(text.read_text() + " more")
    again = attn("train", *words)
    assert again.returncode == 2 and "trained on a different text" in again.stderr
    (result,) = tmp_path.glob("runs/*/result.json")
    result.unlink()
    again = attn("train", *words)
    assert again.returncode == 2 and "restore it" in again.stderr
    assert any(tmp_path.glob("runs/*/checkpoint/*.safetensors"))


def test_a_sweep_over_text_that_is_not_there_starts_nothing(attn, tmp_path):
    done = attn("train", "-m", "seed=0,1", "data=text", "data.train=absent.txt")
    assert done.returncode == 2 and "absent.txt" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_finished_run_is_not_taken_for_that_of_another_tokenizer_in_the_same_file(attn, tiny, tmp_path):
    words = [word for word in tiny if not word.startswith("max_steps")] + ["max_steps=1"]
    assert attn("train", *words, "runs=first").returncode == 0
    (made,) = tmp_path.glob("first/*/tokenizer.json")
    content = json.loads(made.read_text())
    path = tmp_path / "own.json"
    path.write_text(json.dumps(content))
    words = [word for word in words if not word.startswith("tokenizer")] + ["tokenizer=file", f"tokenizer.path={path}"]
    assert attn("train", *words).returncode == 0
    # two tokens change places
    vocabulary = content["model"]["vocab"]
    one, other = sorted(vocabulary, key=vocabulary.get)[-2:]
    vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
    path.write_text(json.dumps(content))
    done = attn("train", *words)
    assert done.returncode == 2 and "was trained with another tokenizer than the present one" in done.stderr
