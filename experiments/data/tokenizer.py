"""Byte-level BPE, WordPiece, or a tokenizer from a file, by the library `tokenizers`, which only this file imports."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.data.errors import DataError
from experiments.data.readers.files import find
from experiments.failures.wording import first_line
from experiments.files.digest import text_digest
from experiments.files.disk import read_bytes, read_text
from experiments.files.durable import disk_errors, or_elsewhere
from experiments.settings.tokenizer import FileTokenizer, TrainedTokenizer

if TYPE_CHECKING:
    import tokenizers

ReportProgress = Callable[[str, int, int | None], None]  # stage, done, total if known

PAD, UNK, CLS, SEP, MASK = SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# the names of each special token in published vocabularies: ours, which are BERT's; RoBERTa's, ALBERT's and T5's;
# GPT-2's only one. T5 puts nothing before a text, and its decoder begins with <pad>
END = "<|endoftext|>"
ROLES = {
    "pad": (PAD, "<pad>", END),
    "unk": (UNK, "<unk>", END),
    "cls": (CLS, "<s>", "<pad>", END),
    "sep": (SEP, "</s>", END),
    "mask": (MASK, "<mask>"),
}
SENTINEL = "<extra_id_{}>"
UNUSED = "<unused_{}>"  # an id of the model that no text has
LONGEST_RUN = 10_000  # characters of a word, or blanks, in a text for training: the trainers' time is its square
LONG_RUN = re.compile(rf"(?<!\S)\S{{{LONGEST_RUN},}}|(?<!\s)\s{{{LONGEST_RUN},}}")
LETTERS = 1000  # characters that WordPiece knows at most, Chinese ones apart
# those of Chinese, each of which BERT's normalizer makes a word of its own
IDEOGRAPHS = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F), (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip
TOKENIZER_FILE = "tokenizer.json"
# the character that a byte-level vocabulary writes for each byte: itself where that can be seen, else one from 256 on
SEEN = [*range(33, 127), *range(161, 173), *range(174, 256)]
BYTES = {chr(byte): byte for byte in SEEN}
BYTES |= {chr(256 + number): byte for number, byte in enumerate(sorted(set(range(256)) - set(SEEN)))}


class Tokenizer:
    """Converts texts to ids and back.

    The name of a special token in a text is read as plain characters, except that a model with that of [UNK] among its
    pieces reads it as unknown. Raises DataError.
    """

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        inner.no_truncation()
        inner.no_padding()
        # BPE dropout, which draws a text's tokens from a generator of the library
        if getattr(inner.model, "dropout", None):
            inner.model.dropout = None
        self.serialized = inner.to_str()
        inner.encode_special_tokens = True
        self._inner = inner
        vocabulary = inner.get_vocab(with_added_tokens=True)
        by_role = {role: next((name for name in names if name in vocabulary), None) for role, names in ROLES.items()}
        if missing := [ROLES[role] for role, name in by_role.items() if name is None and role != "mask"]:
            raise DataError(
                f"the special tokens {' '.join(SPECIAL[:4])} are needed; there is no "
                + ", and no ".join(" or ".join(names) for names in missing)
            )
        self.roles = {role: name for role, name in by_role.items() if name is not None}
        self.vocabulary_size = max(vocabulary.values()) + 1
        self.pad_id, self.unk_id, self.cls_id, self.sep_id = (
            vocabulary[self.roles[role]] for role in ("pad", "unk", "cls", "sep")
        )
        self.mask_id = vocabulary.get(self.roles.get("mask", ""))
        special = {i for i, token in inner.get_added_tokens_decoder().items() if token.special}
        self.special = frozenset(special.union(vocabulary[name] for name in self.roles.values()))
        names = itertools.takewhile(vocabulary.__contains__, map(SENTINEL.format, itertools.count()))
        self.sentinel_ids = tuple(vocabulary[name] for name in names)

    @cached_property
    def digest(self) -> str:
        """Hex SHA-256 of the serialized tokenizer."""
        return text_digest(self.serialized)

    def with_sentinels(self, count: int) -> Tokenizer:
        """A copy that also has <extra_id_0> to <extra_id_(count - 1)>, like T5's tokenizers, with ids above the
        others.
        """
        if count <= len(self.sentinel_ids):
            return self
        inner = type(self._inner).from_str(self.serialized)
        inner.add_special_tokens([SENTINEL.format(number) for number in range(count)])
        return Tokenizer(inner)

    def with_unused(self, size: int) -> Tokenizer:
        """A copy with this number of ids. <unused_N> names those of the model that are above the tokenizer's own."""
        inner = type(self._inner).from_str(self.serialized)
        inner.add_special_tokens([UNUSED.format(number) for number in range(self.vocabulary_size, size)])
        return Tokenizer(inner)

    def with_frame(self, single: str, pair: str) -> Tokenizer:
        """A copy that frames a text, or a pair of texts, as the templates say, unless its file has a frame of its own.

        The templates are such as `[CLS] $A [SEP]` and `[CLS] $A [SEP] $B:1 [SEP]:1`, with our names of the special
        tokens.
        """
        from tokenizers import processors

        if self._inner.num_special_tokens_to_add(is_pair=False) or CLS not in self.roles.values():
            return self
        inner = type(self._inner).from_str(self.serialized)
        ids = [(CLS, self.cls_id), (SEP, self.sep_id)]
        inner.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)
        return Tokenizer(inner)

    @cached_property
    def between(self) -> tuple[int, ...]:
        """The ids between two texts: [SEP], or those of the file's own frame, such as RoBERTa's double </s>."""
        pair = self._inner.encode("a", "a")
        sides = pair.sequence_ids
        first, second = (sides.index(side) if side in sides else None for side in (0, 1))
        if first is None or second is None:
            return (self.sep_id,)
        return tuple(pair.ids[i] for i in range(first, second) if sides[i] is None) or (self.sep_id,)

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of each text, int64, without special tokens around them; many texts at once use all cores."""
        encodings = self._inner.encode_batch_fast(texts, add_special_tokens=False)
        return [self._spelled(encoding)[0] for encoding in encodings]

    def encode_with_offsets(self, texts: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Ids of each text, and the start and end of each token in characters, [tokens, 2]."""
        encodings = self._inner.encode_batch(texts, add_special_tokens=False)
        pairs = []
        for encoding in encodings:
            ids, tokens = self._spelled(encoding)
            pairs.append((ids, np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)[tokens]))
        return pairs

    def _spelled(self, encoding: tokenizers.Encoding) -> tuple[np.ndarray, np.ndarray | slice]:
        """The ids of a text, and of which of its tokens each is.

        A Unigram model such as T5's has special tokens among its pieces and finds their names in a text; they are
        replaced by their characters.
        """
        ids = np.array(encoding.ids, dtype=np.int64)
        if not self._is_reserved[ids].any():
            return ids, slice(None)
        spelled = [self._characters.get(i, [i]) for i in encoding.ids]
        tokens = np.repeat(np.arange(len(ids)), [len(each) for each in spelled])
        return np.array(list(itertools.chain(*spelled)), dtype=np.int64), tokens

    @cached_property
    def _is_reserved(self) -> np.ndarray:
        """Bool [vocabulary]: the special tokens except [UNK], which a text may have."""
        is_reserved = np.zeros(self.vocabulary_size, dtype=bool)
        is_reserved[list(self.special - {self.unk_id})] = True
        return is_reserved

    @cached_property
    def _characters(self) -> dict[int, list[int]]:
        """The ids of the characters in the names of these tokens."""
        names = {int(i): self._inner.id_to_token(int(i)) or "" for i in np.flatnonzero(self._is_reserved)}
        model = self._inner.model
        return {i: [piece.id for char in name for piece in model.tokenize(char)] for i, name in names.items()}

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """The text of ids, with special tokens as they are written."""
        return str(self._inner.decode([int(i) for i in ids], skip_special_tokens=False))

    def tokens(self, ids: Sequence[int] | np.ndarray) -> list[str]:
        """The token of each id, as the vocabulary writes it; bytes as their text, a part of a character as \\xe4."""
        names = [self._inner.id_to_token(int(i)) or UNK for i in ids]
        if type(self._inner.decoder).__name__ != "ByteLevel":
            return names
        return [name if set(name) - BYTES.keys() else _text_of_bytes(name) for name in names]

    def save(self, path: Path) -> None:
        """Write it as a `tokenizer.json`, which `tokenizer=file tokenizer.path=...` reads again."""
        path.write_text(self.serialized, encoding="utf-8")


def _text_of_bytes(name: str) -> str:
    return bytes(BYTES[char] for char in name).decode("utf-8", errors="backslashreplace")


def load(path: Path) -> Tokenizer:
    """The tokenizer of a `tokenizer.json`. Raises DataError."""
    import tokenizers

    with or_elsewhere("", DataError), disk_errors(path):
        content = read_bytes(path)
    try:
        with _no_panic():
            inner = tokenizers.Tokenizer.from_buffer(content)
    except Exception as error:
        raise DataError(f"{path} is not a tokenizer.json of the tokenizers library: {first_line(error)}") from error
    try:
        return Tokenizer(inner)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def load_named(settings: FileTokenizer) -> Tokenizer:
    """The tokenizer of the file that the settings name. Raises DataError."""
    path, *others = find("tokenizer.path", settings.path)
    if others:
        raise DataError(f"tokenizer.path={settings.path}: {1 + len(others)} files match; name one, such as {path}")
    return load(path)


def from_vocabulary(
    path: Path,
    *,
    lowercase: bool,
    strip_accents: bool | None = None,
    split_chinese: bool = True,
    added: Mapping[int, Mapping[str, Any]] | None = None,
) -> Tokenizer:
    """BERT's WordPiece with the tokens of a vocab.txt, one on each line. Raises DataError.

    strip_accents: whether letters lose their accents; None: if they are lower-cased. split_chinese: whether each
    Chinese character is a word. added: tokens that are found in a text before it is split, by id, as keywords of the
    library's AddedToken.
    """
    try:
        lines = read_text(path).split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8") from error
    tokens = lines[:-1] if lines[-1] == "" else lines
    try:
        inner = _bert_wordpiece({token: i for i, token in enumerate(tokens)}, lowercase, strip_accents, split_chinese)
        _add(inner, added or {})
        return Tokenizer(inner)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def train(texts: list[str], settings: TrainedTokenizer) -> Tokenizer:
    """A tokenizer trained on the texts; the same texts give the same bytes. Few texts may give a smaller vocabulary."""
    texts = [piece for text in texts for piece in _pieces(text)]
    try:
        with _no_panic():
            if settings.kind == "byte_bpe":
                return Tokenizer(_byte_bpe(texts, settings.vocabulary_size))
            return Tokenizer(_wordpiece(texts, settings.vocabulary_size, settings.alphabet))
    except (ImportError, OSError):
        # the fault of the library, of a file in its place, or of the machine: not the text's
        raise
    except Exception as error:
        reason = first_line(error)
        raise DataError(f"tokenizer.kind={settings.kind} cannot be trained on this text: {reason}") from error


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces that have no word longer than LONGEST_RUN, and no more blanks in a row."""
    begin = 0
    for run in LONG_RUN.finditer(text):
        for end in range(run.start() + LONGEST_RUN, run.end(), LONGEST_RUN):
            yield text[begin:end]
            begin = end
    yield text[begin:]


def _byte_bpe(texts: list[str], size: int) -> tokenizers.Tokenizer:
    """Byte-level BPE (Radford et al. 2019): lossless, and every text has ids."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(texts, trainer)
    return inner


def alphabet_of(counts: Counter[str], size: int, most: int | None) -> list[str]:
    """The characters that a WordPiece of `size` ids knows: the `most` commonest.

    If `most` is None, one half of the vocabulary is for the commonest letters, at most LETTERS of them. Each has two
    ids, at the start of a word and within one. The other half is for Chinese characters, each of which is a word: 4,000
    of them cover all but 0.6% of a text.
    """
    commonest = sorted((char for char in counts if not char.isspace()), key=lambda char: (-counts[char], char))
    if most is not None:
        return commonest[:most]
    letters = [char for char in commonest if not is_ideograph(char)]
    ideographs = [char for char in commonest if is_ideograph(char)]
    return letters[: min(LETTERS, size // 4)] + ideographs[: size // 2 - len(SPECIAL)]


def is_ideograph(char: str) -> bool:
    """Whether a character is a Chinese one."""
    return any(first <= ord(char) <= last for first, last in IDEOGRAPHS)


def _wordpiece(texts: list[str], size: int, most: int | None) -> tokenizers.Tokenizer:
    """WordPiece as BERT's (Devlin et al. 2019): lower-cased words without accents.

    The trainer numbers the continuing characters, `##x`, in the order of a hash that differs between processes, and
    merges of equal count by these numbers (tokenizers#1794). Named as special tokens they have fixed numbers; the
    tokenizer is then built anew, where they are not special.
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    normalizer = normalizers.BertNormalizer(lowercase=True)
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(normalizer.normalize_str(text))
    alphabet = sorted(alphabet_of(counts, size, most))

    learner = Tokenizer(models.WordPiece(unk_token=UNK))
    learner.normalizer, learner.pre_tokenizer = normalizer, pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=[*SPECIAL, *("##" + char for char in alphabet if not is_ideograph(char))],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    learner.train_from_iterator(texts, trainer)

    return _bert_wordpiece(learner.get_vocab())


def _bert_wordpiece(
    vocabulary: dict[str, int], lowercase: bool = True, strip_accents: bool | None = None, split_chinese: bool = True
) -> tokenizers.Tokenizer:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    inner = Tokenizer(models.WordPiece(vocabulary, unk_token=UNK))
    inner.normalizer = normalizers.BertNormalizer(
        lowercase=lowercase, strip_accents=strip_accents, handle_chinese_chars=split_chinese
    )
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.add_special_tokens([token for token in SPECIAL if token in vocabulary])
    inner.decoder = decoders.WordPiece()
    return inner


def _add(inner: tokenizers.Tokenizer, added: Mapping[int, Mapping[str, Any]]) -> None:
    """Add tokens in the order of their ids. Raises DataError, also for an id that the library does not give."""
    from tokenizers import AddedToken

    for i, keywords in sorted(added.items()):
        try:
            token = AddedToken(**keywords)
        except TypeError as error:
            raise DataError(f"the added token with the id {i} cannot be read: {first_line(error)}") from error
        inner.add_tokens([token])
        if (given := inner.token_to_id(token.content)) != i:
            raise DataError(f"the added token {token.content!r} has the id {i}, but transformers gives it {given}")


@contextlib.contextmanager
def _no_panic() -> Iterator[None]:
    """A block for the library's Rust code, whose panics are not Exceptions and would pass every handler."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ == "PanicException":
            if "ThreadPoolBuildError" in str(error):
                raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error
            raise RuntimeError(first_line(error)) from error
        raise
