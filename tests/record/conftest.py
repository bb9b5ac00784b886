"""A small configuration, a finished result, and processes in which W&B finds neither a login nor a home."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.record.folder import RunFolder, run_name
from experiments.record.result import Result

ROOT = Path(__file__).parents[2]

LINES = [
    {"step": 10, "loss": 6.5, "tokens_per_second": 900.0},
    {"step": 20, "loss": 1 / 3, "tokens_per_second": 1200.0, "validation_loss": 6.25},
    {"step": 30, "loss": math.inf, "tokens_per_second": 1100.0},
    {"step": 40, "loss": 5.0, "tokens_per_second": 1000.0, "validation_loss": 6.0},
]

# train(first, last): the part of a run between two lines, in a process of its own, as `attn train` does it
TRAIN = """
import json, os, signal, sys, time
from experiments.record.folder import RunFolder
from experiments.record.result import Result
from experiments.record.tracking import Tracker

path, settings, lines, result = sys.argv[1], *map(json.loads, sys.argv[2:5])
folder, tracker = RunFolder(path), Tracker()

def begin(step=-1, group="sweep"):
    folder.create(settings)
    folder.truncate_metrics(step)
    folder.write_environment({"host": "here"})
    tracker.start(folder, settings, group)

def train(first, last):
    for line in lines[first:last]:
        line = {key: float(value) if key != "step" else value for key, value in line.items()}
        folder.append_metrics(line)
        tracker.log(line["step"], line)

def end():
    tracker.finish(Result.from_json(json.dumps(result)))
    folder.write_result(Result.from_json(json.dumps(result)))
    folder.close()
"""


@pytest.fixture
def settings(tmp_path):
    return {
        "heads": 24,
        "key_size": 8,
        "value_size": 8,
        "hidden_size": 192,
        "layers": 4,
        "norm": "pre",
        "learning_rate": 3e-3,
        "max_steps": 600,
        "seed": 0,
        "runs": str(tmp_path / "runs"),
        "cache": "cache",
        "variant": {"name": "talking_heads", "heads": 24},
        "model": {"norm_epsilon": 1e-12, "tied": True},
        "logger": {"wandb": "auto", "project": "attn", "entity": None, "group": None, "tags": ["nano", "cpu"]},
    }


@pytest.fixture
def result():
    return Result(
        status="done",
        reason=None,
        validation_loss=5.125,
        best_validation_loss=5.0,
        training_loss=5.25,
        unigram_loss=6.58,
        perplexity=168.2,
        bits_per_byte=2.31,
        tokens_per_second=12345.6,
        tokens_per_second_spread=210.0,
        throughput_meaning="median of the steady steps; half their interquartile range",
        peak_memory_bytes=812_000_000,
        peak_memory_meaning="resident memory of the process",
        parameters={"embedding": 786_432, "attention": 593_280, "total": 1_379_712},
        flops_per_token=18_400_000.0,
        mfu=None,
        steps=600,
        skipped_steps=0,
        tokens=2_457_600,
        epochs=1.9,
        wall_seconds=192.4,
        backend="blocked",
        precision="fp32",
        device="cpu",
        micro_batch=64,
        seed=0,
        config={"heads": 24},
        attention_digest="cd" * 32,
        corpus={"kind": "python_docs", "python": "3.11.7"},
        tokenizer_digest="0123abcd",
    )


@pytest.fixture
def python(tmp_path):
    """Run code in a process of its own: python(code, *arguments, **environment)."""
    home = tmp_path / "home"
    home.mkdir()
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith("WANDB") and "proxy" not in key.lower()
    }

    def run(code, *arguments, prefix=(), **environment):
        return subprocess.run(
            [*prefix, sys.executable, "-c", code, *map(str, arguments)],
            env={**kept, "HOME": str(home), "PYTHONPATH": str(ROOT), **environment},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


@pytest.fixture
def train(settings, result, python, tmp_path):
    """Run a script of begin, train, end; it prints nothing unless it says so."""
    path = tmp_path / "runs" / run_name(settings)
    lines = [{key: str(value) if value == math.inf else value for key, value in line.items()} for line in LINES]

    def run(script, prefix=(), **environment):
        arguments = [path, *map(json.dumps, (settings, lines, json.loads(result.to_json())))]
        return python(TRAIN + script, *arguments, prefix=prefix, **environment)

    run.folder, run.lines = RunFolder(path), LINES
    return run
