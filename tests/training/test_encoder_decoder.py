"""Whole runs of encoder-decoders: they learn, go on where they were cut, and are scored again."""

from __future__ import annotations

import json
import math
import random
import signal
from pathlib import Path

import pytest

from experiments.config.compose import compose
from experiments.failures.failure import Mistake
from experiments.processes.interruption import Interrupted
from experiments.record.result_numbers import value_of
from experiments.training import train as training
from experiments.training.decoding import texts
from experiments.training.predicted_memory import predict_peak_bytes

SIZES = (
    "precision=fp32", "trainer.device=cpu", "logger.wandb=off", "hidden_size=32", "heads=4", "layers=2", "length=16",
    "batch_size=8", "model.intermediate_size=48", "schedule.warmup_steps=2", "trainer.log_every=1",
)  # fmt: skip
WORDS, OTHERS = ("abcdefghij", "klmnopqrst")


def translations(number: int) -> set[tuple[str, str]]:
    """Sentences of a language of ten letters, and the same sentences backwards in another alphabet."""
    chance = random.Random(0)
    said = ([chance.randrange(10) for _ in range(chance.randint(2, 6))] for _ in range(number))
    return {(" ".join(WORDS[i] for i in each), " ".join(OTHERS[i] for i in reversed(each))) for each in said}


@pytest.fixture(scope="module")
def pairs_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in sorted(translations(3000))))
    return path


@pytest.fixture
def overrides_of(pairs_file, corpus):
    def overrides(model: str) -> list[str]:
        data = ["data=pairs", f"data.train={pairs_file}"]
        if model.startswith("t5"):
            data = ["data=text", f"data.train={corpus}"]
        small = ["tokenizer.vocabulary_size=300", f"cache={corpus.parent / 'cache'}"]
        rest = [] if model.startswith("t5") else ["objective.bleu_pairs=6"]
        return [f"model={model}", *data, *SIZES, *small, *rest]

    return overrides


@pytest.mark.parametrize(
    ("model", "variant"),
    [
        ("transformer_nano", "dynamic_talking_heads"),
        pytest.param("t5_nano", "multi_head", marks=pytest.mark.campaign),
        pytest.param("t5_base", "unscaled", marks=pytest.mark.campaign),
        pytest.param("transformer_base", "multi_head", marks=pytest.mark.campaign),
    ],
)
def test_a_cut_run_ends_as_one_that_was_not(overrides_of, ends_alike_when_cut, model, variant):
    cuts = ["max_steps=4", "trainer.evaluate_every=4", "trainer.checkpoint_every=2", "trainer.evaluation_sequences=16"]
    dropped = ["model.dropout=0.1", "model.attention_dropout=0.1", f"variant={variant}", "trainer.micro_batch=3"]
    result, _ = ends_alike_when_cut(compose([*overrides_of(model), *cuts, *dropped]), 3)
    assert result.steps == 4 and result.tokens > 0


def test_a_run_cut_in_its_translations_goes_on_with_them(overrides_of, go, monkeypatch):
    """The time and memory of translating don't count as those of the training, and too little memory doesn't end it."""
    settings = compose([*overrides_of("transformer_nano"), "max_steps=2", "trainer.evaluate_every=2"])
    real, sizes = texts.decode, []

    def cut(model, forward, inputs, *rest):
        sizes.append(len(inputs["tokens"]))
        if len(sizes) == 1:
            signal.raise_signal(signal.SIGTERM)
        if sizes[-1] > 4:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return real(model, forward, inputs, *rest)

    monkeypatch.setattr(texts, "decode", cut)
    with pytest.raises(Interrupted):
        go(settings)
    monkeypatch.setattr(training, "take_step", None)
    result, folder = go(settings)
    assert result.status == "done" and result.scored_texts == 6 and sizes == [6, 6, 4, 2]
    assert None not in [value_of(result, name) for name in settings.measured]
    assert result.perplexity == pytest.approx(math.exp(result.validation_loss))
    assert "out of memory: 4 sequences at once" in (folder.path / "log.txt").read_text()


@pytest.mark.parametrize("model", ["t5_nano", "transformer_nano"])
def test_memory_is_predicted_without_training(overrides_of, model):
    overrides = [override for override in overrides_of(model) if not override.startswith("batch_size")]
    small, large = (predict_peak_bytes(compose([*overrides, f"batch_size={size}"]), 400) for size in (8, 512))
    assert 0 < small < large


@pytest.mark.campaign
def test_a_model_learns_to_translate(overrides_of, go):
    """The target is the source backwards in other letters, so the model must attend to the right places."""
    changes = ["max_steps=300", "batch_size=64", "learning_rate=5e-3", "model.dropout=0", "objective.bleu_pairs=50"]
    rare = [
        "trainer.log_every=50",
        "trainer.evaluate_every=300",
        "trainer.checkpoint_every=300",
        "schedule.warmup_steps=40",
    ]
    overrides = {override.split("=")[0]: override for override in [*overrides_of("transformer_nano"), *changes, *rare]}
    result, folder = go(compose(list(overrides.values())))
    assert result.text_scores["bleu"] > 90, (result.text_scores, result.validation_loss)
    assert result.scored_texts == 50 and result.text_scores_meaning.startswith("nrefs:1|case:mixed")
    # smoothed labels are what is trained on, whose loss can't fall below their own entropy; what is said is without
    logged = [json.loads(line) for line in (folder.path / "metrics.jsonl").read_text().splitlines()]
    (*_, smoothed) = (line["smoothed_loss"] for line in logged if "smoothed_loss" in line)
    assert max(result.validation_loss, result.training_loss) < 0.3 < smoothed
    assert json.loads((folder.path / "result.json").read_text())["text_scores"] == result.text_scores


def test_translation_counts_the_tokens_that_are_there(overrides_of, go, pairs_file):
    settings = compose([*overrides_of("transformer_nano"), "max_steps=2", "trainer.evaluate_every=2"])
    result, _ = go(settings)
    padded = 2 * 2 * settings.length * settings.batch_size
    assert 0.2 * padded < result.tokens < 0.9 * padded


def test_tokens_of_pairs_are_no_limit(overrides_of, go):
    settings = compose([*overrides_of("transformer_nano"), "trainer.max_tokens=1000"])
    with pytest.raises(Mistake, match=r"trainer\.max_tokens=1000.*objective=translation.*by max_steps instead"):
        go(settings)
