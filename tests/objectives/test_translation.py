from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from experiments.config.compose import compose
from experiments.failures.failure import Mistake
from experiments.model.build import build
from experiments.objectives.kinds.translation import Translation
from experiments.objectives.loss import loss
from experiments.training.step.micro_batches import split

PAD, CLS, SEP = 0, 2, 3
VOCABULARY = SimpleNamespace(
    vocabulary_size=30, special=frozenset(range(5)), pad_id=PAD, cls_id=CLS, sep_id=SEP, mask_id=4, sentinel_ids=()
)
PLAIN = Translation(kind="translation", beam=4, length_penalty=0.6, bleu_pairs=0)
# two pairs of sides of 12 tokens: sources of 3 and 9 tokens, targets of 4 and 2
ROWS = np.array(
    [
        [10, 11, SEP, *[PAD] * 9, 20, 21, 22, SEP, *[PAD] * 8],
        [12, 13, 14, 15, 16, 17, 18, 19, SEP, *[PAD] * 3, 23, SEP, *[PAD] * 10],
    ],
    dtype=np.uint16,
)


def batch_of(rows=ROWS):
    return PLAIN.build(VOCABULARY).batch(rows, 0, 0)


def test_a_batch_by_hand():
    batch = batch_of()
    # sides are trimmed to a multiple of 8: the longest source has 9 tokens, the longest target 4
    assert batch.inputs["tokens"].tolist() == ROWS[:, :12].tolist()
    assert batch.inputs["mask"].sum(1).tolist() == [3, 9] and batch.inputs["mask"][:, 0].all()
    assert batch.inputs["decoder_tokens"].tolist() == [
        [CLS, 20, 21, 22, SEP, PAD, PAD, PAD],
        [CLS, 23, SEP, PAD, PAD, PAD, PAD, PAD],
    ]
    assert batch.length == 8
    assert batch.positions.tolist() == [0, 1, 2, 3, 8, 9]
    assert batch.targets.tolist() == [20, 21, 22, SEP, 23, SEP]
    assert batch.tokens_read == 3 + 9 + 4 + 2


def test_parts_of_a_batch_have_their_own_positions():
    parts = list(split(batch_of(), 1))
    assert [part.positions.tolist() for part in parts] == [[0, 1, 2, 3], [0, 1]]
    assert [part.targets.tolist() for part in parts] == [[20, 21, 22, SEP], [23, SEP]]
    assert [part.inputs["mask"].sum().item() for part in parts] == [3, 9]


@pytest.fixture
def model():
    words = ["model=transformer_nano", "hidden_size=12", "heads=3", "length=12", "data=pairs", "data.train=x"]
    settings = compose([*words, "model.initial_std=0.4", "model.dropout=0"])
    return build("encoder_decoder", settings.model, settings.variant, 30, 0).double().eval()


def test_neither_targets_nor_padding_leak(model):
    batch = batch_of()

    def logits(**changes):
        return model(**(batch.inputs | changes))

    before = logits()
    decoder, source = batch.inputs["decoder_tokens"], batch.inputs["tokens"]
    for position in range(7):
        for token in range(30):
            changed = decoder.clone()
            changed[:, position + 1] = token  # target number `position`
            assert (logits(decoder_tokens=changed) - before)[:, : position + 1].abs().max() < 1e-12
    for token in range(30):
        changed = torch.where(batch.inputs["mask"], source, token)
        assert_close(logits(tokens=changed), before, rtol=0, atol=1e-12)
    # and with sides that are padded further, nothing that counts changes
    longer = np.insert(ROWS, [12, 24], PAD, axis=1)
    wider = PLAIN.build(VOCABULARY).batch(longer, 0, 0)
    assert wider.targets.tolist() == batch.targets.tolist()


def test_the_loss_of_a_pair_does_not_depend_on_its_neighbours(model):
    batch = batch_of()
    together = loss(model(**batch.inputs, positions=batch.positions), batch.targets)
    apart = [batch_of(ROWS[row : row + 1]) for row in range(2)]
    assert apart[0].inputs["tokens"].shape == (1, 8)
    alone = [loss(model(**each.inputs, positions=each.positions), each.targets) for each in apart]
    assert_close(together, alone[0] + alone[1])


def test_smoothed_labels_by_hand():
    """0.9 of the target's and 0.1 of the mean of all negative log likelihoods: nats 2.0 and (2 + 1 + 3 + 2) / 4."""
    probabilities = torch.tensor([2.0, 1.0, 3.0, 2.0]).neg().exp()
    rest = 1 - probabilities.sum()
    assert rest > 0
    logits = torch.cat([probabilities, rest[None]]).log()[None]
    mean = (2 + 1 + 3 + 2 - math.log(rest)) / 5
    assert loss(logits, torch.tensor([0]), 0.1).item() == pytest.approx(0.9 * 2 + 0.1 * mean, rel=1e-6)
    assert loss(logits, torch.tensor([0])).item() == pytest.approx(2.0, rel=1e-6)
    # a position that is there to fill up counts for nothing
    both = loss(logits.expand(2, 5), torch.tensor([0, -100]), 0.1)
    assert_close(both, loss(logits, torch.tensor([0]), 0.1))


def test_bleu_without_sacrebleu_is_refused_before_training(monkeypatch):
    monkeypatch.setattr("experiments.failures.missing_extra.find_spec", lambda name: None)
    with pytest.raises(Mistake, match=r"objective\.bleu_pairs=8 \(0: no BLEU\) needs sacrebleu\n.*translation"):
        PLAIN.model_copy(update={"bleu_pairs": 8}).build(VOCABULARY)
    with pytest.raises(Mistake, match=r"objective\.bleu_pairs=null"):
        PLAIN.model_copy(update={"bleu_pairs": None}).build(VOCABULARY)
    PLAIN.build(VOCABULARY)


def test_a_tokenizer_that_pads_with_its_end_is_refused():
    """GPT-2's only special token is <|endoftext|>: the ends of sentences would count as padding."""
    one = SimpleNamespace(**{**vars(VOCABULARY), "pad_id": SEP})
    with pytest.raises(Mistake, match=r"objective=translation: id 3 of the tokenizer both pads and ends .*tokenizer\."):
        PLAIN.build(one)
