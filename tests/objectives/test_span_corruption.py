from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments.config.compose import compose
from experiments.failures.failure import Mistake
from experiments.model.build import build
from experiments.objectives.kinds.span_corruption import (
    SpanCorruption,
    SpanCorruptionObjective,
    random_partitions,
    random_span_mask,
)

T5 = SpanCorruption(kind="span_corruption", rate=0.15, mean_span=3.0, sentinels=100, evaluation_seed=0)
PAD, CLS, SEP = 0, 2, 3
SENTINELS = tuple(range(900, 1000))
VOCABULARY = SimpleNamespace(
    vocabulary_size=1000, special=frozenset({0, 1, 2, 3, 4, *SENTINELS}), pad_id=PAD, cls_id=CLS, sep_id=SEP, mask_id=4,
    sentinel_ids=SENTINELS,
)  # fmt: skip


def rows_of(length: int, rows: int = 4, objective: SpanCorruption = T5) -> np.ndarray:
    """[CLS] and then different numbers, none of them special: what stands where can be told."""
    text = np.arange(rows * objective.text_length(length)).reshape(rows, -1) % 890 + 5
    return np.pad(text, ((0, 0), (1, 0)), constant_values=CLS).astype(np.uint16)


def test_the_lengths_of_t5():
    """The figures of its random_spans_helper for 512 inputs: 568 raw tokens, 85 of them in 28 spans, 114 targets."""
    assert T5.text_length(512) == 568
    assert T5.span_counts(568) == (85, 28)
    assert T5.input_and_target_lengths(568) == (512, 114) and T5.input_and_target_lengths(569)[0] == 513
    assert (T5.row_length(512), T5.tokens_read(512)) == (569, 626)


@given(
    length=st.integers(8, 700), rate=st.floats(0.02, 0.8), mean_span=st.floats(1, 12), seed=st.integers(0, 2**32 - 1)
)
def test_every_batch_has_its_lengths_and_gives_back_the_text(length, rate, mean_span, seed):
    chosen = T5.model_copy(update={"rate": rate, "mean_span": mean_span, "sentinels": 700})
    vocabulary = SimpleNamespace(**{**vars(VOCABULARY), "sentinel_ids": tuple(range(2000, 2700))})
    rows = rows_of(length, 2, chosen)
    original = rows.copy()
    batch = SpanCorruptionObjective(chosen, vocabulary).batch(rows, seed, 3)
    assert np.array_equal(rows, original)
    inputs, decoder = batch.inputs["tokens"].numpy(), batch.inputs["decoder_tokens"].numpy()
    targets = batch.targets.numpy().reshape(2, batch.length)
    assert (inputs.shape[1], targets.shape[1]) == chosen.input_and_target_lengths(chosen.text_length(length))
    # where each span has one token between it and the next, one more of the text adds two to the inputs
    assert length - 1 <= inputs.shape[1] <= length < chosen.input_and_target_lengths(chosen.text_length(length) + 1)[0]
    assert batch.tokens_read == 2 * chosen.tokens_read(length)
    assert np.array_equal(batch.positions.numpy(), np.arange(targets.size))
    assert (decoder[:, 0] == CLS).all() and np.array_equal(decoder[:, 1:], targets[:, :-1])
    for row in range(2):
        assert inputs[row, -1] == targets[row, -1] == SEP
        assert put_back(inputs[row, :-1], targets[row, :-1]) == rows[row, 1:].tolist()
    again = SpanCorruptionObjective(chosen, vocabulary).batch(rows, seed, 3)
    assert torch.equal(again.tokens, batch.tokens) and torch.equal(again.targets, batch.targets)


def put_back(inputs: np.ndarray, targets: np.ndarray) -> list[int]:
    """The text with each sentinel of the inputs replaced by its span in the targets. Sentinels occur once, in order."""
    spans: dict[int, list[int]] = {}
    for token in targets.tolist():
        if token >= 900:
            assert token not in spans
            last = spans.setdefault(token, [])
        else:
            last.append(token)
    assert all(spans.values()) and list(spans) == sorted(spans)
    text = [spans.pop(token) if token >= 900 else [token] for token in inputs.tolist()]
    assert not spans
    return [token for part in text for token in part]


def test_a_batch_by_hand(monkeypatch):
    """T5's own example: "Thank you for inviting me to your party last week"."""
    objective = SpanCorruptionObjective(T5, VOCABULARY)
    text = np.arange(11, 21)[None]
    away = np.isin(text, [13, 14, 19])
    assert objective.with_sentinels(text, away).tolist() == [[11, 12, 900, 15, 16, 17, 18, 901, 20, SEP]]
    # where the first token is kept, a sentinel stands for every run of kept ones: here the last is one more
    assert objective.with_sentinels(text, ~away).tolist() == [[900, 13, 14, 901, 19, 902, SEP]]
    ends_with_a_span = np.isin(text, [13, 14, 20])
    assert objective.with_sentinels(text, ~ends_with_a_span).tolist() == [[900, 13, 14, 901, 20, SEP]]


def test_partitions_are_even():
    drawn = random_partitions(np.random.default_rng(0), 30_000, 6, 3)
    counts = Counter(map(tuple, drawn.tolist()))
    assert len(counts) == 10 and {sum(each) for each in counts} == {6} and min(map(min, counts)) == 1
    assert all(abs(count - 3000) < 5 * 52 for count in counts.values())
    assert random_partitions(np.random.default_rng(0), 2, 5, 1).tolist() == [[5], [5]]
    assert random_partitions(np.random.default_rng(0), 1, 3, 3).tolist() == [[1, 1, 1]]


def test_every_way_to_take_spans_out_is_as_likely():
    """Four of eight tokens in two spans: the kept and the removed ones each part in three ways, independently."""
    away = random_span_mask(np.random.default_rng(0), (27_000, 8), 4, 2)
    counts = Counter(map(bytes, away))
    assert len(counts) == 9 and all(abs(count - 3000) < 5 * 52 for count in counts.values())


def test_rate_and_mean_span():
    away = random_span_mask(np.random.default_rng(0), (50, 568), 85, 28)
    assert (away.sum(1) == 85).all() and not away[:, 0].any() and away[:, -1].all()
    assert ((np.diff(away.astype(int), axis=1) == 1).sum(1) == 28).all()
    assert len({row.tobytes() for row in away}) == 50, "every row has spans of its own"


def test_seeds_and_steps_choose_other_spans():
    rows = rows_of(64)
    drawn = {
        tuple(SpanCorruptionObjective(T5, VOCABULARY).batch(rows, seed, step).targets.tolist())
        for seed in range(4)
        for step in range(4)
    }
    assert len(drawn) == 16


@pytest.mark.parametrize("length", [64, 128, 512])
def test_the_predicted_share_gives_the_decoder_its_length(length):
    share = SpanCorruptionObjective(T5, VOCABULARY).predicted_share
    assert abs(length * share / (1 - share) - T5.input_and_target_lengths(T5.text_length(length))[1]) < 1


def test_more_spans_than_sentinels_are_refused():
    with pytest.raises(Mistake, match=r"objective\.sentinels = 3: length=64 has 9 spans, and each needs its own"):
        compose(["objective=span_corruption", "objective.sentinels=3", "objective.mean_span=1", "length=64"])
    few = SimpleNamespace(**{**vars(VOCABULARY), "sentinel_ids": (900,)})
    with pytest.raises(Mistake, match=r"objective\.sentinels=1: 3 spans"):
        SpanCorruptionObjective(T5, few).batch(rows_of(64), 0, 0)


def test_a_rate_that_would_make_a_row_endless_is_refused():
    with pytest.raises(Mistake, match=r"objective\.rate = 0\.999999999: must be at most 0\.9"):
        compose(["objective=span_corruption", "objective.rate=0.999999999"])


def test_a_target_leaks_into_no_prediction_before_it():
    """For every target of a small model: if it changes, its own logits and those of earlier targets don't."""
    settings = compose(["model=t5_nano", "hidden_size=12", "heads=3", "layers=2", "length=16", "model.initial_std=0.3"])
    model = build("encoder_decoder", settings.model, settings.variant, 1000, 0).double().eval()
    batch = SpanCorruptionObjective(T5, VOCABULARY).batch(rows_of(16, 2), 0, 0)
    tokens, decoder = batch.inputs["tokens"], batch.inputs["decoder_tokens"]
    targets = batch.targets.view(2, -1)
    before = model(tokens, decoder)
    for position in range(targets.shape[1] - 1):
        for token in (0, 5, 77, 901):
            changed = decoder.clone()
            changed[:, position + 1] = token  # target number `position`
            difference = (model(tokens, changed) - before).abs().amax(-1)
            assert difference[:, : position + 1].max() < 1e-12
    # what was taken out is nowhere in the inputs
    for row in range(2):
        assert not set(targets[row].tolist()) - set(VOCABULARY.special) & set(tokens[row].tolist()) - {SEP}
