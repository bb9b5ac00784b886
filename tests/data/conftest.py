from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.data.kinds.text import TextFiles
from experiments.settings.tokenizer import TrainedTokenizer

ROOT = Path(__file__).parents[2]


def sentences(number: int, seed: int = 0) -> list[str]:
    """Documents of a few made-up sentences, the common words more often than the rare ones."""
    source = random.Random(seed)
    words = ["".join(source.choices("etaoinshrdlu", k=source.randint(1, 8))) for _ in range(400)]
    weights = [1 / rank for rank in range(1, 401)]
    lengths = [source.randint(20, 60) for _ in range(number)]
    return [" ".join(source.choices(words, weights, k=length)).capitalize() + "." for length in lengths]


@pytest.fixture(scope="session")
def texts() -> list[str]:
    return sentences(300)


@pytest.fixture
def text_file(tmp_path: Path, texts: list[str]) -> Path:
    path = tmp_path / "train.txt"
    path.write_text("\n\n".join(texts), encoding="utf-8")
    return path


@pytest.fixture
def text_data(text_file: Path) -> Callable[..., TextFiles]:
    def make(**changes: str | None) -> TextFiles:
        keys = {"documents": "blank_line", "train": str(text_file), "validation": None, "test": None}
        return TextFiles.model_validate({"kind": "text", **keys, **changes})

    return make


@pytest.fixture
def byte_bpe() -> TrainedTokenizer:
    return TrainedTokenizer(kind="byte_bpe", vocabulary_size=400)


@pytest.fixture(scope="session")
def python() -> Callable[..., subprocess.Popen[str]]:
    """Start another interpreter on some source text; its arguments come as JSON in sys.argv[1]."""

    def start(source: str, arguments: object = None, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", source, json.dumps(arguments)],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start
