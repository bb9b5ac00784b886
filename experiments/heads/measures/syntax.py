"""Heads that find grammatical relations (Clark et al. 2019, 1906.04341, section 4.2; Voita et al. 2019, 1905.09418)."""

# H heads, N tokens, W words

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from experiments.failures.failure import Mistake
from experiments.failures.wording import shortened
from experiments.heads.hooks import read_stages
from experiments.heads.measures.profile import MAX_OFFSET
from experiments.heads.trained_run import TrainedRun
from experiments.statistics.proportion import wilson_interval

MAX_SENTENCES = 500  # sentences from the start of the treebank that fit into the model's length
MIN_OCCURRENCES = 20  # minimum number of occurrences of a relation
SYNTACTIC_MARGIN = 0.1  # margin over the baseline that makes a head syntactic (Voita et al.)
DIRECTIONS = ("to its head", "from its head")


class Tree(NamedTuple):
    """A sentence of a treebank."""

    words: list[str]
    heads: list[int]  # the word's head, from 0; -1: the root
    relations: list[str]  # without subtypes
    spaces: list[bool]  # whether a space follows the word


def read_treebank(path: Path) -> list[Tree]:
    """The trees of a CoNLL-U file, or of Parquet with the columns of `universal_dependencies`. Raises Mistake."""
    if not path.is_file():
        raise Mistake(f"--treebank {path}: there is no such file", "a .conllu or .parquet of Universal Dependencies")
    try:
        trees = list(_parquet(path) if path.suffix == ".parquet" else _conllu(path))
        if not trees:
            raise ValueError("it has no sentence")
        return trees
    except (ValueError, KeyError) as error:
        raise Mistake(f"--treebank {path}: must be CoNLL-U, or Parquet with its columns ({error})") from error


def _conllu(path: Path) -> Iterator[Tree]:
    words: list[list[str]] = []
    for number, line in enumerate([*path.read_text(encoding="utf-8").split("\n"), ""], start=1):
        columns = line.split("\t")
        # 1-2 and 1.1 are contractions and omitted words
        if columns[0].isdigit():
            if len(columns) < 10 or not columns[6].isdigit():
                raise ValueError(f"line {number}: a word has 10 columns between tabs, and a number in the seventh")
            if int(columns[0]) != len(words) + 1:
                raise ValueError(f"line {number}: the number of the word is {columns[0]}, not {len(words) + 1}")
            words.append(columns)
        elif not line.strip() and words:
            yield _tree(*zip(*((word[1], word[6], word[7], word[9]) for word in words), strict=True))
            words = []


def _parquet(path: Path) -> Iterator[Tree]:
    from pyarrow import parquet

    names = ["tokens", "head", "deprel", "misc"]
    file = parquet.ParquetFile(path)
    if missing := [name for name in names if name not in file.schema_arrow.names]:
        raise ValueError(f"it has no column {missing[0]}")
    for part in file.iter_batches(64, columns=names):
        for row in part.to_pylist():
            columns = [row[name] for name in names]
            if not all(isinstance(column, list) and None not in column for column in columns):
                raise ValueError(f"a row has no list of values in one of the columns {', '.join(names)}")
            if len({len(column) for column in columns}) > 1:
                raise ValueError(f"a row has lists of different lengths in the columns {', '.join(names)}")
            # the columns have no head of a contraction's words
            if all(str(head).isdigit() for head in row["head"]):
                yield _tree(*columns)


def _tree(words: Sequence[str], heads: Sequence[str], relations: Sequence[str], notes: Sequence[str]) -> Tree:
    last = max(map(int, heads), default=0)
    if last > len(words):
        raise ValueError(f"a head is word {last} of the {len(words)} words {shortened(' '.join(words))!r}")
    return Tree(
        list(words),
        [int(head) - 1 for head in heads],
        [relation.partition(":")[0] for relation in relations],
        ["SpaceAfter=No" not in note for note in notes],
    )


def word_weights(weights_HNN: Tensor, word: Tensor) -> Tensor:
    """[H, W, W]: weights between words. The weights to a word's tokens are summed, and those from them averaged.

    `word` [N] is the word of each token; -1 for none.
    """
    one_hot = (word[:, None] == torch.arange(int(word.max()) + 1)).to(weights_HNN.dtype)
    return (one_hot / one_hot.sum(0)).T @ weights_HNN @ one_hot


def most_attended_word(weights_HWW: Tensor) -> Tensor:
    """int64 [H, W]: the other word with the largest weight; -1 if no other word has a weight above 0."""
    weights, words = weights_HWW.masked_fill(torch.eye(weights_HWW.shape[-1], dtype=torch.bool), 0.0).max(-1)
    return words.masked_fill(weights <= 0, -1)


def relation_accuracies(run: TrainedRun, trees: Iterable[Tree]) -> tuple[list[dict[str, Any]], int]:
    """A row for each relation, direction and head, beside the best fixed offset; and the number of sentences."""
    correct: dict[tuple[str, str], Tensor] = {}
    offsets: dict[tuple[str, str], Counter[int]] = {}
    sentences = 0
    for tree in trees:
        encoded = encode_tree(run, tree)
        if encoded is None:
            continue
        tokens, word = encoded
        most_attended = [
            most_attended_word(word_weights(stages["weights"][0], word))
            for stages in read_stages(run.model, tokens, "weights")
        ]
        for dependent, (head, relation) in enumerate(zip(tree.heads, tree.relations, strict=True)):
            if head < 0 or relation == "punct":
                continue
            for direction, (at, to) in zip(DIRECTIONS, ((dependent, head), (head, dependent)), strict=True):
                key = relation, direction
                is_correct = torch.cat([layer[:, at] == to for layer in most_attended]).double()
                correct[key] = correct.get(key, 0) + is_correct
                offsets.setdefault(key, Counter())[to - at] += 1
        sentences += 1
        if sentences == MAX_SENTENCES:
            break
    layer_heads = [(i, h) for i, each in enumerate(run.model.attentions, 1) for h in range(1, each.softmax_heads + 1)]
    rows = []
    for (relation, direction), correct_counts in correct.items():
        counts = offsets[relation, direction]
        total = counts.total()
        if total < MIN_OCCURRENCES:
            continue
        offset, offset_count = max(
            ((each_offset, counts[each_offset]) for each_offset in range(-MAX_OFFSET, MAX_OFFSET + 1)),
            key=lambda each: each[1],
        )
        for (layer, head), right in zip(layer_heads, correct_counts.tolist(), strict=True):
            low, high = wilson_interval(round(right), total)
            rows.append(
                {"relation": relation, "direction": direction, "layer": layer, "head": head, "accuracy": right / total,
                 "low": low, "high": high, "baseline": offset_count / total, "offset": offset, "count": total}
            )  # fmt: skip
    return rows, sentences


def best_of_each_relation(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The row of each relation that exceeds its baseline most, ordered by this excess."""

    def above(row: dict[str, Any]) -> float:
        return float(row["accuracy"] - row["baseline"])

    relations = sorted({row["relation"] for row in rows})
    best = [max((row for row in rows if row["relation"] == relation), key=above) for relation in relations]
    return sorted(best, key=above, reverse=True)


def encode_tree(run: TrainedRun, tree: Tree) -> tuple[Tensor, Tensor] | None:
    """[CLS] sentence [SEP], int64 [1, N], and the word of each token, [N]; None where it has more tokens than fit."""
    tokenizer = run.tokenizer
    before = [False, *tree.spaces[:-1]]
    parts = tokenizer.encode([" " * space + word for space, word in zip(before, tree.words, strict=True)])
    if any(not len(part) for part in parts) or sum(map(len, parts)) + 2 > run.settings.length:
        return None
    ids = [tokenizer.cls_id, *(int(i) for part in parts for i in part), tokenizer.sep_id]
    word = [-1, *(index for index, part in enumerate(parts) for _ in part), -1]
    return torch.tensor([ids]), torch.tensor(word)
