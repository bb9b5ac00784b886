"""The tokenizer that a corpus is packed with: from its file, from the cache, or trained on the first of the text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.data.cache import Cache
from experiments.data.corpus import Corpus
from experiments.data.errors import DataError
from experiments.data.tokenizer import (
    LETTERS,
    LONGEST_RUN,
    SPECIAL,
    TOKENIZER_FILE,
    ReportProgress,
    Tokenizer,
    load,
    load_named,
    train,
)
from experiments.failures.wording import plural
from experiments.files.digest import digest
from experiments.settings.tokenizer import FileTokenizer, TrainedTokenizer

FORMAT = 2  # part of the cache's key: raise it when the same files give another text for training
SAMPLE = 1 << 25  # bytes of training text that a tokenizer is trained on


def obtain(
    settings: TrainedTokenizer | FileTokenizer, corpus: Corpus, cache: Cache, report: ReportProgress
) -> tuple[Tokenizer, dict[str, Any]]:
    """The requested tokenizer, from its file, from the cache, or trained; and its identity, JSON-able."""
    if isinstance(settings, FileTokenizer):
        tokenizer = load_named(settings)
        return tokenizer, {"kind": "file", "vocabulary_size": tokenizer.vocabulary_size, "digest": tokenizer.digest}

    def make(folder: Path) -> dict[str, Any]:
        texts, size = _sample(corpus, report)
        report("training the tokenizer", 0, None)
        train(texts, settings).save(folder / TOKENIZER_FILE)
        corpus.check()
        return {"sample_documents": len(texts), "sample_bytes": size}

    described = settings.model_dump()
    key = digest([FORMAT, described, corpus.identity, SPECIAL, SAMPLE, LETTERS, LONGEST_RUN])
    folder, facts = cache.obtain("tokenizers", key, make)
    tokenizer = load(folder / TOKENIZER_FILE)
    size = {"vocabulary_size_asked": settings.vocabulary_size, "vocabulary_size": tokenizer.vocabulary_size}
    return tokenizer, described | facts | size | {"digest": tokenizer.digest}


def shortfall(identity: Mapping[str, Any]) -> str:
    """A sentence if a text has fewer tokens than were asked for; empty otherwise. `identity`: as of `obtain`."""
    reached, requested = identity["vocabulary_size"], identity.get("vocabulary_size_asked", 0)
    return (
        f"the text supports a vocabulary of {reached:,} of the {requested:,} asked for" if reached < requested else ""
    )


def _sample(corpus: Corpus, report: ReportProgress) -> tuple[list[str], int]:
    """The first documents of the training split, up to SAMPLE bytes, and their number of bytes."""
    texts: list[str] = []
    size = reported = held_out = 0
    of_training = corpus.identity.get("held_out", {})  # splits that get documents of the training text
    for split, text in corpus.documents():
        if split == "train":
            texts.append(text)
            size += len(text.encode())
        elif split in of_training:
            held_out += 1
        if size - reported >= SAMPLE >> 5:
            report("reading text for the tokenizer", min(size, SAMPLE), SAMPLE)
            reported = size
        if size >= SAMPLE:
            break
    if held_out and not texts:
        raise DataError(
            f"the training split has no text, because other splits got {held_out} {plural('document', held_out)}, all "
            f"that there are: {corpus.more_documents}"
        )
    if not texts:
        raise DataError("the training split has no text; give a longer text")
    return texts, size
