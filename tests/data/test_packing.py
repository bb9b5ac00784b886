from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experiments.data import packing, tokenizer
from experiments.data.cache import Cache
from experiments.data.documents import split_of
from experiments.data.errors import DataError
from experiments.data.kinds.parquet import ParquetFiles
from experiments.data.kinds.text import TextFiles
from experiments.data.packing import Dataset, Packed, obtain
from experiments.settings.tokenizer import FileTokenizer, TrainedTokenizer

LENGTH = 16
PREPARE = """
import hashlib, json, sys
from pathlib import Path
from experiments.data import packing
from experiments.data.cache import Cache
from experiments.data.kinds.text import TextFiles
from experiments.settings.tokenizer import TrainedTokenizer

data, cache = json.loads(sys.argv[1])
packing.CHUNK = 2000
tokenizer = TrainedTokenizer(kind="byte_bpe", vocabulary_size=400)
def report(stage, *_):
    print(stage, flush=True)
dataset = packing.obtain(TextFiles.model_validate(data), tokenizer, 16, Cache(Path(cache), report), report)
print(hashlib.sha256(dataset.train.tokens.tobytes() + dataset.validation.tokens.tobytes()).hexdigest())
"""

Settings = Callable[..., TextFiles]


def silent(stage: str, done: int, total: int | None) -> None:
    assert done >= 0
    assert total is None or done <= total


def prepare(data: TextFiles, tokenizer: TrainedTokenizer, length: int, cache: Path, report: Callable) -> Dataset:
    return obtain(data, tokenizer, length, Cache(cache, lambda text: report(text, 0, None)), report)


@pytest.fixture
def dataset(text_data: Settings, byte_bpe: TrainedTokenizer, tmp_path: Path) -> Dataset:
    return prepare(text_data(), byte_bpe, LENGTH, tmp_path / "cache", silent)


def documents_of(packed: Packed, tokenizer: tokenizer.Tokenizer) -> list[str]:
    """Read a split back; the last document is cut."""
    stream = packed.tokens[:, 1:].reshape(-1)
    ends = np.flatnonzero(stream == tokenizer.sep_id)
    return [tokenizer.decode(ids[ids != tokenizer.sep_id]) for ids in np.split(stream, ends + 1)][:-1]


@pytest.mark.parametrize("when", ["training the tokenizer", "packing train"])
def test_a_text_that_changes_while_it_is_read_is_refused(
    text_data: Settings, byte_bpe: TrainedTokenizer, text_file: Path, tmp_path: Path, when: str
) -> None:
    def change(stage: str, done: int, total: int | None) -> None:
        if stage == when:
            with text_file.open("a") as file:
                file.write("more")

    with pytest.raises(DataError, match=r"train.txt changed while it was read"):
        prepare(text_data(), byte_bpe, LENGTH, tmp_path / "cache", change)
    made = "tokenizers" if when == "training the tokenizer" else "packed"
    assert not [path for path in (tmp_path / "cache" / made).iterdir() if path.is_dir()]


def test_sequences_are_the_documents_shuffled(dataset: Dataset, texts: list[str]) -> None:
    assert dataset.test is not None
    found: Counter[str] = Counter()
    for packed in (dataset.train, dataset.validation, dataset.test):
        assert packed.tokens.shape[1] == LENGTH
        assert (packed.tokens[:, 0] == dataset.tokenizer.cls_id).all()
        read = documents_of(packed, dataset.tokenizer)
        assert packed.documents - 2 <= len(read) <= packed.documents
        in_order = [text for text in texts if text in set(read)]
        assert sorted(read) == sorted(in_order)
        found.update(read)
    assert documents_of(dataset.train, dataset.tokenizer) != [t for t in texts if found[t]][: dataset.train.documents]
    assert max(found.values()) == 1
    assert set(found) <= set(texts)
    assert len(found) >= len(texts) - 3


def test_what_is_counted(dataset: Dataset, texts: list[str]) -> None:
    splits = [packed for packed in (dataset.train, dataset.validation, dataset.test) if packed]
    assert sum(packed.documents for packed in splits) == len(texts)
    assert sum(packed.text_bytes for packed in splits) == sum(len(text.encode()) for text in texts)
    assert sum(packed.token_count for packed in splits) == sum(map(len, dataset.tokenizer.encode(texts)))
    for packed in splits:
        stream = packed.token_count + packed.documents
        assert len(packed.tokens) == stream // (LENGTH - 1)
    assert dataset.unigram.sum() == dataset.train.token_count
    assert len(dataset.unigram) == dataset.tokenizer.vocabulary_size
    assert not dataset.unigram[:5].any()
    counts = np.bincount(dataset.train.tokens.ravel(), minlength=len(dataset.unigram))
    assert (dataset.unigram[5:] - counts[5:]).sum() < LENGTH
    assert (dataset.unigram[5:] >= counts[5:]).all()
    assert json.loads(json.dumps(dataset.identity)) == dataset.identity


def test_tokens_cannot_be_changed_by_accident(dataset: Dataset) -> None:
    with pytest.raises(ValueError, match="read-only"):
        dataset.train.tokens[0, 0] = 1


def test_the_second_time_nothing_is_made(
    dataset: Dataset, text_data: Settings, byte_bpe: TrainedTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise AssertionError("made again")

    monkeypatch.setattr(packing, "_pack", fails)
    monkeypatch.setattr(tokenizer, "train", fails)
    again = prepare(text_data(), byte_bpe, LENGTH, tmp_path / "cache", fails)
    assert np.array_equal(again.train.tokens, dataset.train.tokens)
    assert again.identity == dataset.identity


def test_length_tokenizer_and_text_each_have_their_own(
    dataset: Dataset, text_data: Settings, text_file: Path, byte_bpe: TrainedTokenizer, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    keys = {dataset.identity["packed"], prepare(text_data(), byte_bpe, 8, cache, silent).identity["packed"]}
    larger = TrainedTokenizer(kind="byte_bpe", vocabulary_size=500)
    keys.add(prepare(text_data(), larger, LENGTH, cache, silent).identity["packed"])
    text_file.write_text(text_file.read_text() + "\n\nOne more document.")
    keys.add(prepare(text_data(), byte_bpe, LENGTH, cache, silent).identity["packed"])
    assert len(keys) == 4


def test_text_moved_is_the_same_text(
    dataset: Dataset, text_data: Settings, text_file: Path, byte_bpe: TrainedTokenizer, tmp_path: Path
) -> None:
    moved = text_file.rename(tmp_path / "moved.txt")
    again = prepare(text_data(train=str(moved)), byte_bpe, LENGTH, tmp_path / "cache", silent)
    assert again.identity == dataset.identity


def test_damaged_tokens_are_made_again(
    dataset: Dataset, text_data: Settings, byte_bpe: TrainedTokenizer, tmp_path: Path
) -> None:
    before = dataset.train.tokens.copy()
    file = tmp_path / "cache" / "packed" / dataset.identity["packed"][:32] / "train"
    file.write_bytes(bytes([7]) + file.read_bytes()[1:])
    again = prepare(text_data(), byte_bpe, LENGTH, tmp_path / "cache", silent)
    assert np.array_equal(again.train.tokens, before)


def test_processes_make_the_same_bytes_once_even_when_one_is_killed(
    python, dataset: Dataset, text_data: Settings, tmp_path: Path
) -> None:
    arguments = [text_data().model_dump(), str(tmp_path / "other")]
    killed = python(PREPARE, arguments)
    while killed.stdout.readline() != "tokenizing\n":
        assert killed.poll() is None
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=10)
    together = [python(PREPARE, arguments) for _ in range(2)]
    lines = [process.communicate(timeout=60)[0].splitlines() for process in together]
    assert sum("tokenizing" in output for output in lines) == 1
    assert lines[0][-1] == lines[1][-1]
    again = python(PREPARE, [arguments[0], str(tmp_path / "third")], RAYON_NUM_THREADS="1")
    assert again.communicate(timeout=60)[0].splitlines()[-1] == lines[0][-1]


def test_neither_chunks_nor_blocks_change_the_result(
    dataset: Dataset, text_data: Settings, byte_bpe: TrainedTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "CHUNK", 100)
    monkeypatch.setattr(packing, "BLOCK", 100)
    again = prepare(text_data(), byte_bpe, LENGTH, tmp_path / "small chunks", silent)
    assert np.array_equal(again.train.tokens, dataset.train.tokens)
    assert again.identity == dataset.identity


def test_a_large_vocabulary_takes_four_bytes(text_data: Settings, tmp_path: Path, texts: list[str]) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = sorted({word for text in texts for word in text.split()})
    names = [*tokenizer.SPECIAL, *(f"unused{number}" for number in range(70_000)), *words]
    inner = Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens(list(tokenizer.SPECIAL))
    inner.save(str(tmp_path / "tokenizer.json"))
    chosen = FileTokenizer(kind="file", path=str(tmp_path / "tokenizer.json"))
    dataset = prepare(text_data(), chosen, LENGTH, tmp_path / "cache", silent)
    assert dataset.train.tokens.dtype == np.uint32
    assert dataset.train.tokens.max() >= 70_000
    assert len(dataset.unigram) == dataset.tokenizer.vocabulary_size == len(names)


@pytest.mark.parametrize(
    ("known", "said"), [(0, ""), (1, "1 of the 7 documents of validation is also in train"), (7, "7 of the 7")]
)
def test_a_run_says_how_many_documents_for_evaluation_it_trains_on(
    text_data: Settings, byte_bpe: TrainedTokenizer, tmp_path: Path, texts: list[str], known: int, said: str
) -> None:
    other = tmp_path / "validation.txt"
    # other ends of lines make another file of the same documents
    documents = [*texts[:known], *(f"{text} more" for text in texts[known:7])]
    other.write_bytes("\r\n\r\n".join(documents).encode())
    dataset = prepare(text_data(validation=str(other)), byte_bpe, LENGTH, tmp_path / "cache", silent)
    again = prepare(text_data(validation=str(other)), byte_bpe, LENGTH, tmp_path / "cache", silent)
    assert again.remark == dataset.remark and ("also in train" in dataset.remark) == (known > 0)
    assert said in dataset.remark


def test_splits_that_are_given_are_used(
    text_data: Settings, byte_bpe: TrainedTokenizer, tmp_path: Path, texts: list[str]
) -> None:
    other = tmp_path / "validation.txt"
    other.write_text("\n\n".join(texts[:7]))
    dataset = prepare(text_data(validation=str(other)), byte_bpe, LENGTH, tmp_path / "cache", silent)
    assert dataset.test is None
    assert (dataset.train.documents, dataset.validation.documents) == (len(texts), 7)
    tested = prepare(text_data(test=str(other)), byte_bpe, LENGTH, tmp_path / "cache", silent)
    assert tested.test is not None
    assert tested.test.documents == 7
    assert tested.train.documents + tested.validation.documents == len(texts)


def test_parquet_and_text_of_the_same_documents_are_the_same_tokens(
    dataset: Dataset, byte_bpe: TrainedTokenizer, tmp_path: Path, texts: list[str]
) -> None:
    pq.write_table(pa.table({"body": texts}), tmp_path / "train.parquet", row_group_size=100)
    data = ParquetFiles(
        kind="parquet", column="body", documents="row", train=f"{tmp_path}/*.parquet", validation=None, test=None
    )
    tabled = prepare(data, byte_bpe, LENGTH, tmp_path / "cache", silent)
    assert np.array_equal(tabled.train.tokens, dataset.train.tokens)


def test_a_vocabulary_that_is_not_reached_is_said(text_data: Settings, tmp_path: Path) -> None:
    huge = TrainedTokenizer(kind="byte_bpe", vocabulary_size=60_000)
    dataset = prepare(text_data(), huge, LENGTH, tmp_path / "cache", silent)
    reached = dataset.tokenizer.vocabulary_size
    assert dataset.remark == f"the text supports a vocabulary of {reached:,} of the 60,000 asked for"
    assert dataset.identity["tokenizer"]["vocabulary_size_asked"] == 60_000


def test_texts_that_are_too_short_are_refused_in_numbers(
    text_data: Settings, byte_bpe: TrainedTokenizer, tmp_path: Path
) -> None:
    short = tmp_path / "short.txt"
    held_out = next(text for text in map(str, range(999)) if split_of(text, {"validation": 1, "test": 1}) != "train")
    for text, message in [
        (" \n\n \n", "the training split has no text; give a longer text"),
        (held_out, r"no text, because other splits got 1 document, all that there are: .*\(data\.documents=row\)$"),
        ("a few words", r"the train split has \d+ tokens in 1 document, and a row of 16 tokens needs 15: "),
        ("many words " * 99, r"0 tokens in 0 .*data\.validation;.* of train, which has 1: .*\(data\.documents=row\)$"),
    ]:
        short.write_text(text)
        with pytest.raises(DataError, match=message):
            prepare(text_data(train=str(short)), byte_bpe, LENGTH, tmp_path / "cache", silent)
        in_rows = text_data(train=str(short), documents="row")
        with pytest.raises(DataError, match=r"^(?!.*data\.documents)"):
            prepare(in_rows, byte_bpe, LENGTH, tmp_path / "cache", silent)
    (tmp_path / "validation.txt").write_text("a few words")
    said: list[str] = []
    with pytest.raises(DataError, match=r"validation split has .* needs 15: use a longer text or a smaller length"):
        given = text_data(train=str(short), validation=str(tmp_path / "validation.txt"))
        prepare(given, byte_bpe, LENGTH, tmp_path / "cache", lambda stage, *_: said.append(stage))
    assert "tokenizing" in said and not any(stage.startswith("packing") for stage in said)
    short.write_text(" \n")
    for split in ("validation", "test"):
        with pytest.raises(DataError, match="the training split has no text; give a longer text"):
            given = {split: str(tmp_path / "validation.txt")}
            prepare(text_data(train=str(short), **given), byte_bpe, LENGTH, tmp_path / "cache", silent)
    assert not [path for path in (tmp_path / "cache" / "packed").iterdir() if path.is_dir()]


def test_a_table_without_a_blank_line_is_refused_with_the_settings_that_read_its_column(
    text_data: Settings, byte_bpe: TrainedTokenizer, tmp_path: Path
) -> None:
    table = tmp_path / "reviews.csv"
    table.write_text("stars,body\n" + "5,many words\n" * 99)
    message = r"has 1: .*reviews\.csv is read as plain text, .* data=hub data\.path=FOLDER data\.column=NAME reads"
    with pytest.raises(DataError, match=message) as refused:
        prepare(text_data(train=str(table)), byte_bpe, LENGTH, tmp_path / "cache", silent)
    assert "data.documents" not in str(refused.value)


def test_a_test_split_that_is_too_short_is_left_out_and_said(
    text_data: Settings, byte_bpe: TrainedTokenizer, tmp_path: Path
) -> None:
    (tmp_path / "short.txt").write_text("short")
    said: list[str] = []
    settings = text_data(test=str(tmp_path / "short.txt"))
    dataset = prepare(settings, byte_bpe, LENGTH, tmp_path / "cache", lambda stage, *_: said.append(stage))
    assert dataset.test is None
    assert any("the test split has" in stage and "left out" in stage for stage in said)


def test_a_full_disk_leaves_the_cache_clean(python, text_data: Settings, tmp_path: Path) -> None:
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))\n" + PREPARE
    process = python(limited, [text_data().model_dump(), str(tmp_path / "cache")])
    error = process.communicate(timeout=60)[1]
    assert "the file would be larger than this process may write" in error and "cache=FOLDER" in error
    assert "Exception ignored" not in error
    assert not list((tmp_path / "cache").rglob("*.partial*"))
