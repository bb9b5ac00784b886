"""Tiny tasks that can be learned in seconds, and a tiny pretrained run."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.configuration import compose
from experiments.data.tokenizer import Tokenizer, load
from experiments.explain import CONF
from experiments.finetune.command import finetune
from experiments.finetune.settings import Span
from experiments.run import execute

WORDS = ["".join(random.Random(seed).choices("etaoinshrdlu", k=2 + seed % 6)) for seed in range(120)]
PRETRAINING = (
    "hidden_size=32", "heads=2", "layers=2", "length=32", "batch_size=8", "max_steps=8", "precision=fp32",
    "model.intermediate_size=64", "tokenizer.vocabulary_size=400", "schedule.warmup_steps=2", "trainer.device=cpu",
    "trainer.evaluation_sequences=8", "logger.wandb=off",
)  # fmt: skip
FINE_TUNING = (
    "trainer.device=cpu", "precision=fp32", "logger.wandb=off", "learning_rate=3e-3", "schedule.warmup_steps=5",
)  # fmt: skip


def labelled(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """The first word says which label it is."""
    source = random.Random(seed)
    for _ in range(count):
        label = source.randrange(2)
        yield {"sentence": " ".join([("yes", "no")[label], *source.choices(WORDS, k=6)]), "label": label}


def asked(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """The answer is the word after X, in a context that takes several windows."""
    source = random.Random(seed)
    for number in range(count):
        words = source.choices(WORDS, k=24)
        place = source.randrange(23)
        words[place] = "X"
        answer = {"text": [words[place + 1]], "answer_start": [len(" ".join(words[: place + 1])) + 1]}
        yield {"id": f"q{number}", "question": "what", "context": " ".join(words), "answers": answer}


def write_lines(path: Path, rows: Iterator[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a pretrained run under `runs`, a cache, and the examples of two tasks."""
    home = tmp_path_factory.mktemp("finetune")
    source = random.Random(0)
    text = "\n\n".join(" ".join(source.choices([*WORDS, "yes", "no", "X", "what"], k=40)) for _ in range(150))
    (home / "text.txt").write_text(text, encoding="utf-8")
    own = [f"runs={home / 'runs'}", f"cache={home / 'cache'}", "data=text", f"data.train={home / 'text.txt'}"]
    assert execute(compose([*PRETRAINING, *own])) == 0
    for name, make, train in (("labelled", labelled, 200), ("asked", asked, 300)):
        write_lines(home / f"{name}_train.jsonl", make(train, 1))
        write_lines(home / f"{name}_dev.jsonl", make(40, 2))
    return home


@pytest.fixture(scope="session")
def pretrained(home: Path) -> Path:
    (folder,) = (path for path in (home / "runs").glob("multi_head-*") if path.is_dir())
    return folder


@pytest.fixture
def words(home: Path, pretrained: Path, tmp_path: Path) -> Callable[..., list[str]]:
    """words("sst2", "seed=1"): those after `attn finetune`, with local examples and a folder of its own."""
    files = {"sst2": "labelled", "squad": "asked"}

    def make(task: str, *more: str, run: Path | str = pretrained) -> list[str]:
        given = {word.split("=")[0] for word in more}
        fixed = [
            f"task={task}", f"runs={tmp_path / 'runs'}", f"cache={home / 'cache'}", *FINE_TUNING,
            f"task.train={home / files[task]}_train.jsonl", f"task.validation={home / files[task]}_dev.jsonl",
        ]  # fmt: skip
        return [str(run), *(word for word in fixed if word.split("=")[0] not in given), *more]

    return make


@pytest.fixture
def tune(words: Callable[..., list[str]], tmp_path: Path) -> Callable[..., Path]:
    """tune("sst2", "seed=1"): fine-tunes; the run's folder."""

    def go(task: str, *more: str, **other: str) -> Path:
        before = set((tmp_path / "runs").glob("*"))
        assert finetune(words(task, *more, **other)) == 0
        (folder,) = set((tmp_path / "runs").glob("*")) - before
        return folder

    return go


@pytest.fixture(scope="session")
def tokenizer(pretrained: Path) -> Tokenizer:
    return load(pretrained / "tokenizer.json")


@pytest.fixture
def span() -> Callable[..., Span]:
    """span(n_best=3): conf/task/squad.yaml with other values."""
    import yaml

    def make(**changes: Any) -> Span:
        tree = yaml.safe_load((CONF / "task" / "squad.yaml").read_text(encoding="utf-8"))["task"]
        return Span.model_validate(tree | {"document_stride": 5, "max_question": 4} | changes)

    return make
