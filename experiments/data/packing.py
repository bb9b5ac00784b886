"""Documents packed into sequences of equal length, in one memory-mapped array for each split."""

# N tokens a sequence

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.data import obtain_tokenizer, packing_pairs
from experiments.data.cache import Cache, folder_name
from experiments.data.corpus import SPLITS, Corpus, open_corpus
from experiments.data.errors import DataError
from experiments.data.repetition import IN_TRAIN, Repetitions, remarks
from experiments.data.shuffle import keys, permute
from experiments.data.tokenizer import ReportProgress, Tokenizer
from experiments.failures.wording import plural
from experiments.files.digest import digest
from experiments.settings.data import DataSettings
from experiments.settings.tokenizer import FileTokenizer, TrainedTokenizer

FORMAT = 2  # part of the cache's key: raise it when the same text is packed differently
DOCUMENTS = 2  # purpose of the keys
CHUNK = 1 << 20  # characters that are tokenized at once: more are no faster, and cost memory
CHUNK_DOCUMENTS = 8192
BLOCK = 1 << 21  # bytes of tokens that are packed at once


class Packed(NamedTuple):
    """A split. Each sequence is [CLS] and the next N - 1 tokens of `document [SEP] document [SEP] ...`; a rest is
    dropped.

    Sentence pairs have one row for each pair, as described in `packing_pairs.pack`.
    """

    split: str
    tokens: np.ndarray  # [sequences, N], memory-mapped, read only
    token_count: int  # of the split's documents, without special tokens
    text_bytes: int  # of the same documents in UTF-8; nats a token * token_count / text_bytes are nats a byte
    documents: int


class Dataset(NamedTuple):
    """The packed data for training and evaluation of a run, with its tokenizer."""

    train: Packed
    validation: Packed
    test: Packed | None
    tokenizer: Tokenizer
    # [vocabulary] int64: how often a token occurs in the training documents, or in the targets of pairs; special 0
    unigram: np.ndarray
    identity: dict[str, Any]  # corpus, tokenizer and splits, JSON-able, for the record
    sequences: dict[str, str]  # digest of the tokens, by the name of their folder in the cache
    remark: str = ""  # what a run should say of its data


def obtain(
    data: DataSettings,
    tokenizer: TrainedTokenizer | FileTokenizer,
    length: int,
    cache: Cache,
    report: ReportProgress,
    sentinels: int = 0,
) -> Dataset:
    """The packed corpus, from the cache or made; `report(stage, done, total)` is called often.

    length: tokens of a row. sentinels: special tokens <extra_id_0>, ... that the tokenizer has besides its own.

    The documents are shuffled once, in an order that does not depend on the run's seed. Runs that differ in their seed
    train on the same sequences, are evaluated on the same ones, and share one copy. The seed orders the batches.

    Raises DataError, and MissingError if the cache may not make it.
    """
    corpus = open_corpus(data, cache)
    own, tokenizer_identity = obtain_tokenizer.obtain(tokenizer, corpus, cache, report)
    extended = own.with_sentinels(sentinels)
    tokenizer_identity |= {"vocabulary_size": extended.vocabulary_size, "digest": extended.digest}
    key = digest([FORMAT, corpus.identity, extended.digest, length])
    pack = packing_pairs.pack if data.holds_pairs else _pack

    def make(partial: Path) -> dict[str, Any]:
        facts = pack(partial, corpus, extended, length, report)
        corpus.check()
        return facts

    folder, facts = cache.obtain("packed", key, make)
    splits = {split: _open(folder, split, fact, length, facts["dtype"]) for split, fact in facts["splits"].items()}
    in_train = {split: (fact.get(IN_TRAIN, 0), fact["documents"]) for split, fact in facts["splits"].items()}
    repeated = remarks("source sentences" if data.holds_pairs else "documents", in_train)
    return Dataset(
        train=splits["train"],
        validation=splits["validation"],
        test=splits.get("test"),
        tokenizer=extended,
        unigram=np.fromfile(folder / "unigram", dtype="<i8"),
        identity={"corpus": corpus.identity, "tokenizer": tokenizer_identity, "length": length, **facts, "packed": key},
        sequences=cache.contents(folder_name(folder)),
        remark="; ".join(filter(None, [corpus.remark, obtain_tokenizer.shortfall(tokenizer_identity), *repeated])),
    )


def _open(folder: Path, split: str, fact: dict[str, int], length: int, dtype: str) -> Packed:
    shape = (fact["sequences"], length)
    tokens = np.memmap(folder / split, dtype=np.dtype(dtype), mode="r", shape=shape)
    return Packed(split, tokens, fact["token_count"], fact["text_bytes"], fact["documents"])


def _pack(folder: Path, corpus: Corpus, tokenizer: Tokenizer, length: int, report: ReportProgress) -> dict[str, Any]:
    """Fill a cache folder: tokenize to spools, then write the documents in their new order, in bounded memory."""
    dtype = np.dtype("<u2" if tokenizer.vocabulary_size <= 1 << 16 else "<u4")
    facts = {}
    repetitions = Repetitions()
    with contextlib.ExitStack() as stack:
        spools = {split: stack.enter_context(_Spool(folder / split, dtype)) for split in SPLITS}
        (folder / "unigram").write_bytes(_tokenize(spools, repetitions, corpus, tokenizer, report).tobytes())
        # all splits before the first is packed, because that takes time
        for split in (split for split, spool in spools.items() if not spool.sequences(length)):
            _refuse(split, spools, corpus, length, report)
        for number, (split, spool) in enumerate(spools.items()):
            if sequences := spool.sequences(length):
                _write(folder / split, spool, keys(DOCUMENTS, 0, number), length, tokenizer.cls_id, report)
                repeated = {IN_TRAIN: count} if (count := repetitions.count(split)) else {}
                facts[split] = {"sequences": sequences, **spool.facts(), **repeated}
    return {"dtype": dtype.str, "splits": facts}


def _tokenize(
    spools: dict[str, _Spool], repetitions: Repetitions, corpus: Corpus, tokenizer: Tokenizer, report: ReportProgress
) -> np.ndarray:
    """Spool every document; returns the token counts of the training split, int64 [vocabulary]."""
    unigram = np.zeros(tokenizer.vocabulary_size, dtype="<i8")
    total = corpus.size()
    done = 0
    for chunk in _chunks(corpus.documents()):
        for (split, text), ids in zip(chunk, tokenizer.encode([text for _, text in chunk]), strict=True):
            spools[split].add(text, ids, tokenizer.sep_id)
            repetitions.add(split, text)
            if split == "train":
                np.add.at(unigram, ids, 1)
        done = sum(spool.text_bytes for spool in spools.values())
        report("tokenizing", min(done, total or done), total)
    report("tokenizing", done, done)
    unigram[list(tokenizer.special)] = 0
    return unigram


def _chunks(documents: Iterator[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    chunk: list[tuple[str, str]] = []
    size = 0
    for split, text in documents:
        chunk.append((split, text))
        size += len(text)
        if size >= CHUNK or len(chunk) == CHUNK_DOCUMENTS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


class _Spool:
    """A split's documents on the disk, each ended by [SEP], to be read in any order."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self.split = path.name
        self.paths = path.with_suffix(".spool"), path.with_suffix(".ends")
        self.dtype = dtype
        self.end = self.documents = self.token_count = self.text_bytes = 0

    def __enter__(self) -> _Spool:
        self.tokens, self.ends = (path.open("w+b") for path in self.paths)
        self.ends.write(struct.pack("<q", 0))
        return self

    def add(self, text: str, ids: np.ndarray, sep_id: int) -> None:
        """Append a document: its tokens, and [SEP]."""
        self.end += self.tokens.write(np.append(ids, sep_id).astype(self.dtype).tobytes())
        self.ends.write(struct.pack("<q", self.end))
        self.documents += 1
        self.token_count += len(ids)
        self.text_bytes += len(text.encode())

    def sequences(self, length: int) -> int:
        """The number of sequences of this length that the documents make."""
        return self.end // self.dtype.itemsize // (length - 1)

    def facts(self) -> dict[str, int]:
        """Counts of the documents, for the record."""
        return {"documents": self.documents, "token_count": self.token_count, "text_bytes": self.text_bytes}

    def flush(self) -> None:
        """Pass everything on to the system, so that `read` finds it."""
        self.tokens.flush()
        self.ends.flush()

    def read(self, document: int) -> bytes:
        """The tokens of a document and its [SEP], as bytes."""
        start, end = struct.unpack("<2q", os.pread(self.ends.fileno(), 16, 8 * document))
        return os.pread(self.tokens.fileno(), end - start, start)

    def __exit__(self, failure: object, *_: object) -> None:
        for file, path in zip((self.tokens, self.ends), self.paths, strict=True):
            # what could not be written fails again when the file is closed
            with contextlib.suppress(*([OSError] if failure else [])):
                file.close()
            path.unlink()


def _write(path: Path, spool: _Spool, round_keys: np.ndarray, length: int, cls_id: int, report: ReportProgress) -> None:
    """Write a split's sequences, rows of N tokens."""
    rest = np.empty(0, dtype=spool.dtype)
    with path.open("wb") as file:
        for done, block in _shuffled(spool, round_keys):
            stream = np.concatenate([rest, np.frombuffer(block, dtype=spool.dtype)])
            whole = len(stream) // (length - 1)
            rows = np.full((whole, length), cls_id, dtype=spool.dtype)
            rows[:, 1:] = stream[: whole * (length - 1)].reshape(whole, length - 1)
            file.write(rows.tobytes())
            rest = stream[whole * (length - 1) :]
            report(f"packing {spool.split}", done, spool.documents)


def _shuffled(spool: _Spool, round_keys: np.ndarray) -> Iterator[tuple[int, bytes]]:
    """The documents in their new order, about BLOCK bytes of tokens at a time, and their number so far."""
    spool.flush()
    buffered: list[bytes] = []
    size = 0
    for first in range(0, spool.documents, 1024):
        order = permute(np.arange(first, min(first + 1024, spool.documents)), spool.documents, round_keys)
        for done, document in enumerate(order.tolist(), first + 1):
            buffered.append(spool.read(document))
            size += len(buffered[-1])
            if size >= BLOCK or done == spool.documents:
                yield done, b"".join(buffered)
                buffered, size = [], 0


def _refuse(split: str, spools: dict[str, _Spool], corpus: Corpus, length: int, report: ReportProgress) -> None:
    """Raise an error for a split without a single sequence, except for the test split, which a run does not need."""
    spool = spools[split]
    documents = f"{spool.documents:,} {plural('document', spool.documents)}"
    has = f"the {split} split has {spool.token_count:,} tokens in {documents}"
    if split == "test":
        if spool.documents:
            report(f"{has}, fewer than a row of {length} tokens needs: it is left out", 0, None)
        return
    way = "use a longer text or a smaller length"
    if split == "validation" and corpus.identity.get("held_out", {}).get("validation") == 1:
        way = (
            "give its text with data.validation; without it, validation is a 20th of the documents of train, which has "
            f"{spools['train'].documents:,}: {corpus.more_documents}"
        )
    raise DataError(f"{has}, and a row of {length} tokens needs {length - 1}: {way}")
