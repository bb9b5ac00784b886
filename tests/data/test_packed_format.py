"""The bytes of a packed text must change only with the FORMAT of packing, which names it in caches and digests."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from experiments.data import packing
from experiments.data.cache import Cache
from experiments.data.kinds.pairs import PairFiles
from experiments.data.kinds.text import TextFiles
from experiments.data.packing import Dataset
from experiments.data.tokenizer import SPECIAL, from_vocabulary
from experiments.settings.data import DataSettings
from experiments.settings.tokenizer import FileTokenizer

DIGITS = [str(digit) for digit in range(10)]
# by FORMAT, the SHA-256 of what is packed
PACKED = {
    1: {
        "text": "ed7ba009c2965fc548adb65534014e47f89b023d6bcde65725291fd5c223f51b",
        "pairs": "e0626d87556ae1811d489847107b5f9e7e7ef82e85193b77222ba2eef3a84822",
    }
}


def text(folder: Path) -> DataSettings:
    """400 documents of up to 7 numbers."""
    documents = [" ".join(str(number * each % 10) for each in range(1, 2 + number % 7)) for number in range(400)]
    (folder / "train.txt").write_text("\n".join(documents), encoding="utf-8")
    return TextFiles(kind="text", documents="row", train=str(folder / "train.txt"), validation=None, test=None)


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
