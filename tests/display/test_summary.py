from __future__ import annotations

import dataclasses
import io

from experiments.display.summary import print_summary
from experiments.record.folder import RunFolder
from experiments.record.result import Result


def test_the_summary_says_what_was_found_and_under_which_conditions(result, tmp_path):
    stream = io.StringIO()
    print_summary(result, RunFolder(tmp_path / "run"), stream)
    text = stream.getvalue()
    for part in (
        "run: done",
        "5.1250 nats per predicted token",
        "6.5800, 1.4550 above the validation loss",
        "168.2",
        "2.3100",
        "12,346 tok/s +- 210 (median",
        "812 MB (resident memory of the process)",
        "1,379,712 (embedding 786,432, attention 593,280)",
        "18.4 MFLOPs per token",
        "600 steps, 2,457,600 tokens, 1.90 epochs",
        "3m12s",
        "cpu, fp32, kernel blocked, 64 sequences at once, seed 0",
        str(tmp_path / "run"),
    ):
        assert " ".join(part.split()) in " ".join(text.split())
    assert "None" not in text and "FLOPs used" not in text
    tiny = dataclasses.replace(result, flops_per_token=23_456.0)
    print_summary(tiny, RunFolder(tmp_path / "run"), stream)
    assert "23.5 kFLOPs per token" in stream.getvalue()


def test_the_summary_names_the_folder_so_that_it_can_be_typed(result, tmp_path, monkeypatch):
    for here, shown in ((tmp_path, "runs/one"), (tmp_path / "runs" / "other", str(tmp_path / "runs" / "one"))):
        here.mkdir(parents=True, exist_ok=True)
        monkeypatch.chdir(here)
        stream = io.StringIO()
        print_summary(result, RunFolder(tmp_path / "runs" / "one"), stream)
        assert stream.getvalue().split()[-1] == shown


def test_the_summary_of_a_run_that_did_not_finish(result, tmp_path):
    known = {"steps": 7, "skipped_steps": 2, "tokens": 448, "epochs": 0.1, "wall_seconds": 1.5, "seed": 3}
    failed = Result.unfinished("nan", "step 8: the loss is not finite", **known)
    stream = io.StringIO()
    print_summary(failed, RunFolder(tmp_path / "run"), stream)
    assert "run: nan" in stream.getvalue() and "step 8: the loss is not finite" in stream.getvalue()
    assert "what to do" in stream.getvalue() and "a third of its learning_rate" in stream.getvalue()
    assert "None" not in stream.getvalue() and "loss  " not in stream.getvalue()
    for counts in ({"steps": 0, "skipped_steps": 0}, {"steps": 3, "skipped_steps": 3}):
        at_once = io.StringIO()
        print_summary(dataclasses.replace(failed, **counts), RunFolder(tmp_path / "run"), at_once)
        shown = " ".join(at_once.getvalue().split())
        assert "no weight had been updated" in shown and "learning_rate" not in shown
    worse = dataclasses.replace(result, validation_loss=7.0)
    print_summary(worse, RunFolder(tmp_path / "run"), stream)
    assert "6.5800, 0.4200 below the validation loss" in stream.getvalue()
