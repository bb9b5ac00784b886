"""A text, and a model that trains on it in a second; what must be set before torch is imported."""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

# two processes test at once, and sums have the same order on every machine; before torch is imported
os.environ["OMP_NUM_THREADS"] = "1"
# Triton asks when it is first imported, which torch does: its programs run in its interpreter where there is no GPU
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# fixtures that the tests of several rooms share
pytest_plugins = [
    "tests.fixtures.campaign",
    "tests.fixtures.command",
    "tests.fixtures.composing",
    "tests.fixtures.figures",
    "tests.fixtures.finetuning",
    "tests.fixtures.kernel",
    "tests.fixtures.processor_time",
    "tests.fixtures.record",
    "tests.fixtures.tables",
]


def pytest_collection_finish() -> None:
    """Leave what has been imported out of garbage collection, which would look through all of it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


TINY = (
    "hidden_size=24", "layers=2", "length=16", "batch_size=4", "max_steps=12", "model.intermediate_size=32",
    "trainer.log_every=2", "trainer.evaluate_every=6", "trainer.evaluation_sequences=16", "trainer.checkpoint_every=4",
    "tokenizer.vocabulary_size=300", "schedule.warmup_steps=2", "trainer.device=cpu",
    "logger.wandb=off",
)  # fmt: skip


@pytest.fixture(scope="session", autouse=True)
def cache_of_this_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What reads a run folder keeps its text in the cache of the machine: here one of the tests' own."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ATTN_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences of made-up words, the common ones more often: several thousand tokens in 200 documents."""
    source = random.Random(0)
    words = ["".join(source.choices("etaoinshrdlu", k=source.randint(2, 8))) for _ in range(200)]
    weights = [1 / rank for rank in range(1, 201)]
    documents = [" ".join(source.choices(words, weights, k=40)) for _ in range(200)]
    path = tmp_path_factory.mktemp("text") / "words.txt"
    path.write_text("\n\n".join(documents), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tiny(text_file: Path) -> list[str]:
    """Overrides for a model and a text that train in a second."""
    return [*TINY, "data=text", f"data.train={text_file}"]


@pytest.fixture
def short(tiny: list[str]) -> list[str]:
    """Those for tables: 32 heads need a width of 32 times 2."""
    return [*(word for word in tiny if not word.startswith("hidden_size")), "hidden_size=64"]
