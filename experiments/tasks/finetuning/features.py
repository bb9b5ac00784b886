"""The windows of a task's examples, made once and memory-mapped: a row is a window and what there is to predict."""

# W windows, N tokens of a window, T targets of a window
# a row is N + 2 + T numbers: tokens, their count, the place where the second text begins, targets

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from experiments.data.errors import DataError
from experiments.data.store import Cache
from experiments.data.tokenizer import Report, Tokenizer
from experiments.settings.digest import digest
from experiments.settings.finetuning import Benchmark, Regression, Span
from experiments.tasks.finetuning.examples import LabelledExample, Question, identity, places, read
from experiments.tasks.finetuning.windows import NONE, Window, question_windows, text_window

FORMAT = 1  # part of the cache's key: raise it when the same examples make other windows
CHUNK = 512  # examples that are tokenized at once


class Features(NamedTuple):
    """The windows of all splits, and what it takes to score them."""

    train: np.ndarray  # int32 [W, N + 2 + T]
    validation: np.ndarray  # those of all validation splits, one after the other
    parts: dict[str, slice]  # windows of each validation split, by its name; a single one has none
    questions: Questions | None  # of the validation split, where answers are spans
    examples: dict[str, int]  # how many each split has
    identity: dict[str, Any]


class Questions(NamedTuple):
    """What it takes to turn a span of a window into a text, and to score it."""

    owner: np.ndarray  # int32 [W]: which question a window is of
    offsets: np.ndarray  # int32 [W, N, 2]
    widest: np.ndarray  # bool [W, N]
    path: Path

    def read(self) -> list[dict[str, Any]]:
        """`id`, `context` and `answers` of each question."""
        with self.path.open(encoding="utf-8") as file:
            return [json.loads(line) for line in file]


def obtain(task: Benchmark, tokenizer: Tokenizer, length: int, cache: Cache, report: Report) -> Features:
    """The windows, from the cache or made. Raises DataError; MissingError where the cache makes nothing."""
    known = identity(task, cache)
    key = digest([FORMAT, known, tokenizer.digest, length])
    folder, facts = cache.obtain(
        "examples", key, lambda partial: _make(partial, task, tokenizer, length, cache, report)
    )
    width = length + 2 + task.targets

    def open_rows(name: str) -> np.ndarray:
        return np.memmap(folder / name, dtype="<i4", mode="r").reshape(-1, width)

    return Features(
        train=open_rows("train"),
        validation=open_rows("validation"),
        parts=_parts(task, facts["windows"]),
        questions=_questions(folder, length) if isinstance(task, Span) else None,
        examples=facts["examples"],
        identity={"corpus": known, "tokenizer": tokenizer.digest, "length": length, **facts, "features": key},
    )


def _parts(task: Benchmark, windows: dict[str, int]) -> dict[str, slice]:
    parts, stop = {}, 0
    for name in task.held_out:
        start, stop = stop, stop + windows[f"validation.{name}" if name else "validation"]
        parts[name] = slice(start, stop)
    return parts


def _questions(folder: Path, length: int) -> Questions:
    return Questions(
        owner=np.memmap(folder / "owner", dtype="<i4", mode="r"),
        offsets=np.memmap(folder / "offsets", dtype="<i4", mode="r").reshape(-1, length, 2),
        widest=np.memmap(folder / "widest", dtype=np.bool_, mode="r").reshape(-1, length),
        path=folder / "questions.jsonl",
    )


def _make(
    folder: Path, task: Benchmark, tokenizer: Tokenizer, length: int, cache: Cache, report: Report
) -> dict[str, dict[str, int]]:
    """Fill a cache folder, in bounded memory; returns how many windows and examples each split has."""
    windows: dict[str, int] = {}
    examples: dict[str, int] = {}
    with ExitStack() as stack:
        names = ["train", "validation"]
        names += ["owner", "offsets", "widest", "questions.jsonl"] if isinstance(task, Span) else []
        files: dict[str, BinaryIO] = {name: stack.enter_context((folder / name).open("wb")) for name in names}
        for split in places(task):
            rows, kept = files[split.partition(".")[0]], None if split == "train" else files
            windows[split] = examples[split] = 0
            source = read(task, split, cache)
            while chunk := list(islice(source, CHUNK)):
                for number, made in enumerate(_windows(chunk, task, tokenizer, length), examples[split]):
                    rows.write(np.stack([_row(each, length, tokenizer.pad_id) for each in made]).tobytes())
                    if kept and isinstance(task, Span):
                        _keep(kept, made, number, length)
                    windows[split] += len(made)
                if kept and isinstance(task, Span):
                    _note(kept["questions.jsonl"], chunk)
                examples[split] += len(chunk)
                report(f"reading {task.name} {split}", examples[split], None)
    return {"windows": windows, "examples": examples}


def _windows(
    chunk: list[Question | LabelledExample], task: Benchmark, tokenizer: Tokenizer, length: int
) -> Iterator[list[Window]]:
    if isinstance(task, Span):
        questions = [each for each in chunk if isinstance(each, Question)]
        # several questions in a row have the same context
        distinct = list(dict.fromkeys(each.context for each in questions))
        contexts = dict(zip(distinct, tokenizer.encode_with_offsets(distinct), strict=True))
        asked = tokenizer.encode([each.question for each in questions])
        for example, question in zip(questions, asked, strict=True):
            yield question_windows(example, question, *contexts[example.context], tokenizer, task, length)
        return
    labelled = [each for each in chunk if isinstance(each, LabelledExample)]
    encoded = iter(tokenizer.encode([text for each in labelled for text in each.texts]))
    for one in labelled:
        # a number by its bits
        target = np.float32(one.label).view(np.int32) if isinstance(task, Regression) else one.label
        yield [text_window(one, list(islice(encoded, len(one.texts))), tokenizer, length, int(target))]


def _row(window: Window, length: int, pad_id: int) -> np.ndarray:
    count = len(window.tokens)
    assert count <= length, f"a window of {count} tokens"
    padding = np.full(length - count, pad_id)
    return np.concatenate([window.tokens, padding, [count, window.boundary], window.targets]).astype("<i4")


def _keep(files: dict[str, BinaryIO], made: list[Window], number: int, length: int) -> None:
    for window in made:
        assert window.offsets is not None and window.widest is not None
        missing = (0, length - len(window.tokens))
        offsets = np.pad(window.offsets, (missing, (0, 0)), constant_values=NONE)
        files["owner"].write(np.array(number, dtype="<i4").tobytes())
        files["offsets"].write(offsets.astype("<i4").tobytes())
        files["widest"].write(np.pad(window.widest, missing).tobytes())


def _note(file: BinaryIO, chunk: list[Question | LabelledExample]) -> None:
    for example in chunk:
        assert isinstance(example, Question)
        facts = {"id": example.id, "context": example.context, "answers": example.answers}
        file.write((json.dumps(facts) + "\n").encode())


def check_batch(windows: int, batch_size: int, task: Benchmark) -> None:
    """Raises DataError where the training split is smaller than a batch."""
    if batch_size > windows:
        raise DataError(
            f"batch_size={batch_size}: task.train={task.train} has {windows} windows; "
            f"use batch_size={windows} or less, or more examples"
        )
