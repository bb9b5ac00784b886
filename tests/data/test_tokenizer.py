from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from experiments.config.compose import compose
from experiments.data import tokenizer as module
from experiments.data.errors import DataError
from experiments.data.tokenizer import SPECIAL, Tokenizer, load, load_named, train
from experiments.settings.tokenizer import FileTokenizer, TrainedTokenizer
from experiments.tasks.pretraining import Pretraining

TRAIN = """
import json, sys
from experiments.data.tokenizer import train
from experiments.settings.tokenizer import TrainedTokenizer

kind, texts = json.loads(sys.argv[1])
print(train(texts, TrainedTokenizer(kind=kind, vocabulary_size=700)).digest)
"""
KINDS = ["byte_bpe", "wordpiece"]


@pytest.fixture(scope="module", params=KINDS)
def trained(request: pytest.FixtureRequest, texts: list[str]) -> Tokenizer:
    return train(texts, TrainedTokenizer(kind=request.param, vocabulary_size=400))


def test_the_special_tokens_are_the_first_ids(trained: Tokenizer) -> None:
    assert trained.tokens(range(5)) == list(SPECIAL)
    assert (trained.pad_id, trained.unk_id, trained.cls_id, trained.sep_id, trained.mask_id) == (0, 1, 2, 3, 4)
    assert trained.special == frozenset(range(5))
    assert trained.vocabulary_size == 400


def test_the_names_of_special_tokens_in_a_text_are_plain_characters(trained: Tokenizer) -> None:
    (ids,) = trained.encode(["a [MASK] b [SEP] [CLS] [PAD]"])
    assert not {0, 2, 3, 4}.intersection(ids.tolist())


def test_a_unigram_model_does_not_find_the_names_of_its_special_tokens_in_a_text() -> None:
    """T5's and ALBERT's have them among their pieces, with the best score."""
    names = ["<pad>", "</s>", "<unk>", "<extra_id_0>"]
    pieces = [*((name, 0.0) for name in names), *((char, -2.0) for char in "\u2581ab<>/spd")]
    inner = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id=2))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    inner.decoder = tokenizers.decoders.Metaspace()
    inner.add_special_tokens(names)
    tokenizer = Tokenizer(inner)
    texts = ["a</s>b", "ab", "<pad>", "a<extra_id_0>"]
    encoded = tokenizer.encode(texts)
    assert [tokenizer.decode(ids) for ids in encoded[:3]] == texts[:3]
    assert not (tokenizer.special - {tokenizer.unk_id}).intersection(*map(set, encoded))
    assert set(encoded[3].tolist()) & tokenizer.special == {tokenizer.unk_id}
    ids, offsets = tokenizer.encode_with_offsets(texts)[0]
    assert ids.tolist() == encoded[0].tolist() and offsets[-1].tolist() == [5, 6]
    assert [texts[0][start:end] for start, end in offsets[-5:]] == ["</s>"] * 4 + ["b"]


@given(st.text(st.characters(codec="utf-8"), max_size=40))
def test_bytes_are_lossless(text: str) -> None:
    tokenizer = bytes_only()
    (ids,) = tokenizer.encode([text])
    assert tokenizer.decode(ids) == text
    assert not tokenizer.special.intersection(ids.tolist())


_BYTES: list[Tokenizer] = []


def bytes_only() -> Tokenizer:
    if not _BYTES:
        _BYTES.append(train(["some text"], TrainedTokenizer(kind="byte_bpe", vocabulary_size=300)))
    return _BYTES[0]


def test_a_text_that_supports_fewer_has_fewer() -> None:
    tokenizer = train(["a small text, a small text"], TrainedTokenizer(kind="byte_bpe", vocabulary_size=5000))
    assert 261 <= tokenizer.vocabulary_size < 300
    assert max(tokenizer.encode(["a small text"])[0]) < tokenizer.vocabulary_size


@pytest.mark.parametrize("kind", KINDS)
def test_processes_train_the_same_bytes(python, texts: list[str], kind: str) -> None:
    processes = [python(TRAIN, [kind, texts], PYTHONHASHSEED=str(seed)) for seed in range(3)]
    digests = {process.communicate(timeout=60)[0] for process in processes}
    assert len(digests) == 1
    assert digests == {train(texts, TrainedTokenizer(kind=kind, vocabulary_size=700)).digest + "\n"}


def test_wordpiece_lower_cases_and_joins_pieces(texts: list[str]) -> None:
    tokenizer = train(texts, TrainedTokenizer(kind="wordpiece", vocabulary_size=400))
    (ids,) = tokenizer.encode([texts[0].upper()])
    assert tokenizer.decode(ids).replace(" ", "") == texts[0].lower().replace(" ", "")
    assert tokenizer.encode(["\u4e2d"])[0].tolist() == [1]


CHINESE = "".join(chr(0x4E00 + i) for i in range(1500))


def test_wordpiece_knows_chinese_characters_beside_letters_and_by_default_as_many_as_half_of_it() -> None:
    texts = [CHINESE, CHINESE + " abc abd" * 50]

    def unknown(size: int, alphabet: int | None) -> int:
        tokenizer = train(texts, TrainedTokenizer(kind="wordpiece", vocabulary_size=size, alphabet=alphabet))
        assert 1 not in tokenizer.encode(["abc abd"])[0].tolist() and tokenizer.vocabulary_size <= size
        return tokenizer.encode([CHINESE])[0].tolist().count(1)

    assert unknown(4000, None) == 0
    assert unknown(1000, None) == 1500 - (500 - len(SPECIAL))
    assert unknown(4000, 104) == 1500 - 100  # a, b, c and d are the commonest four
    with pytest.raises(ValueError, match="alphabet 501: must be at most half of vocabulary_size 1000"):
        unknown(1000, 501)
    with pytest.raises(ValueError, match="alphabet 100: is only of wordpiece"):
        TrainedTokenizer(kind="byte_bpe", vocabulary_size=1000, alphabet=100)


def test_the_tokens_of_bytes_read_as_text() -> None:
    texts = ["\u4e2d\u6587 text\n" * 50]
    tokenizer = train(texts, TrainedTokenizer(kind="byte_bpe", vocabulary_size=300))
    (ids,) = tokenizer.encode(["\u4e2d text\n\u00e4"])
    shown = tokenizer.tokens(ids)
    assert "\u4e2d" in shown and "\n" in "".join(shown) and shown[-2:] == ["\\xc3", "\\xa4"]
    assert tokenizer.tokens([4]) == ["[MASK]"]


def test_wordpiece_keeps_the_commonest_characters_of_a_large_alphabet() -> None:
    many = "".join(chr(0x4E00 + i) for i in range(500))
    tokenizer = train([many + " abc" * 50], TrainedTokenizer(kind="wordpiece", vocabulary_size=300))
    assert tokenizer.vocabulary_size <= 300
    assert 1 not in tokenizer.encode(["abc"])[0].tolist()


def test_a_saved_tokenizer_is_the_same(trained: Tokenizer, texts: list[str], tmp_path: Path) -> None:
    trained.save(tmp_path / "tokenizer.json")
    loaded = load(tmp_path / "tokenizer.json")
    assert loaded.digest == trained.digest
    assert [ids.tolist() for ids in loaded.encode(texts[:9])] == [ids.tolist() for ids in trained.encode(texts[:9])]


def test_truncation_and_padding_of_a_file_are_ignored(trained: Tokenizer, texts: list[str], tmp_path: Path) -> None:
    tree = json.loads(trained.serialized)
    tree["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tree))
    loaded = load(tmp_path / "tokenizer.json")
    assert [ids.tolist() for ids in loaded.encode(texts[:3])] == [ids.tolist() for ids in trained.encode(texts[:3])]


def test_a_path_names_one_tokenizer(trained: Tokenizer, tmp_path: Path) -> None:
    def named(pattern: str) -> Tokenizer:
        return load_named(FileTokenizer(kind="file", path=f"{tmp_path}/{pattern}"))

    trained.save(tmp_path / "a.json")
    assert named("a.json").digest == named("*.json").digest == trained.digest
    trained.save(tmp_path / "b.json")
    with pytest.raises(DataError, match=r"^tokenizer\.path=.*\*\.json: 2 files match; name one, such as .*a\.json$"):
        named("*.json")
    for read in (named, lambda name: Pretraining(compose(["tokenizer=file", f"tokenizer.path={tmp_path}/{name}"]))):
        with pytest.raises(DataError, match=r"^tokenizer\.path=.*c\.json: there is no such file in "):
            read("c.json").vocabulary_size()


def test_the_dropout_of_a_file_is_ignored(texts: list[str], tmp_path: Path) -> None:
    trained = train(texts, TrainedTokenizer(kind="byte_bpe", vocabulary_size=400))
    tree = json.loads(trained.serialized)
    tree["model"]["dropout"] = 0.5
    (tmp_path / "tokenizer.json").write_text(json.dumps(tree))
    loaded = load(tmp_path / "tokenizer.json")
    assert loaded.digest == trained.digest
    assert [ids.tolist() for ids in loaded.encode(texts[:3])] == [ids.tolist() for ids in trained.encode(texts[:3])]


def test_what_is_no_tokenizer_is_said(trained: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    for text in ("", "not json", "{}", '{"model": 1}', "\x00\x01"):
        path.write_text(text)
        with pytest.raises(DataError, match=r"tokenizer.json is not a tokenizer.json of the tokenizers library: "):
            load(path)
    tree = json.loads(trained.serialized)
    tree["added_tokens"] = [token for token in tree["added_tokens"] if token["content"] != "[SEP]"]
    del tree["model"]["vocab"]["[SEP]"]
    path.write_text(json.dumps(tree))
    with pytest.raises(
        DataError,
        match=r"tokenizer.json: the special tokens .* are needed; there is no \[SEP\] or </s> or <\|endoftext\|>",
    ):
        load(path)


def test_a_file_that_cannot_be_read_is_not_called_something_else(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.mkdir()
    with pytest.raises(DataError, match=f"^{path}: a folder stands where a file should be; remove it$"):
        load(path)


def test_a_panic_of_the_library_is_an_error_that_can_be_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    def panics(texts: list[str], size: int) -> object:
        raise PanicException("likelihood is NAN\nmore")

    monkeypatch.setattr(module, "_byte_bpe", panics)
    with pytest.raises(DataError, match=r"tokenizer.kind=byte_bpe cannot be trained on this text: likelihood is NAN$"):
        train(["text"], TrainedTokenizer(kind="byte_bpe", vocabulary_size=300))


def test_threads_that_cannot_be_started_are_not_the_fault_of_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    def panics(texts: list[str], size: int) -> object:
        raise PanicException("The global thread pool has not been initialized.: ThreadPoolBuildError { kind: IOError }")

    monkeypatch.setattr(module, "_byte_bpe", panics)
    with pytest.raises(BlockingIOError):
        train(["text"], TrainedTokenizer(kind="byte_bpe", vocabulary_size=300))


@pytest.mark.parametrize("kind", KINDS)
def test_a_word_without_end_is_trained_on_in_pieces(kind: str) -> None:
    """The time of the trainers is the square of the longest word; a word of a million letters would take minutes."""
    settings = TrainedTokenizer(kind=kind, vocabulary_size=300)
    word = "acgt" * 5000
    pieces = [f"a short word {word[:10_000]}", word[10_000:] + " and another"]
    assert train([f"a short word {word} and another"], settings).digest == train(pieces, settings).digest


@given(st.text(st.sampled_from("ab \n\u3000"), max_size=60))
def test_pieces_are_the_text_and_are_cut_only_within_long_runs(text: str) -> None:
    longest = module.LONGEST_RUN
    long = text.replace("b", "b" * longest).replace("\n", "\n" * longest)
    pieces = [*module._pieces(long)]
    assert "".join(pieces) == long
    runs = re.findall(r"\S+|\s+", long)
    assert len(pieces) - 1 == sum((len(run) - 1) // longest for run in runs)
