"""The bytes of windows must change only with the FORMAT of features, which names them in caches and digests."""

from __future__ import annotations

import hashlib
import json

import pytest
from pydantic import TypeAdapter

from experiments.data.cache import Cache
from experiments.data.errors import DataError
from experiments.data.tokenizer import SPECIAL, from_vocabulary
from experiments.settings.conf_files import CONF
from experiments.settings.finetuning import Benchmark
from experiments.tasks.finetuning import features
from experiments.tasks.finetuning.kind import kind_of

yaml = pytest.importorskip("yaml")
WORDS = ["a", "man", "eats", "who"]
QUESTIONS = [
    {
        "id": "1",
        "question": "who eats",
        "context": "a man eats " * 6,
        "answers": {"text": ["man"], "answer_start": [2]},
    },
    {"id": "2", "question": "who", "context": "who eats a man", "answers": {"text": ["a man"], "answer_start": [9]}},
]
EXAMPLES = {
    "squad": QUESTIONS,
    "sst2": [{"sentence": "a man eats", "label": 1}, {"sentence": "who eats a man who eats a man", "label": 0}],
    "stsb": [{"sentence1": "a man", "sentence2": "a man eats", "label": 3.5}],
}
# by FORMAT, the SHA-256 of the windows
MADE = {
    1: {
        "squad": "36c5257a4c8d62746954eafcf2fd56eb6e7da1bd506950f3accc82795406b53c",
        "sst2": "82c70df79d1b080a2a83cd0a3e8ff8ae3de7a84a4868d2c5c3eda1a94b03cd96",
        "stsb": "80b0043a71980b6c0a86f0582a244e12af85ace4f1f39e2090adf7780dac56ed",
    }
}


def obtain(folder, name, report, **changes):
    """The task, and its windows of the examples, which are written into the folder."""
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n", encoding="utf-8")
    (folder / "rows.json").write_text(json.dumps(EXAMPLES[name]), encoding="utf-8")
    tree = yaml.safe_load((CONF / "task" / f"{name}.yaml").read_text(encoding="utf-8"))["task"]
    tree |= {"train": str(folder / "rows.json"), "validation": str(folder / "rows.json")}
    tree |= {"document_stride": 4, "max_question": 2} if name == "squad" else {}
    tree |= changes
    task = TypeAdapter(Benchmark).validate_python(tree)
    tokenizer = from_vocabulary(folder / "vocab.txt", lowercase=True)
    return task, features.obtain(task, tokenizer, 12, Cache(folder / "cache", lambda message: None), report)


@pytest.mark.parametrize("split", [None, "train"], ids=["files", "a folder of the hub's kind"])
def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, split):
    data_set = tmp_path / "set"
    data_set.mkdir()
    (data_set / "train.json").write_text(json.dumps(EXAMPLES["sst2"]), encoding="utf-8")

    def change(*_):
        (tmp_path / "rows.json").write_text(json.dumps(EXAMPLES["sst2"][:1]), encoding="utf-8")

    with pytest.raises(DataError, match="task=sst2: a file changed while it was read"):
        obtain(tmp_path, "sst2", change, **({"train": split, "path": str(data_set), "subset": None} if split else {}))
    assert not [path for path in (tmp_path / "cache" / "examples").iterdir() if path.is_dir()]


@pytest.mark.parametrize("name", EXAMPLES)
def test_other_windows_are_another_format(tmp_path, name):
    task, made = obtain(tmp_path, name, lambda *_: None)
    parts = [made.train.tobytes(), made.validation.tobytes()]
    parts += [(made.folder / name).read_bytes() for name in kind_of(task).own_files if "." not in name]
    assert hashlib.sha256(b"".join(parts)).hexdigest() == MADE[features.FORMAT][name], (
        "the same examples make other windows: raise FORMAT in experiments/tasks/finetuning/features.py, and store "
        "this digest"
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_is_said_how_many_examples_for_evaluation_are_trained_on(tmp_path, name):
    known, *others = EXAMPLES[name]
    (tmp_path / "train.json").write_text(json.dumps([known]), encoding="utf-8")
    _, whole = obtain(tmp_path, name, lambda *_: None, train=str(tmp_path / "train.json"))
    said = f"1 of the {1 + len(others)} examples of validation is also in train"
    assert whole.remark.partition(";")[0] == said and whole.identity["in_train"] == {"validation": 1}
    # read from the cache, it says the same
    assert obtain(tmp_path, name, lambda *_: None, train=str(tmp_path / "train.json"))[1].remark == whole.remark
    (tmp_path / "train.json").write_text(json.dumps(others or [known | {"sentence1": "who"}]), encoding="utf-8")
    _, fewer = obtain(tmp_path, name, lambda *_: None, train=str(tmp_path / "train.json"), validation_examples=1)
    assert "also in train" not in fewer.remark and "in_train" not in fewer.identity


def test_an_example_is_the_same_with_another_answer_and_labels_that_train_lacks_are_named(tmp_path):
    example = EXAMPLES["sst2"][0]
    (tmp_path / "train.json").write_text(json.dumps([example | {"label": 0}]), encoding="utf-8")
    train = str(tmp_path / "train.json")
    _, found = obtain(tmp_path, "sst2", lambda *_: None, train=train, validation_examples=1)
    said = "train has no example of positive, which validation has"
    assert found.remark == f"1 of the 1 examples of validation is also in train; {said}"


@pytest.mark.parametrize("name", ["sst2", "stsb"])
def test_it_is_said_if_all_examples_for_evaluation_have_the_same_label(tmp_path, name):
    example = dict.fromkeys(EXAMPLES[name][0], "a man")
    for split, labels in {"train": [0, 1], "dev": [1, 1]}.items():
        rows = [{key: f"{text} {split}" for key, text in example.items()} | {"label": label} for label in labels]
        (tmp_path / f"{split}.json").write_text(json.dumps(rows), encoding="utf-8")
    places = [str(tmp_path / f"{split}.json") for split in ("train", "dev")]
    _, found = obtain(tmp_path, name, lambda *_: None, train=places[0], validation=places[1])
    assert found.remark.startswith("all examples of validation have the same label")
    _, found = obtain(tmp_path, name, lambda *_: None, train=places[1], validation=places[0])
    assert "same label" not in found.remark
