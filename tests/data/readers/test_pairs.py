from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experiments.config.command_line import CommandLine
from experiments.config.compose import compose
from experiments.data import packing_pairs
from experiments.data.cache import Cache
from experiments.data.corpus import open_corpus
from experiments.data.errors import DataError
from experiments.data.kinds.hub_pairs import HubPairs
from experiments.data.kinds.pairs import PairFiles
from experiments.data.packing import obtain
from experiments.data.readers.pairs import joined
from experiments.failures.failure import Mistake
from experiments.launch.plan import plan
from experiments.settings.tokenizer import TrainedTokenizer

TOKENIZER = TrainedTokenizer(kind="byte_bpe", vocabulary_size=300)


def pairs_of(count: int) -> list[tuple[str, str]]:
    return [(f"source {number}", f"the target {number * 7}") for number in range(count)]


@pytest.fixture
def made(tmp_path):
    """made(text or pairs, length=..., cache=..., **settings) -> Dataset, messages"""

    def make(content, length=16, name="train.tsv", cache="cache", **changes):
        path = tmp_path / name
        if isinstance(content, str):
            path.write_text(content, encoding="utf-8")
        elif isinstance(content, dict):
            pq.write_table(pa.table(content), path)
        else:
            path.write_text("".join(f"{source}\t{target}\n" for source, target in content), encoding="utf-8")
        keys = {"source": "source", "target": "target", "validation": None, "test": None}
        data = PairFiles(kind="pairs", train=str(path), **(keys | changes))
        messages: list[str] = []
        kept = Cache(tmp_path / cache, messages.append)
        dataset = obtain(data, TOKENIZER, 2 * length, kept, lambda stage, *_: messages.append(stage))
        return dataset, messages

    return make


def sides(dataset, split):
    """The texts of a split's rows."""
    tokenizer, packed = dataset.tokenizer, getattr(dataset, split)
    found = []
    for row in packed.tokens.reshape(len(packed.tokens), 2, -1):
        pair = []
        for side in row.tolist():
            end = side.index(tokenizer.sep_id)
            assert set(side[end + 1 :]) <= {tokenizer.pad_id}
            pair.append(tokenizer.decode(side[:end]))
        found.append(tuple(pair))
    return found


@pytest.mark.parametrize("words", [["data=pairs", "data.train=x", "data.target=source"], ["data.source=de"]])
def test_a_target_that_is_its_source_is_refused(words):
    with pytest.raises(Mistake, match=r"data\.target: must differ from data\.source=(source|de)$"):
        compose(["model=transformer_nano", *words])


def test_the_names_of_columns_are_read_only_if_a_file_has_columns(tmp_path):
    (tmp_path / "pairs.tsv").write_text("ein\tone\n")
    pq.write_table(pa.table({"de": ["ein"], "en": ["one"]}), tmp_path / "pairs.parquet")
    # without the ending, only the content says that it is Parquet
    (tmp_path / "pairs.table").write_bytes((tmp_path / "pairs.parquet").read_bytes())

    def words(train: str, validation: str) -> list[str]:
        places = {"train": train, "validation": validation}
        return [f"data.{split}={tmp_path / name}" for split, name in places.items()]

    def planned(*places: str) -> None:
        plan(
            CommandLine(
                ["model=transformer_nano", "data=pairs", "data.source=de", "data.target=en", *words(*places)], []
            )
        )

    with pytest.raises(Mistake) as caught:
        planned("pairs.tsv", "*.tsv")
    train = f"data.train={tmp_path}/pairs.tsv"
    assert str(caught.value) == "\n".join(
        f"{word}: nothing reads it with {train}; it is read with data.train=FILE.parquet"
        for word in ("data.source=de", "data.target=en")
    )
    for places in (("pairs.tsv", "pairs.parquet"), ("pairs.table", "pairs.tsv"), ("absent.tsv", "pairs.tsv")):
        planned(*places)


def test_every_pair_is_in_one_split_once(made):
    pairs = pairs_of(400)
    dataset, _ = made(pairs)
    train, validation, test = (sides(dataset, split) for split in ("train", "validation", "test"))
    assert sorted(train + validation + test) == sorted(pairs)
    assert 5 < len(validation) < 40 and 5 < len(test) < 40
    assert train != sorted(train, key=pairs.index), "they are shuffled"
    again, _ = made(pairs)
    assert (again.train.tokens == dataset.train.tokens).all()


def test_chunks_do_not_change_the_rows(made, monkeypatch):
    pairs = pairs_of(100)
    whole, _ = made(pairs)
    monkeypatch.setattr(packing_pairs, "CHUNK", 7)
    again, _ = made(pairs, cache="in small chunks")
    assert again.identity == whole.identity and (again.unigram == whole.unigram).all()
    for split in ("train", "validation", "test"):
        assert (getattr(again, split).tokens == getattr(whole, split).tokens).all()


def test_pairs_of_the_same_source_are_in_the_same_split(made):
    pairs = [(f"source {number % 100}", f"the target {number}") for number in range(400)]
    dataset, _ = made(pairs)
    sources = [{source for source, _ in sides(dataset, split)} for split in ("train", "validation", "test")]
    assert all(sources) and sum(map(len, sources)) == 100


@pytest.mark.parametrize(
    ("known", "said"), [(0, ""), (3, "3 of the 50 source sentences of validation are also in train")]
)
def test_a_run_says_how_many_sources_for_evaluation_it_trains_on(made, tmp_path, known, said):
    pairs = pairs_of(100)
    other = [(source, f"another {target}") for source, target in pairs[:known]] + [
        (f"new {source}", target) for source, target in pairs[known:50]
    ]
    (tmp_path / "validation.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in other))
    dataset, _ = made(pairs, validation=str(tmp_path / "validation.tsv"))
    assert dataset.remark == said
    assert dataset.identity["splits"]["validation"].get("in_train", 0) == known


def test_counts_are_of_the_targets(made):
    pairs = pairs_of(200)
    dataset, _ = made(pairs)
    targets = [target for _, target in sides(dataset, "train")]
    ids = dataset.tokenizer.encode(targets)
    assert dataset.train.token_count == sum(len(each) + 1 for each in ids)
    assert dataset.train.text_bytes == sum(len(text.encode()) for text in targets)
    assert dataset.unigram.sum() == sum(map(len, ids)) and dataset.unigram[dataset.tokenizer.sep_id] == 0


def test_long_pairs_are_left_out_and_counted(made):
    long = [("short", "long " * 40), ("long " * 40, "short")]
    dataset, messages = made(pairs_of(200) + long, length=24)
    assert len(sides(dataset, "train")) + len(sides(dataset, "validation")) + len(sides(dataset, "test")) == 200
    assert sum(fact["left_out"] for fact in dataset.identity["splits"].values()) == 2
    assert any("of more than 24 tokens with [SEP]: they are left out" in message for message in messages)


@pytest.mark.parametrize("name", ["train.parquet", "train.PARQUET", "train"])
def test_parquet_and_lines_are_alike(made, name):
    pairs = pairs_of(100)
    lines, _ = made(pairs)
    sources, targets = zip(*pairs, strict=True)
    table = {"de": [*sources, None, "no target"], "en": [*targets, "no source", None]}
    parquet, _ = made(table, name=name, source="de", target="en")
    assert (parquet.train.tokens == lines.train.tokens).all()


def test_lines_are_read_as_they_are_meant(made):
    text = "".join(f"{source}\t{target}\tremark\r\n" for source, target in pairs_of(100))
    dataset, _ = made("\ufeff" + text + "\n\t\nlonely\t \n")
    assert ("source 1", "the target 7") in [
        each for split in ("train", "validation", "test") for each in sides(dataset, split)
    ]
    assert joined(" a\tb ", "c\n d") == "a b\tc d" and joined("a", " ") is None


@pytest.mark.parametrize(
    ("content", "changes", "said"),
    [
        ("a\tb\nno tab here\n", {}, "line 2 has no tab"),
        (pairs_of(100), {"length": 2}, r"of them of more than 2 tokens with \[SEP\]: use a larger length"),
        ({"source": ["a"], "target": ["b"]}, {"name": "x.parquet", "target": "targt"}, "data.target=targt.*target"),
        ({"source": ["a"], "target": [1]}, {"name": "x.parquet"}, "data.target=target: .* has int64 there, not text"),
    ],
)
def test_mistakes_are_named(made, content, changes, said):
    with pytest.raises(DataError, match=said):
        made(content, **changes)


@pytest.fixture
def set_of(tmp_path):
    """set_of(rows, column) -> HubPairs of English and German, of a folder as the hub's sets are."""
    import datasets

    def make(rows, column):
        folder = tmp_path / "set"
        folder.mkdir()
        datasets.Dataset.from_list(rows).to_parquet(folder / "train.parquet")
        keys = {"path": str(folder), "name": None, "revision": "main", "column": column, "source": "en"}
        keys |= {"target": "de", "train": "train", "validation": None, "test": None, "streaming": False}
        return HubPairs(kind="hub_pairs", max_documents=30, **keys)

    return make


LANGUAGES = [{"de": f"ein {number}", "en": f"a {number}"} for number in range(40)]


@pytest.mark.parametrize("column", ["translation", None])
def test_pairs_of_the_hub(set_of, tmp_path, column):
    """A column with a text for each language, as in WMT's sets, or a column a language, as in Multi30k."""
    data = set_of([{column: each} for each in LANGUAGES] if column else LANGUAGES, column)
    dataset = obtain(data, TOKENIZER, 32, Cache(tmp_path / "cache", print), lambda *_: None)
    found = sides(dataset, "train")
    assert 20 < len(found) < 31 and all(source.replace("a", "ein") == target for source, target in found)
    wrong = data.model_copy(update={"target": "fr"})
    said = r"data\.target=fr: data\.column=translation.*there is de, en" if column else r"data\.target=fr: .*no such"
    with pytest.raises(DataError, match=said):
        documents_of(wrong, tmp_path)


def test_numbers_of_the_hub_are_no_pairs(set_of, tmp_path):
    with pytest.raises(DataError, match=r"data\.source: .* has int there, not text"):
        documents_of(set_of([{"en": 1, "de": "eins"}], None), tmp_path)


def documents_of(data, tmp_path):
    cache = Cache(tmp_path / "cache", lambda message: None)
    return [text for _, text in open_corpus(data, cache).documents()]
