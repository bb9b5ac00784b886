"""Grammatical relations on sentences of two and three words."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow
import pytest
import torch
from pyarrow import parquet

from experiments.commands import heads as command
from experiments.failures.failure import Mistake
from experiments.heads.measures import syntax
from experiments.heads.measures.syntax import Tree, most_attended_word, read_treebank, relation_accuracies, word_weights

CONLLU = """\
# text = Dogs don't bark.
1\tDogs\tdog\tNOUN\t_\t_\t4\tnsubj:outer\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\t_\t_\t4\taux\t_\tSpaceAfter=No
3\tn't\tnot\tPART\t_\t_\t4\tadvmod\t_\t_
4\tbark\tbark\tVERB\t_\t_\t0\troot\t_\tSpaceAfter=No
5\t.\t.\tPUNCT\t_\t_\t4\tpunct\t_\t_

"""
DOGS = Tree(
    ["Dogs", "do", "n't", "bark", "."],
    [3, 3, 3, -1, 3],
    ["nsubj", "aux", "advmod", "root", "punct"],
    [True, False, True, False, True],
)


def test_a_treebank_is_read_from_both_kinds_of_file(tmp_path):
    (tmp_path / "dogs.conllu").write_text(CONLLU, encoding="utf-8")
    assert list(read_treebank(tmp_path / "dogs.conllu")) == [DOGS]
    row = {
        "tokens": DOGS.words, "head": ["4", "4", "4", "0", "4"],
        "deprel": ["nsubj:outer", "aux", "advmod", "root", "punct"],
        "misc": ["_", "SpaceAfter=No", "_", "SpaceAfter=No", "_"],
    }  # fmt: skip
    parquet.write_table(
        pyarrow.Table.from_pylist([row, row | {"head": ["4", "None", "4", "0", "4"]}]), tmp_path / "dogs.parquet"
    )
    assert list(read_treebank(tmp_path / "dogs.parquet")) == [DOGS]


def test_a_file_that_is_no_treebank_is_named(tmp_path):
    (tmp_path / "notes.txt").write_text("1\thello", encoding="utf-8")
    (tmp_path / "words.txt").write_text("The dogs\nbark.", encoding="utf-8")
    for name in ("notes.txt", "words.txt", "nothing.conllu"):
        with pytest.raises(Mistake, match=f"--treebank .*{name}"):
            list(read_treebank(tmp_path / name))
    for wrong in (CONLLU.replace("\t4\taux", "\t_\taux"), CONLLU.replace("AUX\t", "AUX ")):
        (tmp_path / "dogs.conllu").write_text(wrong, encoding="utf-8")
        with pytest.raises(Mistake, match=r"dogs\.conllu: must be CoNLL-U, .* \(line 4: a word has 10 columns"):
            list(read_treebank(tmp_path / "dogs.conllu"))
    (tmp_path / "dogs.conllu").write_text(CONLLU.replace("\t4\taux", "\t6\taux"), encoding="utf-8")
    with pytest.raises(Mistake, match=r"dogs\.conllu: must be CoNLL-U, .* \(a head is word 6 of the 5 words "):
        list(read_treebank(tmp_path / "dogs.conllu"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"deprel": None}, "a row has no list of values in one of the columns tokens, head, deprel, misc"),
        ({"misc": ["_", None]}, "a row has no list of values"),
        ({"tokens": ["The"]}, "a row has lists of different lengths in the columns tokens, head"),
    ],
)
def test_a_row_that_is_no_sentence_is_named(tmp_path, change, said):
    row: dict[str, list[str] | None] = {"tokens": ["The", "dogs"], "head": ["2", "0"], "deprel": ["det", "root"]}
    row |= {"misc": ["_", "_"]} | change
    parquet.write_table(pyarrow.Table.from_pylist([row]), tmp_path / "dogs.parquet")
    with pytest.raises(Mistake, match=rf"dogs\.parquet: must be CoNLL-U, .* \({said}"):
        read_treebank(tmp_path / "dogs.parquet")


def test_a_column_that_is_missing_is_named(tmp_path):
    parquet.write_table(pyarrow.Table.from_pylist([{"tokens": ["The"]}]), tmp_path / "dogs.parquet")
    with pytest.raises(Mistake, match=r"\(it has no column head\)"):
        read_treebank(tmp_path / "dogs.parquet")


def test_sentences_are_kept_apart(tmp_path):
    file = tmp_path / "dogs.conllu"
    file.write_text(CONLLU.rstrip("\n") + "\n \t\n" + CONLLU, encoding="utf-8")
    assert list(read_treebank(file)) == [DOGS, DOGS]
    file.write_text(CONLLU.rstrip("\n") + "\n" + CONLLU, encoding="utf-8")
    with pytest.raises(
        Mistake, match=r"dogs\.conllu: must be CoNLL-U, .* \(line 9: the number of the word is 1, not 6"
    ):
        list(read_treebank(file))


def test_weights_of_words():
    # [CLS], a word of two tokens, a word of one
    word = torch.tensor([-1, 0, 0, 1])
    weights = torch.tensor([[[1.0, 0, 0, 0], [0.1, 0.2, 0.3, 0.4], [0.3, 0.1, 0.0, 0.6], [0.4, 0.3, 0.2, 0.1]]])
    torch.testing.assert_close(word_weights(weights, word), torch.tensor([[[0.3, 0.5], [0.5, 0.1]]]))
    assert most_attended_word(word_weights(weights, word)).tolist() == [[1, 0]]

    # a word that can attend to no other word attends to none most
    assert most_attended_word(torch.eye(4)[None].tril()).tolist() == [[-1] * 4]
    assert most_attended_word(torch.full((1, 3, 3), 0.5).tril()).tolist() == [[-1, 0, 0]]


def test_a_head_that_looks_at_the_previous_word_finds_what_stands_there(known, trained_run_of, monkeypatch):
    """In `a b` and `a b c` a word's head is the word before it: the first head is always right."""
    monkeypatch.setattr(syntax, "MIN_OCCURRENCES", 2)
    tokenizer = SimpleNamespace(cls_id=0, sep_id=1, encode=lambda texts: [np.array([len(text)]) for text in texts])
    run = SimpleNamespace(model=known, tokenizer=tokenizer, settings=SimpleNamespace(length=8))
    trees = [Tree(["a", "b"], [-1, 0], ["root", "obj"], [True, True]),
             Tree(["a", "b", "c"], [-1, 0, 1], ["root", "obj", "obj"], [True, False, True]),
             Tree(7 * ["too long"], [-1, 0, 0, 0, 0, 0, 0], 7 * ["obj"], 7 * [True])]  # fmt: skip
    rows, used = relation_accuracies(run, trees)
    assert used == 2 and len(rows) == 8 and {row["count"] for row in rows} == {3}
    first = [row for row in rows if row["head"] == 1]
    to, away = (row["accuracy"] for row in first)
    # from the head to the word it is right in `a b`, where there is no other word, and wrong after another word
    assert to == 1 and 1 / 3 <= away <= 2 / 3
    # three words are few
    assert all(row["high"] - row["low"] > 0.4 for row in rows)
    assert all(0 <= row["low"] <= row["accuracy"] <= row["high"] <= 1 for row in rows)
    assert [(row["baseline"], row["offset"]) for row in first] == [(1.0, -1), (1.0, 1)]


def test_a_treebank_is_refused_where_no_run_has_a_softmax(bert_of, trained_run_of):
    without, plain = (trained_run_of(bert_of(variant)) for variant in ("sigmoid", "multi_head"))
    with pytest.raises(Mistake, match="--treebank: needs a softmax; the attention of known and known has none"):
        command._check_softmax([without, without])
    command._check_softmax([without, plain])
