from __future__ import annotations

import pytest

from experiments.config.compose import compose
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


def test_bf16_keeps_less_than_fp32():
    assert predicted("precision=bf16", "batch_size=64") < predicted("precision=fp32", "batch_size=64")


@pytest.mark.parametrize("objective", ["masked", "masked_sop", "causal", "permutation"])
def test_objectives_with_dropout(objective):
    assert predicted(f"objective={objective}", "model.attention_dropout=0.1", "model.dropout=0.1") > 16 * 10**6


@pytest.mark.parametrize("variant", ["multi_head", "talking_heads", "additive"])
@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_variants_and_backends(variant, backend):
    assert predicted(f"variant={variant}", f"backend={backend}") > 16 * 10**6
