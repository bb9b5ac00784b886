from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments.objectives.kinds.masked_sop import MaskedSop, MaskedSopObjective

PAD, UNK, CLS, SEP, MASK = range(5)
VOCABULARY = 40


def objective(**changes) -> MaskedSopObjective:
    shares = {"rate": 0.15, "mask_share": 0.8, "random_share": 0.1, "evaluation_seed": 0} | changes
    ids = {"pad_id": PAD, "cls_id": CLS, "sep_id": SEP, "mask_id": MASK}
    words = SimpleNamespace(vocabulary_size=VOCABULARY, special=frozenset(range(5)), **ids)
    return MaskedSopObjective(MaskedSop(kind="masked_sop", **shares), words)


def unmasked(tokens, seed=0, step=0):
    """The batch with the masked tokens restored."""
    batch = objective().batch(tokens, seed, step)
    whole = batch.tokens.flatten().index_put((batch.positions,), batch.targets).view_as(batch.tokens)
    return batch, whole.tolist()


def test_by_hand():
    # the longest of three documents, 8 9 10, is cut to N - 3 = 2 tokens of 5: each parted at the one place there is
    batch, _ = unmasked(np.array([[CLS, 8, 9, 10, SEP]]))
    assert batch.length == 5 and batch.tokens.shape == (1, 5) and len(batch.positions) == 1
    seen = set()
    for step in range(20):
        batch, whole = unmasked(np.array([[CLS, 5, SEP, 8, 9, SEP, 6, 7]], dtype=np.uint16), step=step)
        label = int(batch.labels)
        expected = [CLS, 9, SEP, 8, SEP] if label else [CLS, 8, SEP, 9, SEP]
        assert whole == [[*expected, PAD, PAD, PAD]]
        assert batch.inputs["token_types"].tolist() == [[0, 0, 0, 1, 1, 0, 0, 0]]
        assert batch.inputs["mask"].tolist() == [5 * [True] + 3 * [False]]
        assert batch.unpadded == batch.tokens_read == 5
        seen.add(label)
    assert seen == {0, 1}


@given(st.integers(1, 6), st.integers(5, 30), st.integers(0, 999), st.integers(0, 2**32 - 1), st.integers(0, 2**40))
def test_the_segments_are_consecutive_text_of_one_document(sequences, length, data_seed, seed, step):
    random = np.random.default_rng(data_seed)
    tokens = random.integers(5, VOCABULARY, size=(sequences, length))
    tokens[random.random(tokens.shape) < 0.1] = SEP
    tokens[:, 0] = CLS
    tokens[0, 1:4] = 5, 6, 7
    original = tokens.copy()
    batch, whole = unmasked(tokens, seed, step)
    assert np.array_equal(tokens, original)
    texts = [max("".join(map(chr, row[1:])).split(chr(SEP)), key=len)[: length - 3] for row in original]
    texts = [text for text in texts if len(text) > 1]
    assert len(texts) == len(batch.tokens) == len(batch.labels)
    for text, row, label, types, mask in zip(
        texts, whole, batch.labels, batch.inputs["token_types"], batch.inputs["mask"], strict=True
    ):
        ends = [place for place, token in enumerate(row) if token == SEP]
        first, second = row[1 : ends[0]], row[ends[0] + 1 : ends[1]]
        assert first and second and row[0] == CLS and len(ends) == 2
        assert "".join(map(chr, second + first if label else first + second)) == text
        assert mask.tolist() == [place <= ends[1] for place in range(length)] and int(mask.sum()) == len(text) + 3
        assert types.tolist() == [int(ends[0] < place <= ends[1]) for place in range(length)]
        assert row[ends[1] + 1 :] == (length - ends[1] - 1) * [PAD]
    again, _ = unmasked(original, seed, step)
    assert torch.equal(batch.tokens, again.tokens) and torch.equal(batch.labels, again.labels)


def test_half_are_swapped_and_every_parting_is_as_likely():
    rows = np.tile(np.arange(5, 15), (4000, 1))
    rows[:, 0] = CLS
    batch, whole = unmasked(rows)
    assert batch.labels.double().mean().item() == pytest.approx(0.5, abs=0.04)
    sizes = [row.index(SEP) - 1 for row in whole]
    first = [7 - size if swapped else size for size, swapped in zip(sizes, batch.labels.tolist(), strict=True)]
    counts = np.bincount(first, minlength=8)[1:7]
    assert counts.sum() == 4000 and ((counts - 4000 / 6) ** 2 / (4000 / 6)).sum() < 25


def test_rows_without_two_tokens_in_a_row():
    short = [CLS, 5, SEP, 6, SEP, 7]
    assert len(unmasked(np.array([short, [CLS, 5, 6, 7, SEP, 8]]))[0].labels) == 1
    none = unmasked(np.array([short]))[0]
    assert len(none.labels) == len(none.targets) == len(none.tokens) == none.tokens_read == 0
