from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from experiments.failures.failure import Mistake
from experiments.objectives.objective import build_objective
from experiments.tasks.pretraining import Pretraining
from experiments.training import evaluate as evaluate_module
from experiments.training.evaluate import EVALUATION_BATCH, evaluate, evaluation_batches, token_counts, unknown_share
from experiments.training.step.micro_batches import Forward

CPU = torch.device("cpu")


class Constant(nn.Module):
    """Gives every token the same logits, whatever it sees."""

    def __init__(self, logits):
        super().__init__()
        self.logits = logits

    def forward(self, tokens, positions):
        assert not self.training
        return self.logits.expand(len(positions), -1)


@pytest.fixture(scope="module")
def dataset(settings):
    return Pretraining(settings()).prepare(lambda *arguments: None)


@pytest.fixture
def score(settings, dataset):
    objective = build_objective(settings().objective, dataset.tokenizer)

    def scored(model, sequences=None, micro_batch=8, split="validation"):
        forward, data = Forward(model, CPU, "fp32", 0), dataset
        return evaluate(
            model, forward, getattr(data, split), data.unigram, objective,
            sequences=sequences, micro_batch=micro_batch,
        )  # fmt: skip

    return scored


def test_a_model_that_knows_nothing(score, dataset):
    size, validation = dataset.tokenizer.vocabulary_size, dataset.validation
    found = score(Constant(torch.zeros(size)))
    assert found.loss == pytest.approx(math.log(size), rel=1e-6)
    assert found.perplexity == pytest.approx(size, rel=1e-5)
    assert found.bits_per_byte == pytest.approx(math.log2(size) * validation.token_count / validation.text_bytes)


def test_a_model_that_knows_the_frequencies_has_the_unigram_loss(score, dataset):
    frequencies = np.log(dataset.unigram + 1.0)
    # they do not occur in text
    frequencies[list(dataset.tokenizer.special)] = -np.inf
    found = score(Constant(torch.tensor(frequencies, dtype=torch.float64)))
    assert found.loss == pytest.approx(found.unigram_loss, rel=1e-12)


def test_the_size_of_the_parts_changes_nothing(score, dataset):
    model = Constant(torch.linspace(0, 3, dataset.tokenizer.vocabulary_size))
    whole = score(model, micro_batch=64)
    for size in (1, 7, 1000):
        part = score(model, micro_batch=size)
        assert part.tokens == whole.tokens and part.unigram_loss == whole.unigram_loss
        assert part.loss == pytest.approx(whole.loss, rel=1e-6)


def test_every_predicted_token_weighs_the_same(score, settings, dataset):
    objective = build_objective(settings().objective, dataset.tokenizer)
    logits = torch.linspace(0, 3, dataset.tokenizer.vocabulary_size, dtype=torch.float64)
    batches = list(evaluation_batches(dataset.train, objective, None))
    targets = torch.cat([batch.targets for batch in batches])
    assert len({len(batch.targets) for batch in batches}) > 1
    assert score(Constant(logits), split="train").loss == pytest.approx(
        float(-logits.log_softmax(0)[targets].mean()), rel=1e-12
    )


def test_so_many_sequences_and_no_more(score, dataset):
    model = Constant(torch.zeros(dataset.tokenizer.vocabulary_size))
    assert score(model, sequences=3).tokens == pytest.approx(0.15 * 3 * 16, abs=2)
    assert score(model, sequences=10**9).tokens == score(model).tokens


def test_a_batch_without_targets_is_left_out_and_a_split_without_any_refused(score, settings, dataset):
    model = Constant(torch.zeros(dataset.tokenizer.vocabulary_size))
    empty = np.full((EVALUATION_BATCH, 16), dataset.tokenizer.cls_id, dtype=dataset.validation.tokens.dtype)
    objective = build_objective(settings().objective, dataset.tokenizer)

    def of(tokens):
        forward, packed = Forward(model, CPU, "fp32", 0), dataset.validation._replace(tokens=tokens)
        return evaluate(model, forward, packed, dataset.unigram, objective, sequences=None, micro_batch=8)

    whole, found = of(dataset.validation.tokens), of(np.concatenate([dataset.validation.tokens, empty]))
    assert found.loss == pytest.approx(whole.loss, rel=1e-6) and found.tokens == pytest.approx(whole.tokens, rel=0.1)
    with pytest.raises(Mistake, match="the validation split has nothing to predict"):
        of(empty)


def test_a_validation_split_without_targets_is_refused_before_anything_is_written(
    tmp_path, go, settings, dataset, monkeypatch
):
    tokens = np.full((EVALUATION_BATCH, 16), dataset.tokenizer.cls_id, dtype=dataset.validation.tokens.dtype)
    spoiled = dataset._replace(validation=dataset.validation._replace(tokens=tokens))
    monkeypatch.setattr(Pretraining, "prepare", lambda self, say: spoiled)
    with pytest.raises(Mistake, match="the validation split has nothing to predict"):
        go(settings())
    assert not [*(tmp_path / "run").glob("checkpoint*")] and not (tmp_path / "run/metrics.jsonl").exists()


def test_each_batch_is_drawn_by_the_seed_of_the_evaluation_and_its_number(dataset):
    rows = np.arange(2 * EVALUATION_BATCH + 3)[:, None]
    drawing = SimpleNamespace(
        evaluation_seed=5, batch=lambda tokens, seed, index: (tokens[0, 0], len(tokens), seed, index)
    )
    packed = dataset.validation._replace(tokens=rows)
    whole = [(0, EVALUATION_BATCH, 5, 0), (EVALUATION_BATCH, EVALUATION_BATCH, 5, 1), (2 * EVALUATION_BATCH, 3, 5, 2)]
    assert list(evaluation_batches(packed, drawing, None)) == whole
    assert list(evaluation_batches(packed, drawing, EVALUATION_BATCH + 1)) == [whole[0], (EVALUATION_BATCH, 1, 5, 1)]


def test_the_share_of_unknown_tokens_by_hand(dataset, monkeypatch):
    monkeypatch.setattr(evaluate_module, "COUNTED", 2)
    packed = dataset.validation._replace(tokens=np.array([[2, 1, 7, 3], [2, 8, 7, 3], [2, 1, 7, 7]], dtype=np.uint16))
    assert token_counts(packed.tokens, 10).tolist() == [0, 2, 3, 2, 0, 0, 0, 4, 1, 0]
    words = SimpleNamespace(unk_id=1, sep_id=3, special=frozenset(range(5)), vocabulary_size=10)
    # two of the seven tokens of the text
    assert unknown_share(packed, words) == pytest.approx(2 / 7)
    words.unk_id = 3
    assert unknown_share(packed, words) == 0.0


def test_the_mode_is_as_before(score, dataset):
    model = Constant(torch.zeros(dataset.tokenizer.vocabulary_size))
    score(model.train())
    assert model.training
    score(model.eval())
    assert not model.training
