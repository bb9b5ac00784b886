"""The bytes of a packed text must change only with the FORMAT of packing, which names it in caches and digests.

The text that a tokenizer is trained on must change only with the FORMAT of tokenizers.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from experiments.data import obtain_tokenizer, packing, tokenizer
from experiments.data.cache import Cache
from experiments.data.corpus import open_corpus
from experiments.data.errors import DataError
from experiments.data.kinds.pairs import PairFiles
from experiments.data.kinds.text import TextFiles
from experiments.data.packing import Dataset
from experiments.data.tokenizer import SPECIAL, from_vocabulary
from experiments.settings.data import DataSettings
from experiments.settings.tokenizer import FileTokenizer, TrainedTokenizer

BYTE_BPE = TrainedTokenizer(kind="byte_bpe", vocabulary_size=300)
DIGITS = [str(digit) for digit in range(10)]
# by FORMAT, the SHA-256 of what is packed
PACKED = {
    2: {
        "text": "ed7ba009c2965fc548adb65534014e47f89b023d6bcde65725291fd5c223f51b",
        "pairs": "ebbd2a071083f2f8aee112a3f1db4cdd64619a3df228e21a895a10b4efd3370a",
    }
}
# by FORMAT of tokenizers, the SHA-256 of the text for training
TRAINING_TEXT = {
    2: {
        "text": "45e59a5c38693d256d5d2a5287c458dbe446784e70b30356cdb5311249d2ae5a",
        "blank_lines": "440a23abc71dbe1c28e363c89b0d084bffb4acbac32d533d9b3827f0e4ef3478",
        "articles": "b573c9ef1648deff645d5c4d032544dde15a7f35a43728dd5026abd4f721e720",
        "pairs": "607eea662e68757c0cf51acbd902882168e895fd5862f6ca4d8aa923435d4a6e",
    }
}


def text(folder: Path) -> DataSettings:
    """400 documents of up to 7 numbers."""
    documents = [" ".join(str(number * each % 10) for each in range(1, 2 + number % 7)) for number in range(400)]
    (folder / "train.txt").write_text("\n".join(documents), encoding="utf-8")
    return TextFiles(kind="text", documents="row", train=str(folder / "train.txt"), validation=None, test=None)


def blank_lines(folder: Path) -> DataSettings:
    """100 documents of two lines with white space around them."""
    documents = [f"\t{number} one \r\n  two {number}\n \n\n" for number in range(100)]
    (folder / "train.txt").write_text("".join(documents), encoding="utf-8")
    return TextFiles(kind="text", documents="blank_line", train=str(folder / "train.txt"), validation=None, test=None)


def articles(folder: Path) -> DataSettings:
    """100 articles of two sections."""
    documents = [f" \n = Article {number} = \n \n one \n \n = = Section = = \n \n two\n" for number in range(100)]
    (folder / "train.txt").write_text("".join(documents), encoding="utf-8")
    return TextFiles(kind="text", documents="article", train=str(folder / "train.txt"), validation=None, test=None)


def pairs(folder: Path) -> DataSettings:
    """400 pairs, of which some are too long for a row."""
    rows = [f"{number % 10} {number % 7}\t{' '.join(str(number))} {'1 ' * (number % 8)}" for number in range(400)]
    (folder / "train.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    keys = {"source": "source", "target": "target", "validation": None, "test": None}
    return PairFiles(kind="pairs", train=str(folder / "train.tsv"), **keys)


def digest_of(dataset: Dataset) -> str:
    """Hex SHA-256 of the rows of every split and of the counts of the tokens."""
    splits = [packed.tokens.tobytes() for packed in (dataset.train, dataset.validation, dataset.test) if packed]
    return hashlib.sha256(b"".join([*splits, dataset.unigram.tobytes()])).hexdigest()


@pytest.mark.parametrize("made", [text, pairs])
def test_other_bytes_are_another_format(tmp_path, made):
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, *DIGITS]) + "\n", encoding="utf-8")
    from_vocabulary(tmp_path / "vocab.txt", lowercase=True).save(tmp_path / "tokenizer.json")
    tokenizer = FileTokenizer(kind="file", path=str(tmp_path / "tokenizer.json"))
    dataset = packing.obtain(made(tmp_path), tokenizer, 16, Cache(tmp_path / "cache", print), lambda *_: None)
    assert dataset.test is not None
    assert digest_of(dataset) == PACKED[packing.FORMAT][made.__name__], (
        "the same text is packed differently: raise FORMAT in experiments/data/packing.py, and store this digest"
    )


@pytest.mark.parametrize("made", [text, blank_lines, articles, pairs])
def test_another_text_for_training_is_another_format_of_tokenizers(monkeypatch, tmp_path, made):
    trained = []

    def train(texts, size):
        trained.extend(texts)
        raise ValueError

    monkeypatch.setattr(tokenizer, "_byte_bpe", train)
    cache = Cache(tmp_path / "cache", print)
    with pytest.raises(DataError):
        obtain_tokenizer.obtain(BYTE_BPE, open_corpus(made(tmp_path), cache), cache, lambda *_: None)
    digest = hashlib.sha256("\0".join(trained).encode()).hexdigest()
    assert digest == TRAINING_TEXT[obtain_tokenizer.FORMAT][made.__name__], (
        "the same files give another text for training: raise FORMAT in experiments/data/obtain_tokenizer.py, and "
        "store this digest"
    )


def test_the_format_of_tokenizers_is_part_of_their_key(monkeypatch, tmp_path):
    cache = Cache(tmp_path / "cache", print)
    corpus = open_corpus(text(tmp_path), cache)
    for number in (1, 2):
        monkeypatch.setattr(obtain_tokenizer, "FORMAT", number)
        obtain_tokenizer.obtain(BYTE_BPE, corpus, cache, lambda *_: None)
    assert len([path for path in (tmp_path / "cache" / "tokenizers").iterdir() if path.is_dir()]) == 2
