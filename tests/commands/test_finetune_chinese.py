"""The Chinese tasks are learned from rows as CLUE and CMRC 2018 have them, with WordPiece over characters."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.commands.finetune import finetune
from experiments.record.folder import RunFolder
from tests.fixtures.finetuning import FINE_TUNING, pretrain, write_lines

CHARACTERS = "的一是不了人我在有他这为之大来以个中上们到说国和地也子时道出而要于就下得可你年生"
SUBJECTS = {"102": "娱", "103": "体", "108": "教"}
MARK = "京"


def some(source: random.Random, count: int) -> list[str]:
    return source.choices(CHARACTERS, k=count)


def headlines(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Rows of TNEWS as CLUE's file has them; the first character says which subject it is."""
    source = random.Random(seed)
    for _ in range(count):
        label = source.choice(list(SUBJECTS))
        yield {"label": label, "label_desc": "news", "sentence": "".join([SUBJECTS[label], *some(source, 9)])}


def reviews(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Rows of ChnSentiCorp; the last but one character says what the reviewer thinks."""
    source = random.Random(seed)
    for _ in range(count):
        label = source.randrange(2)
        yield {"text": "".join([*some(source, 9), "差好"[label], "。"]), "label": label}


def questions(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Rows of CMRC 2018; the answer is the character after the mark, in a context that takes two windows."""
    source = random.Random(seed)
    for number in range(count):
        characters, place = some(source, 32), source.randrange(31)
        characters[place] = MARK
        answers = {"text": [characters[place + 1]], "answer_start": [place + 1]}
        yield {"id": f"DEV_{number}", "question": "何", "context": "".join(characters), "answers": answers}


@pytest.fixture(scope="module")
def chinese(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run under `runs` that was pretrained on Chinese text, and a cache."""
    home = tmp_path_factory.mktemp("chinese")
    source = random.Random(0)
    every = [*CHARACTERS, *SUBJECTS.values(), *"差好。何", MARK]
    text = "\n\n".join("".join(source.choices(every, k=80)) for _ in range(150))
    pretrain(home, text, "tokenizer=wordpiece")
    return home


@pytest.mark.parametrize(
    ("task", "rows", "score"),
    [("tnews", headlines, "accuracy"), ("chnsenticorp", reviews, "accuracy"), ("cmrc2018", questions, "exact_match")],
)
def test_a_chinese_task_is_learned(
    chinese: Path, tmp_path: Path, task: str, rows: Callable[[int, int], Iterator[dict[str, Any]]], score: str
) -> None:
    train = write_lines(tmp_path / "train.jsonl", rows(300, 1))
    validation = write_lines(tmp_path / "validation.jsonl", rows(40, 2))
    (pretrained,) = (path for path in (chinese / "runs").glob("multi_head-*") if path.is_dir())
    own = [f"runs={tmp_path / 'runs'}", f"cache={chinese / 'cache'}", "epochs=12", "batch_size=16", *FINE_TUNING]
    files = [f"task.train={train}", f"task.validation={validation}"]
    assert finetune([str(pretrained), f"task={task}", *files, *own]) == 0
    (folder,) = (path for path in (tmp_path / "runs").iterdir() if path.is_dir())
    result = RunFolder(folder).result()
    assert result.status == "done" and result.scores[score] > 80
    predictions = json.loads((folder / "predictions.json").read_text(encoding="utf-8"))
    assert len(predictions) == 40
    if task == "tnews":
        assert set(predictions) == set(SUBJECTS)
