"""The examples of a task, each checked: a mistake in the data is named at its row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from experiments.data.cache import Cache
from experiments.data.errors import DataError
from experiments.settings.finetuning import Benchmark
from experiments.tasks.finetuning.kind import kind_of
from experiments.tasks.finetuning.rows import read_rows


def read(task: Benchmark, split: str, cache: Cache) -> Iterator[Any]:
    """The examples of a split, as the task's kind has them, in their order. Raises DataError at the first wrong one."""
    kind = kind_of(task)
    first_uses: dict[str, str] = {}
    for where, row in read_rows(task, split, cache):
        example = kind.example(row, where)
        identifier = None if split == "train" else kind.identifier(example)
        if identifier is not None and (first := first_uses.setdefault(identifier, where)) != where:
            raise DataError(f"{where}: {first.partition('=')[2]} has the same {identifier}")
        yield example
