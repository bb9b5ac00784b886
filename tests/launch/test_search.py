"""Searches with Optuna as a user runs them: small studies, one of them really killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("optuna", reason="needs attn[optuna]")

from experiments.record.folder import RunFolder
from experiments.settings.search import JOURNAL

ROOT = Path(__file__).resolve().parents[2]
SEARCH = ("train", "-m", "hydra/sweeper=optuna_search")
RATE = "learning_rate=tag(log,interval(1e-5,1e-1))"


def results(runs: Path) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted(runs.glob("*/result.json"))]


def words_of(tiny, *keys: str) -> list[str]:
    return [word for word in tiny if not word.startswith(keys)]


def test_a_search_prunes_what_is_hopeless_and_prints_its_best_and_is_not_repeated(attn, tiny, tmp_path):
    fixed = words_of(tiny, "trainer.evaluate_every")
    own = ["trainer.evaluate_every=2", "hydra.sweeper.trials=5", "hydra.sweeper.prune_after_trials=1"]
    words = [*SEARCH, RATE, "heads=1,2", "--workers", "1", *own, *fixed]
    done = attn(*words)
    assert done.returncode == 0, done.output
    found = results(tmp_path / "runs")
    pruned = [each for each in found if each["status"] == "pruned"]
    assert len(found) == 5 and {each["status"] for each in found} == {"done", "pruned"}, done.output
    assert all(each["steps"] < 12 and "above the median" in each["reason"] for each in pruned)
    assert f"5 trials have ended: {5 - len(pruned)} done, {len(pruned)} pruned" in done.stdout
    best = min(each["validation_loss"] for each in found if each["status"] == "done")
    assert f"{best:.4f}" in done.stdout.split("trial  validation_loss")[1].splitlines()[1]
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/result.json")}
    again = attn(*words)
    assert again.returncode == 0 and "5 trials have ended" in again.stdout and "[1/" not in again.stdout
    assert stamps == {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/result.json")}
    more = attn(*words, "hydra.sweeper.seed=1")
    assert "5 trials have ended" in more.stdout, "what is said of the search itself is no part of its name"


def test_trials_of_another_text_are_not_mixed_with_new_ones_and_runs_that_are_gone_are_said(attn, tiny, tmp_path):
    text = tmp_path / "own.txt"
    text.write_bytes(Path(next(word for word in tiny if word.startswith("data.train="))[11:]).read_bytes())
    words = [*SEARCH, "heads=1,2,3", f"data.train={text}", *words_of(tiny, "data.train")]
    assert attn(*words, "hydra.sweeper.trials=2").returncode == 0
    (first, *_) = (tmp_path / "runs").glob("*/result.json")
    whole = text.read_text()
    text.write_text(whole + "\n\none more document")
    changed = attn(*words, "hydra.sweeper.trials=3")
    assert changed.returncode == 2 and "[1/" not in changed.output
    assert "trial 0 cannot be compared with new ones" in changed.stderr and "a different text" in changed.stderr
    text.write_text(whole)
    shutil.rmtree(first.parent)
    gone = attn(*words, "hydra.sweeper.trials=3")
    assert gone.returncode == 0, gone.output
    assert "has values of trials whose runs were removed or made again: " in gone.output


def test_a_pruned_run_goes_on_where_its_own_command_is_given(attn, tiny, tmp_path):
    fixed = words_of(tiny, "trainer.evaluate_every", "heads")
    own = ["trainer.evaluate_every=2", "hydra.sweeper.trials=2", "hydra.sweeper.prune_after_trials=1"]
    # the first one is the better one, as the seed is chosen
    for seed in range(9):
        assert attn(*SEARCH, "heads=1,3", "--workers", "1", f"runs=r{seed}", f"hydra.sweeper.seed={seed}", *own, *fixed)
        cut = next((each for each in results(tmp_path / f"r{seed}") if each["status"] == "pruned"), None)
        if cut:
            break
    assert cut, "no order of the two was pruned"
    alone = attn("train", f"heads={cut['config']['heads']}", f"runs=r{seed}", "trainer.evaluate_every=2", *fixed)
    assert alone.returncode == 0, alone.output
    (whole,) = (each for each in results(tmp_path / f"r{seed}") if each["config"]["heads"] == cut["config"]["heads"])
    assert whole["status"] == "done" and whole["steps"] == 12
    fresh = attn("train", f"heads={cut['config']['heads']}", "runs=fresh", "trainer.evaluate_every=2", *fixed)
    assert fresh.returncode == 0
    assert results(tmp_path / "fresh")[0]["validation_loss"] == whole["validation_loss"]


def test_several_objectives_give_a_front_and_a_dry_run_says_what_there_is_to_try(attn, tiny, tmp_path):
    own = ["hydra.sweeper.minimize=[validation_loss,parameters]", "hydra.sweeper.trials=9"]
    words = [*SEARCH, "heads=1,2", "layers=1,2", *own, *words_of(tiny, "layers")]
    dry = attn(*words, "--dry-run")
    assert dry.returncode == 0 and not (tmp_path / "runs").exists()
    for said in ("heads   one of 1, 2", "4 points; 9 trials by tpe", "minimize parameters", "no trial is pruned"):
        assert said in dry.stdout, dry.output
    done = attn(*words)
    assert done.returncode == 0, done.output
    assert "Pareto front of 4 trials" in done.stdout and "4 trials have ended: 4 done" in done.stdout
    found = [(each["validation_loss"], each["parameters"]["total"]) for each in results(tmp_path / "runs")]
    front = [a for a in found if not any(b != a and b[0] <= a[0] and b[1] <= a[1] for b in found)]
    table = done.stdout.split("trial  validation_loss")[1].split("Pareto front")[0]
    assert len(table.splitlines()) - 1 == len(front)
    assert "4 trials have ended: 4 done" in attn(*words, "--dry-run").stdout


def test_a_trial_that_can_not_be_trained_fails_alone(attn, tiny, tmp_path):
    fixed = words_of(tiny, "batch_size")
    words = [*SEARCH, "batch_size=4,10000", "hydra.sweeper.trials=2", *fixed]
    done = attn(*words)
    assert done.returncode == 3, done.output
    assert "1 of 2 cells failed; the same command leaves them out" in done.stdout
    assert "1 done, 1 failed; the failed ones are not tried again" in done.stdout
    again = attn(*words)
    assert again.returncode == 0 and "2 trials have ended: 1 done, 1 failed" in again.stdout, again.output


def test_a_run_that_diverged_is_not_trained_again(attn, tiny, tmp_path):
    adamw = ["optimizer=adamw", "schedule.warmup_steps=0", "trainer.guard=stop"]
    words = [*SEARCH, "learning_rate=1e-3,1e6", *adamw, *words_of(tiny, "optimizer", "schedule", "trainer.guard")]
    assert attn(*words).returncode == 3
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/result.json")}
    assert {each["status"] for each in results(tmp_path / "runs")} == {"done", "nan"}
    again = attn(*words)
    assert again.returncode == 0 and "1 done, 1 failed; the failed ones are not tried again" in again.stdout
    assert stamps == {path: path.stat().st_mtime_ns for path in stamps}


def test_a_trial_whose_text_is_missing_is_made_up_for_when_it_is_there(attn, tiny, tmp_path):
    text = tmp_path / "later.txt"
    words = [*SEARCH, "heads=1,2", f"data.train={text}", *words_of(tiny, "data.train")]
    text.write_text("too short")
    cut = attn(*words)
    assert cut.returncode == 3 and "2 trials have ended: 2 cut off" in cut.stdout, cut.output
    assert "the same command draws new ones for the 2 that were cut off" in cut.stdout
    text.write_bytes(Path(next(word for word in tiny if word.startswith("data.train="))[11:]).read_bytes())
    assert "4 trials have ended: 2 done, 2 cut off" in attn(*words).stdout


def test_an_objective_that_was_not_measured_is_said(attn, tiny):
    done = attn(*SEARCH, "heads=1,2", "hydra.sweeper.trials=1", "hydra.sweeper.minimize=[mfu]", *tiny)
    assert done.returncode == 3 and "its result has no mfu" in done.stdout, done.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["heads=1,2", "hydra.sweeper.trals=3"], "there is no setting 'hydra.sweeper.trals' (did you mean trials?)"),
        (["heads=1,2", "hydra.sweeper.trials=0"], "hydra.sweeper.trials = 0: must be at least 1"),
        (["heads=1,2", "hydra.sweeper.sampler=tpo"], "must be one of tpe, random (did you mean tpe?)"),
        (["heads=1,2", "hydra.sweeper.minimize=[los]"], "minimize: result.json has no number 'los'; it has"),
        (["heads=1,2", "hydra.sweeper.minimize=[scores]"], "scores has several numbers; write scores.NAME"),
        (["heads=1,2", "hydra.sweeper.maximize=[scores.f1]"], "trials have no such number\n  there are: perplexity"),
        (["heads=1,2", "hydra.sweeper.minimize=[order_loss]"], "order_loss: the trials have no such number"),
        (["heads=1,2", "hydra.sweeper.maximize=[text_scores.bleu]"], "text_scores.bleu: the trials have no such"),
        (["heads=1,2", "hydra.sweeper.maximize=[parameters.atention]"], "parameters has no part 'atention' (did you"),
        (["heads=1,2", "hydra/launcher=joblib"], "trains its trials itself"),
        (["heads=2"], "no override has several values"),
        (["heads=0,2", RATE], "and heads=0 learning_rate=0.1: heads = 0: must be at least 1"),
    ],
)
def test_a_wrong_search_is_refused_before_anything_is_changed(attn, tiny, tmp_path, words, said):
    done = attn(*SEARCH, *words, *tiny)
    assert done.returncode == 2 and said in done.stderr, done.output
    assert not (tmp_path / "runs").exists()


def test_a_missing_library_is_said_with_its_command(attn, tiny, monkeypatch):
    monkeypatch.setattr("experiments.failures.missing_extra.find_spec", lambda name: None)
    done = attn(*SEARCH, "heads=1,2", *tiny)
    assert done.returncode == 2 and "hydra/sweeper=optuna_search needs optuna" in done.stderr
    assert ".[optuna]" in done.stderr


@pytest.mark.campaign
def test_searches_that_are_killed_and_share_a_study_lose_no_trial_and_do_none_twice(
    tiny, tmp_path, environment, chance, tries
):
    trials = tries(6, 40)
    words = [*SEARCH, RATE, "--workers", "1", f"hydra.sweeper.trials={trials}", "hydra.sweeper.pruner=none", *tiny]
    begin = [sys.executable, str(ROOT / "cli.py"), *words]

    def started() -> subprocess.Popen[str]:
        return subprocess.Popen(
            begin, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip

    def written() -> int:
        return sum(path.stat().st_size for path in (tmp_path / "runs" / "sweeps").glob(f"*/{JOURNAL}"))

    for _ in range(tries(2, 20)):
        before, both = written(), [started(), started()]
        while written() == before and any(each.poll() is None for each in both):
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 6))
        for each in both:
            # no process of it is left if it ended by itself
            with suppress(ProcessLookupError):
                os.killpg(each.pid, signal.SIGKILL)
            each.communicate()
    both = [started(), started()]
    outputs = [each.communicate(timeout=600)[0] for each in both]
    assert [each.returncode for each in both] == [0, 0], outputs
    assert any(f"{trials} trials have ended: {trials} done" in output for output in outputs), outputs
    folders = [path.parent for path in (tmp_path / "runs").glob("*/result.json")]
    assert len(folders) == trials and {RunFolder(each).result().status for each in folders} == {"done"}
    (journal,) = (tmp_path / "runs" / "sweeps").glob(f"*/{JOURNAL}")
    told = [json.loads(line) for line in journal.read_text().splitlines()]
    numbers = [each["trial_id"] for each in told if each.get("state") == 1]
    assert len(numbers) == len(set(numbers)) == trials
