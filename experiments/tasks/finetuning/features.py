"""The windows of a task's examples, made once and memory-mapped. A row has a window and its targets."""

# W windows, N tokens of a window, T targets of a window
# a row is N + 2 + T numbers: tokens, their count, the place where the second text begins, targets

from __future__ import annotations

from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from experiments.data.cache import Cache, folder_name
from experiments.data.errors import DataError, changed_while_read
from experiments.data.repetition import IN_TRAIN, Repetitions, remarks
from experiments.data.tokenizer import ReportProgress, Tokenizer
from experiments.failures.wording import plural
from experiments.files.digest import digest
from experiments.settings.finetuning import Benchmark
from experiments.tasks.finetuning.examples import read
from experiments.tasks.finetuning.kind import kind_of
from experiments.tasks.finetuning.rows import identity, places
from experiments.tasks.finetuning.windows import Window

FORMAT = 1  # part of the cache's key: raise it when the same examples make other windows
SAME_LABEL = "all examples of validation have the same label, so no score shows whether a model uses the texts"
CHUNK = 512  # examples that are tokenized at once


class Features(NamedTuple):
    """The windows of all splits, and the files that are needed to score them."""

    train: np.ndarray  # int32 [W, N + 2 + T]
    validation: np.ndarray  # those of all validation splits, one after the other
    parts: dict[str, slice]  # windows of each validation split, by its name; a single one has none
    folder: Path  # with the kind's own files
    examples: dict[str, int]  # how many each split has
    identity: dict[str, Any]
    sequences: dict[str, str]  # digest of the files, by the name of their folder in the cache
    remark: str  # what a run should say of its examples


def obtain(task: Benchmark, tokenizer: Tokenizer, length: int, cache: Cache, report: ReportProgress) -> Features:
    """The windows, from the cache or made. Raises DataError, and MissingError if the cache may not make them."""
    corpus = identity(task, cache)
    key = digest([FORMAT, corpus, tokenizer.digest, length])

    def make(partial: Path) -> dict[str, dict[str, int]]:
        facts = _make(partial, task, tokenizer, length, cache, report)
        if identity(task, cache) != corpus:
            raise changed_while_read(f"task={task.name}: a file")
        return facts

    folder, facts = cache.obtain("examples", key, make)
    width = length + 2 + task.targets

    def open_rows(name: str) -> np.ndarray:
        return np.memmap(folder / name, dtype="<i4", mode="r").reshape(-1, width)

    train, validation = open_rows("train"), open_rows("validation")
    targets = [rows[:, length + 2 :] for rows in (train, validation)]
    one_label = task.targets == 1 and len(validation) > 1 and len(np.unique(targets[1])) == 1
    in_train = {split: (facts.get(IN_TRAIN, {}).get(split, 0), count) for split, count in facts["examples"].items()}
    said = [*remarks("examples", in_train, share=0), kind_of(task).remark(*targets), one_label * SAME_LABEL]
    return Features(
        train=train,
        validation=validation,
        parts=_parts(task, facts["windows"]),
        folder=folder,
        examples=facts["examples"],
        identity={"corpus": corpus, "tokenizer": tokenizer.digest, "length": length, **facts, "features": key},
        sequences=cache.contents(folder_name(folder)),
        remark="; ".join(filter(None, said)),
    )


def _parts(task: Benchmark, windows: dict[str, int]) -> dict[str, slice]:
    parts, stop = {}, 0
    for name in task.held_out:
        start, stop = stop, stop + windows[f"validation.{name}" if name else "validation"]
        parts[name] = slice(start, stop)
    return parts


def _make(
    folder: Path, task: Benchmark, tokenizer: Tokenizer, length: int, cache: Cache, report: ReportProgress
) -> dict[str, dict[str, int]]:
    """Fill a cache folder, in bounded memory; returns how many windows and examples each split has, and how many of the
    examples are also in the training split.
    """
    kind = kind_of(task)
    windows: dict[str, int] = {}
    examples: dict[str, int] = {}
    repetitions = Repetitions()
    with ExitStack() as stack:
        names = ["train", "validation", *kind.own_files]
        files: dict[str, BinaryIO] = {name: stack.enter_context((folder / name).open("wb")) for name in names}
        for split in places(task):
            rows = files[split.partition(".")[0]]
            windows[split] = examples[split] = 0
            source = read(task, split, cache)
            while chunk := list(islice(source, CHUNK)):
                for example, in_windows in zip(chunk, kind.windows(chunk, tokenizer, length), strict=True):
                    rows.write(np.stack([_row(window, length, tokenizer.pad_id) for window in in_windows]).tobytes())
                    if split != "train":
                        kind.write(files, example, examples[split], in_windows, length)
                    repetitions.add(split, *kind.texts(example))
                    windows[split] += len(in_windows)
                    examples[split] += 1
                report(f"reading {task.name} {split}", examples[split], None)
    repeated = {split: count for split in examples if (count := repetitions.count(split))}
    return {"windows": windows, "examples": examples, **({IN_TRAIN: repeated} if repeated else {})}


def _row(window: Window, length: int, pad_id: int) -> np.ndarray:
    count = len(window.tokens)
    assert count <= length, f"a window of {count} tokens"
    padding = np.full(length - count, pad_id)
    return np.concatenate([window.tokens, padding, [count, window.boundary], window.targets]).astype("<i4")


def check_batch(windows: int, batch_size: int, task: Benchmark) -> None:
    """Raises DataError if the training split is smaller than a batch."""
    if batch_size > windows:
        raise DataError(
            f"batch_size={batch_size}: task.train={task.train} has {windows} {plural('window', windows)}; "
            f"use batch_size={windows} or less, or more examples"
        )
