"""Sentence pairs packed into sequences of equal length: a row holds the tokens of both sides."""

# N tokens a side

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.data.corpus import Corpus
from experiments.data.errors import DataError
from experiments.data.readers.pairs import TAB
from experiments.data.repetition import IN_TRAIN, Repetitions
from experiments.data.shuffle import keys, permute
from experiments.data.tokenizer import ReportProgress, Tokenizer
from experiments.failures.wording import plural

PAIRS = 3  # purpose of the keys
CHUNK = 4096  # pairs that are tokenized, or put into their order, at once


def pack(folder: Path, corpus: Corpus, tokenizer: Tokenizer, length: int, report: ReportProgress) -> dict[str, Any]:
    """Fill a cache folder with a row of `length` = 2 N for each pair: the tokens of each side and [SEP], filled up with
    [PAD].

    A pair with a side of more than N tokens with [SEP] is left out in every split; the facts have the number of these.
    `token_count` and `text_bytes` are those of the targets, including each [SEP], because it is predicted. The rows
    have their own order, which is the same for every run.
    """
    dtype = np.dtype("<u2" if tokenizer.vocabulary_size <= 1 << 16 else "<u4")
    unigram = np.zeros(tokenizer.vocabulary_size, dtype="<i8")
    empty = {"sequences": 0, "documents": 0, "token_count": 0, "text_bytes": 0, "left_out": 0}
    facts: dict[str, dict[str, int]] = {}
    repetitions = Repetitions()
    for chunk in _chunks(corpus):
        for split, texts in chunk.items():
            for text in texts:
                # with another translation too, a model has seen the source
                repetitions.add(split, text.split(TAB)[0])
        for split, (rows, fact) in _encoded(chunk, tokenizer, length // 2, dtype).items():
            counts = facts.setdefault(split, dict(empty))
            for key, count in fact.items():
                counts[key] += count
            with (folder / f"{split}.spool").open("ab") as file:
                file.write(rows.tobytes())
            if split == "train":
                unigram += np.bincount(rows[:, length // 2 :].reshape(-1), minlength=len(unigram))
        report("tokenizing pairs", sum(fact["documents"] for fact in facts.values()), None)
    unigram[list(tokenizer.special)] = 0
    (folder / "unigram").write_bytes(unigram.tobytes())
    for number, split in enumerate(("train", "validation", "test")):
        fact = facts.get(split, empty)
        _report_packed(split, fact, length // 2, report)
        if split in facts:
            _write(folder, split, fact["sequences"], length, dtype, keys(PAIRS, 0, number))
        if count := repetitions.count(split):
            facts[split][IN_TRAIN] = count
    filled = {split: fact for split, fact in facts.items() if fact["sequences"]}
    return {"dtype": dtype.str, "splits": filled}


def _chunks(corpus: Corpus) -> Iterator[dict[str, list[str]]]:
    """The pairs of each split, CHUNK of all together."""
    chunk: dict[str, list[str]] = {}
    for number, (split, text) in enumerate(corpus.documents(), 1):
        chunk.setdefault(split, []).append(text)
        if number % CHUNK == 0:
            yield chunk
            chunk = {}
    yield chunk


def _encoded(
    chunk: dict[str, list[str]], tokenizer: Tokenizer, side: int, dtype: np.dtype[Any]
) -> dict[str, tuple[np.ndarray, dict[str, int]]]:
    """The rows [pairs, 2 N] of each split, and counts of them."""
    encoded_by_split = {}
    for split, texts in chunk.items():
        sources, targets = zip(*(text.split(TAB) for text in texts), strict=True)
        encoded = zip(tokenizer.encode(sources), tokenizer.encode(targets), targets, strict=True)
        fitting = [each for each in encoded if max(len(each[0]), len(each[1])) < side]
        rows = np.full((len(fitting), 2, side), tokenizer.pad_id, dtype=dtype)
        for row, (source, target, _) in zip(rows, fitting, strict=True):
            for place, ids in zip(row, (source, target), strict=True):
                place[: len(ids)] = ids
                place[len(ids)] = tokenizer.sep_id
        fact = {
            "sequences": len(rows),
            "documents": len(texts),
            "token_count": sum(len(target) + 1 for _, target, _ in fitting),
            "text_bytes": sum(len(text.encode()) for _, _, text in fitting),
            "left_out": len(texts) - len(rows),
        }
        encoded_by_split[split] = (rows.reshape(len(rows), 2 * side), fact)
    return encoded_by_split


def _report_packed(split: str, fact: dict[str, int], side: int, report: ReportProgress) -> None:
    """Report the pairs that were left out. Raises DataError if a split that a run needs has none."""
    pairs = f"{fact['documents']:,} {plural('pair', fact['documents'])}"
    has = f"the {split} split has {pairs}, {fact['left_out']:,} of them of more than {side} tokens with [SEP]"
    if not fact["sequences"] and split != "test":
        raise DataError(f"{has}: use a larger length, or more pairs")
    if fact["left_out"]:
        report(f"{has}: they are left out", 0, None)


def _write(folder: Path, split: str, pairs: int, length: int, dtype: np.dtype[Any], round_keys: np.ndarray) -> None:
    """The spooled rows of a split in their order."""
    spool = folder / f"{split}.spool"
    if pairs:
        rows = np.memmap(spool, dtype=dtype, mode="r", shape=(pairs, length))
        with (folder / split).open("wb") as file:
            for first in range(0, pairs, CHUNK):
                order = permute(np.arange(first, min(first + CHUNK, pairs)), pairs, round_keys)
                file.write(rows[order].tobytes())
        del rows
    spool.unlink()
