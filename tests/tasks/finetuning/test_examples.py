"""What is wrong with the data is said within seconds, with its place."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import TypeAdapter, ValidationError

from experiments.config.compose import compose_raw
from experiments.config.groups import options
from experiments.config.primary import FINETUNING
from experiments.data.cache import Cache
from experiments.data.errors import DataError
from experiments.data.readers import hub
from experiments.settings.finetuning import Benchmark
from experiments.tasks.finetuning.examples import read
from experiments.tasks.finetuning.rows import check_splits, identity, places

GOOD = {"premise": "a man eats", "hypothesis": "he eats", "label": 0}
ASKED = {"id": "1", "question": "who", "context": "a man eats", "answers": {"text": ["man"], "answer_start": [2]}}


def task(name, train, **changes):
    tree = compose_raw([f"task={name}", "length=32"], FINETUNING)["task"]
    from omegaconf import OmegaConf

    tree = OmegaConf.to_container(OmegaConf.create({"length": 32, "task": tree}), resolve=True)["task"]
    return TypeAdapter(Benchmark).validate_python(tree | {"train": str(train)} | changes)


def write(path, rows):
    path.write_text(json.dumps(rows))
    return path


def refused(tmp_path, name, rows, **changes) -> str:
    path = write(tmp_path / "rows.json", rows)
    with pytest.raises(DataError) as caught:
        list(read(task(name, path, **changes), "train", Cache(tmp_path, None)))
    return str(caught.value)


def test_the_place_on_the_hub_is_read_only_if_a_split_is_not_a_file():
    idle = task("mnli", "train.jsonl", validation={"matched": "one.json", "mismatched": "two.parquet"}).idle()
    assert [(each.key, each.reason) for each in idle] == [
        (key, "train=train.jsonl") for key in ("path", "subset", "revision")
    ]
    for train, other in (("train", "two.parquet"), ("train.jsonl", "validation")):
        assert not [*task("mnli", train, validation={"matched": "one.json", "mismatched": other}).idle()]


@pytest.mark.parametrize("name", options("task"))
def test_every_task_composes(name):
    found = task(name, "train")
    assert found.name == name and set(places(found)) >= {"train"}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"premise": "x", "label": 0}, ["task.texts=hypothesis", "no such column", "label, premise"]),
        (GOOD | {"label": 3}, ["row 1", "unknown label 3", "0 entailment, 1 neutral, 2 contradiction"]),
        (GOOD | {"label": -1}, ["unknown label -1", "hidden"]),
        (GOOD | {"label": "entailmnt"}, ["unknown label 'entailmnt'", "(did you mean entailment?)"]),
        (GOOD | {"label": True}, ["unknown label True", "a number must be an integer"]),
        (GOOD | {"label": 1.0}, ["unknown label 1.0", "a number must be an integer"]),
        (GOOD | {"label": "1.0"}, ["unknown label '1.0'", "a number must be an integer"]),
        (GOOD | {"label": "7"}, ["unknown label '7'", "2 contradiction"]),
        (GOOD | {"label": "-1"}, ["unknown label '-1'", "hidden"]),
        (GOOD | {"label": None}, ["unknown label None"]),
        (GOOD | {"premise": None}, ["column premise is None, not text"]),
        (GOOD | {"premise": "half of \ud83d"}, ["column premise", "no text", "'\\ud83d'"]),
        (["x"], ["row 1", "an object with the columns"]),
    ],
)
def test_wrong_labelled_rows(tmp_path, row, said):
    text = refused(tmp_path, "mnli", [GOOD, row])
    assert all(part in text for part in said), text


def test_a_label_whose_name_is_a_number(tmp_path):
    def labels(names, *values):
        path = write(tmp_path / "rows.json", [GOOD | {"label": value} for value in values])
        return [example.label for example in read(task("mnli", path, labels=names), "train", Cache(tmp_path, None))]

    hundreds = ["100", "101", "108"]
    assert labels(hundreds, 108, "101", 2) == [2, 1, 2]
    assert labels(["0", "1", "2"], 1, "2", 0) == [1, 2, 0]
    assert labels(["1", "2", "3"], "1", 0, 3) == [0, 0, 2]
    assert labels(["no", "yes", "maybe"], "1", "no", 2) == [1, 0, 2]
    with pytest.raises(DataError, match=r"row 0: unknown label '2'.*; where names are numbers, text must be a name"):
        labels(hundreds, "2")
    with pytest.raises(DataError, match=r"row 0: 1 in column label may be .* number 0, or .* this number, '2'; write"):
        labels(["1", "2", "3"], 1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"answers": {"text": ["man"], "answer_start": [3]}}, ["'man' is not at answer_start=3", "it stands at 2"]),
        ({"answers": {"text": ["dog"], "answer_start": [2]}}, ["'dog'", "nowhere in the context"]),
        ({"answers": {"text": [], "answer_start": []}}, ["at least one answer"]),
        ({"answers": {"text": ["man"], "answer_start": 2}}, ["(1)", "at least one answer"]),
        ({"answers": {"text": "man", "answer_start": [2]}}, ["(1)", "at least one answer"]),
        ({"answers": {"text": ["man"], "answer_start": ["2"]}}, ["(1)", "at least one answer"]),
        ({"answers": {"text": ["man"], "answer_start": [-8]}}, ["(1)", "at least one answer"]),
        ({"answers": "man"}, ["{text: [...], answer_start: [...]}"]),
        ({"context": " "}, ["column context", "not text"]),
    ],
)
def test_wrong_questions(tmp_path, changes, said):
    text = refused(tmp_path, "squad", [ASKED, ASKED | changes])
    assert all(part in text for part in [*said, "row 1"]), text


def test_two_questions_of_one_id(tmp_path):
    asked = task("squad", write(tmp_path / "rows.json", [ASKED, ASKED | {"id": "2"}, ASKED]))
    asked = asked.model_copy(update={"validation": asked.train})
    assert len(list(read(asked, "train", Cache(tmp_path, None)))) == 3
    with pytest.raises(DataError, match=r"task\.validation=.*rows.json, row 2: .*rows.json, row 0 has the same id '1'"):
        list(read(asked, "validation", Cache(tmp_path, None)))


def test_questions_have_one_validation_split():
    several = {"matched": "a.json", "mismatched": "b.json"}
    assert task("mnli", "train", validation=several).held_out == several
    with pytest.raises(ValidationError, match=r"span\.validation"):
        task("squad", "train", validation=several)


def test_numbers(tmp_path):
    row = {"sentence1": "a", "sentence2": "b", "label": 2.5}
    # a float32 holds no 1e39
    for wrong in ("much", "2,5", "nan", "", 1e39, 10**400, None):
        assert f"{wrong!r}, not a number" in refused(tmp_path, "stsb", [row, row | {"label": wrong}])
    path = write(tmp_path / "rows.json", [row, row | {"label": "-2.5e0"}])
    assert [found.label for found in read(task("stsb", path), "train", Cache(tmp_path, None))] == [2.5, -2.5]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("rows.json", b"", "empty"),
        ("rows.json", b"[]", "no rows"),
        ("rows.jsonl", b"{not json}", "must be a JSON list of objects, or have an object in each line"),
        ("rows.jsonl", b"[" * 100_000, "must be a JSON list of objects"),
        ("rows.jsonl", b'{"label": ' + b"1" * 5000 + b"}", "must be a JSON list of objects"),
        ("rows.json", b"[\xff]", "is not UTF-8: byte 0xff at offset 1"),
        ("rows.jsonl", gzip.compress(b"{}", mtime=0), "is not UTF-8: .* unpack it: gzip -dk"),
        ("rows.jsonl", b'{"premise": "x", "label": 0, "label": 1}', "an object has 'label' twice"),
        ("rows.parquet", b"PAR0", "not a Parquet file"),
    ],
)
def test_wrong_files(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=said):
        list(read(task("mnli", tmp_path / name), "train", Cache(tmp_path, None)))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"premise": "x",}', r"rows.jsonl, line 3: .* \(character 1[67]\).*; the file must be a JSON list of"),
        ('{"premise": "x"', "rows.jsonl, line 3: Expecting ',' delimiter"),
        ('{"premise": "x", "hypothesi": "y", "label": 0}', "rows.jsonl, line 3 .*did you mean hypothesi"),
        (json.dumps(GOOD | {"premise": 3}), "task.train=.*rows.jsonl, line 3: column premise is 3, not text"),
        (json.dumps(GOOD | {"label": 9}), "task.train=.*rows.jsonl, line 3: unknown label 9"),
        ("7", "rows.jsonl, line 3: an object with the columns premise, hypothesis, label is needed"),
    ],
)
def test_a_mistake_in_a_line_names_the_file_and_the_line(tmp_path, line, said, end):
    good = json.dumps(GOOD)
    # a blank line is a line too, and the first file of a pattern has lines of its own
    (tmp_path / "first.jsonl").write_text(good)
    (tmp_path / "rows.jsonl").write_bytes(end.join([good, "", line, good]).encode())
    with pytest.raises(DataError, match=said):
        list(read(task("mnli", tmp_path / "*.jsonl"), "train", Cache(tmp_path, None)))


def test_a_mistake_in_a_list_names_its_line(tmp_path):
    (tmp_path / "rows.json").write_text("[\n" + json.dumps(GOOD) + ",\n{'premise': 1}\n]")
    with pytest.raises(DataError, match=r"rows\.json, line 3: Expecting property name .*\(character 2\)"):
        list(read(task("mnli", tmp_path / "rows.json"), "train", Cache(tmp_path, None)))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match=r"task\.train=.*no such file"):
        identity(task("mnli", tmp_path / "absent.parquet"), Cache(tmp_path, None))


@pytest.mark.parametrize("how", ["same", "link", "copy"])
def test_examples_of_which_another_split_has_a_copy_are_refused(tmp_path, how):
    train, other = write(tmp_path / "rows.json", [GOOD]), tmp_path / "other.json"
    if how == "link":
        other.symlink_to(train)
    elif how == "copy":
        other.write_bytes(train.read_bytes())
    validation = str(train if how == "same" else other)
    said = {"same": "both contain .*rows.json", "link": "both contain .*other.json", "copy": "have the same content"}
    for keys, name in ((validation, "task.validation"), ({"matched": validation}, "task.validation.matched")):
        with pytest.raises(DataError, match=rf"task\.train and {name}.* {said[how]}; a text for evaluation must not"):
            check_splits(task("mnli", train, validation=keys), Cache(tmp_path, None))


@pytest.mark.parametrize(
    ("name", "place", "endings"),
    [
        ("mnli", "rows.txt", r"\.parquet or \.json or \.jsonl or \.csv or \.tsv"),
        ("mnli", "folder/rows", r"\.parquet or .*"),
        ("mnli", "./rows.JSON", r"\.parquet or .*"),
        # an answer is no text
        ("squad", "rows.csv", r"\.parquet or \.json or \.jsonl"),
    ],
)
def test_a_file_of_another_kind_is_no_split_of_the_hub(tmp_path, name, place, endings):
    with pytest.raises(DataError, match=rf"task\.train={place}: .* must end in {endings} for task={name}$"):
        check_splits(task(name, place, validation="validation"), Cache(tmp_path, None))


def test_parquet_json_lines_csv_and_tsv_hold_the_same_examples(tmp_path):
    rows = [GOOD, GOOD | {"label": 2, "idx": 7}]
    write(tmp_path / "rows.json", rows)
    (tmp_path / "rows.jsonl").write_text(lines := "\n".join(map(json.dumps, rows)) + "\n")
    # with a byte order mark
    (tmp_path / "marked.jsonl").write_text("\ufeff" + lines)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    (tmp_path / "rows.csv").write_text("premise,hypothesis,label\na man eats,he eats,0\na man eats,he eats,2\n")
    (tmp_path / "names.csv").write_text(
        "\ufefflabel,hypothesis,premise\r\nentailment,he eats,a man eats\r\n\r\ncontradiction,he eats,a man eats"
    )
    (tmp_path / "rows.tsv").write_text("idx\tidx\tpremise\thypothesis\tlabel\n" + "1\t2\ta man eats\the eats\t0\n")
    with (tmp_path / "rows.tsv").open("a") as file:
        file.write("\t\ta man eats\the eats\tcontradiction\n")
    names = ("rows.json", "rows.jsonl", "marked.jsonl", "rows.parquet", "rows.csv", "names.csv", "rows.tsv")
    found = [list(read(task("mnli", tmp_path / name), "train", Cache(tmp_path, None))) for name in names]
    assert found == [found[0]] * 7 and [each.label for each in found[0]] == [0, 2]


def test_a_mistake_in_a_csv_file_names_the_file_and_the_line(tmp_path):
    (tmp_path / "rows.csv").write_text('sentence,label\n"two\nlines",1\nx,9\n')
    with pytest.raises(DataError, match=r"^task\.train=.*rows\.csv, line 4: unknown label '9' in column label; there"):
        list(read(task("sst2", tmp_path / "rows.csv"), "train", Cache(tmp_path, None)))
    (tmp_path / "rows.csv").write_text("text,label\nx,1\n")
    with pytest.raises(DataError, match=r"^task\.texts=sentence: .*rows\.csv, line 1, which must name"):
        list(read(task("sst2", tmp_path / "rows.csv"), "train", Cache(tmp_path, None)))
    (tmp_path / "rows.csv").write_text("sentence,label\n")
    with pytest.raises(DataError, match=r"^task\.train=.*rows\.csv has no rows$"):
        list(read(task("sst2", tmp_path / "rows.csv"), "train", Cache(tmp_path, None)))


@pytest.mark.parametrize(("split", "count"), [("train", 1), ("validation", 2)])
def test_no_more_examples_are_read_than_the_settings_allow(tmp_path, split, count):
    path = write(tmp_path / "rows.json", [GOOD] * 3)
    found = task("mnli", path, validation=str(path), train_examples=1, validation_examples=2)
    assert len(list(read(found, split, Cache(tmp_path, None)))) == count


def test_a_folder_of_the_hub_s_kind_is_read_by_its_splits(tmp_path):
    folder = tmp_path / "glue"
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist([GOOD] * 3), folder / "train.parquet")
    pq.write_table(pa.Table.from_pylist([GOOD]), folder / "validation.parquet")
    found = task("mnli", "train[:2]", path=str(folder), subset=None, validation="validation")
    assert len(list(read(found, "train", Cache(tmp_path / "cache", lambda text: None)))) == 2
    told = identity(found, Cache(tmp_path / "cache", lambda text: None))
    assert "sha256" in told["splits"]["train"]
    moved = found.model_copy(update={"path": str(folder.rename(tmp_path / "elsewhere"))})
    assert identity(moved, Cache(tmp_path / "cache", lambda text: None)) == told


def test_without_the_hub_the_settings_of_the_task_are_named(tmp_path, monkeypatch):
    def unreachable(data, revision):
        raise hub.UnreachableError("no answer")

    monkeypatch.setattr(hub, "_ask", unreachable)
    asked = task("mnli", "train", path="owner/not_downloaded", validation="validation")
    with pytest.raises(DataError) as caught:
        list(read(asked, "train", Cache(tmp_path, None)))
    assert str(caught.value).startswith("task.path=owner/not_downloaded task.subset=mnli: the Hugging Face hub")
    assert str(caught.value).endswith("task.train=FILE and task.validation=FILE read examples of your own")
