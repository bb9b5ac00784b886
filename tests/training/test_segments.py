"""Training in segments: the memory lowers the loss, and an interrupted run continues."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from experiments.config.pretrained import inherited
from experiments.data.packing import Packed
from experiments.display.progress import Display
from experiments.failures.failure import Mistake
from experiments.heads.trained_run import open_trained_run
from experiments.model.build import build
from experiments.objectives.kinds.causal import Causal
from experiments.record.folder import RunFolder
from experiments.training.evaluate import evaluate
from experiments.training.made_up import MadeUpVocabulary
from experiments.training.step.learner import learner_of

WORDS = 8  # besides the special tokens
SEGMENT = 4  # tokens


@pytest.fixture
def causal(settings):
    """causal(**changes): settings of a decoder in segments of 4 tokens."""

    def make(**changes):
        whole = settings(model__position="relative", **changes)
        model = whole.model.model_copy(update={"segment_length": SEGMENT})
        return whole.model_copy(update={"objective": Causal(kind="causal"), "model": model})

    return make


def packed(tokens: np.ndarray) -> Packed:
    return Packed("made up", tokens, tokens.size, tokens.size, len(tokens))


def test_what_stands_in_the_segment_before_lowers_the_loss(causal):
    """The second segment repeats the first, so the memory predicts it. One that repeats another row can't be."""
    no_dropout = {"model__dropout": 0.0, "model__attention_dropout": 0.0, "variant__dropout": 0.0}
    exact = {"model__relative_buckets": 32, "model__relative_distance": 64, "model__initial_std": 0.2}
    config = causal(**no_dropout, **exact, layers=1, batch_size=32, length=8)
    half = np.random.default_rng(0).integers(5, 5 + WORDS, size=(2064, SEGMENT))
    train, held_out = (packed(np.tile(rows, 2)) for rows in (half[:2000], half[2000:]))
    strange = packed(np.concatenate([half[2000:], np.roll(half[2000:], 1, axis=0)], axis=1))
    vocabulary = MadeUpVocabulary(5 + WORDS)
    objective = config.objective.build(vocabulary)
    model = build("causal_decoder", config.model, config.variant, vocabulary.vocabulary_size, 0)
    learner = learner_of(config, model, objective, train, device=torch.device("cpu"), precision="fp32")
    for step in range(1, 201):
        learner.take(step, 1e-2)
    unigram = np.ones(vocabulary.vocabulary_size, dtype=np.int64)
    repeated, other = (
        evaluate(model, learner.forward, text, unigram, objective, sequences=None, micro_batch=64).loss
        for text in (held_out, strange)
    )
    # of a row's 7 predictions 3 are in the first segment, of which nothing can be told
    least = 3 / 7 * math.log(WORDS)
    assert least - 0.1 < repeated < least + 0.4 < math.log(WORDS) < other


def test_a_run_that_was_cut_ends_as_one_that_was_not(causal, ends_alike_when_cut):
    """Also with dropout, because the memory of a step is computed within the step."""
    changes = {
        "max_steps": 4,
        "trainer__checkpoint_every": 1,
        "trainer__evaluate_every": 2,
        "schedule__warmup_steps": 1,
    }
    ends_alike_when_cut(causal(**changes), 3)


def test_other_objectives_have_no_segments(settings):
    message = r"model\.segment_length = 4: .* \(objective=causal\), not in objective=masked; set null"
    with pytest.raises(ValidationError, match=message):
        settings(model__position="relative", model__segment_length=4)


def test_fine_tuning_reads_an_example_whole(causal):
    task = {"name": "sst2"}
    tuned = inherited({"task": task, "length": 30, "dropout": None, "backend": "auto"}, causal().model_dump(), {})
    assert (tuned["length"], tuned["model"]["length"], tuned["model"]["segment_length"]) == (30, 30, None)


def test_heads_are_looked_at_without_segments(causal, tmp_path):
    with pytest.raises(Mistake, match=r"run: model\.segment_length=4; maps need a run without segments"):
        open_trained_run(RunFolder(tmp_path / "run"), causal(), "best", 4, Display())
