from __future__ import annotations

import functools

import pytest
import torch

from experiments.config.compose import compose
from experiments.config.groups import options
from experiments.settings.norm import NORM_KINDS
from experiments.training import predicted_memory
from experiments.training.predicted_memory import predict_peak_bytes


@pytest.fixture(autouse=True)
def no_baseline(monkeypatch):
    monkeypatch.setattr(predicted_memory, "resident_bytes", lambda: 0)


def predicted(*overrides, vocabulary=1000):
    return predict_peak_bytes(compose([*overrides, "trainer.device=cpu"]), vocabulary)


def test_weights_gradients_and_moments():
    one, other = (
        predicted("batch_size=1", "precision=fp32", f"model.intermediate_size={size}") for size in (768, 768 * 65)
    )
    # two matrices and a bias more in each of 4 layers, 16 bytes each; activations of one sequence are small
    assert other - one == pytest.approx(16 * 4 * (2 * 192 + 1) * 768 * 64, rel=0.15)


def test_activations_grow_with_what_goes_through_at_once():
    sizes = [predicted(f"batch_size={size}") for size in (64, 128, 256)]
    assert sizes[2] - sizes[1] == pytest.approx(2 * (sizes[1] - sizes[0]), rel=1e-2)
    assert predicted("batch_size=256", "trainer.micro_batch=64") == sizes[0]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_more_sequences_than_fit_here_are_predicted_in_proportion(monkeypatch, precision):
    of = f"precision={precision}"
    sizes = [predicted(of, f"batch_size={size}") for size in (128, 256, 1024)]
    monkeypatch.setattr(predicted_memory, "TOKENS", 64 * 256)
    # the copies of the weights in bf16 are multiplied too
    rel = 1e-2 if precision == "bf16" or torch.cuda.is_available() else 1e-3
    assert predicted(of, "batch_size=1024") == pytest.approx(sizes[2], rel=rel)
    assert predicted(of, "batch_size=256") == sizes[1]
    assert predicted(of, "batch_size=1000000", "length=1000000") > 1e15


@pytest.mark.parametrize("kind", sorted(NORM_KINDS))
def test_every_norm_of_padded_text(kind):
    of_padded = ("objective=masked_sop", "model.head_transform=false", f"model.norm_kind={kind}")
    small, large = (predicted(*of_padded, f"batch_size={size}") for size in (64, 128))
    assert small < large < 2 * small


def test_bf16_keeps_less_than_fp32():
    assert predicted("precision=bf16", "batch_size=64") < predicted("precision=fp32", "batch_size=64")


@functools.cache
def growth(*overrides) -> int:
    """The bytes that 64 more sequences need, which are only activations, for one layer in float32."""
    sizes = (64, 128)
    small, large = (predicted(*overrides, "layers=1", "precision=fp32", f"batch_size={size}") for size in sizes)
    return large - small


# what is as large as the stream of the 64 sequences: of 64 tokens and a width of 192, 4 bytes each
STREAM = 64 * 64 * 192 * 4
MAP = 64 * 6 * 64 * 64 * 4


@pytest.mark.parametrize("objective", ["masked", "masked_sop", "causal", "permutation"])
def test_objectives_with_dropout(objective):
    dropout = ("model.attention_dropout=0.1", "model.dropout=0.1")
    without = growth(f"objective={objective}")
    # two norms, queries, keys, values, two outputs and twice the feed-forward's inside, four times as wide
    assert 10 * STREAM < without < 60 * STREAM
    # the two outputs with what was dropped
    assert growth(f"objective={objective}", *dropout) > without + STREAM / 2


@pytest.mark.parametrize("variant", options("variant"))
def test_the_reference_keeps_the_maps_of_every_head(variant):
    assert growth(f"variant={variant}", "heads=6", "backend=reference") > 10 * STREAM + MAP


@pytest.mark.parametrize("variant", options("variant"))
def test_what_auto_chooses_needs_no_more(variant):
    growths = [growth(f"variant={variant}", "heads=6", f"backend={backend}") for backend in ("auto", "reference")]
    assert 10 * STREAM < growths[0] <= growths[1]
