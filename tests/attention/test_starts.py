"""The starting values of what mechanisms have besides linear maps, against the deviations that they name."""

from __future__ import annotations

import math

import pytest
import torch

from attention import additive, collaborative, differential, dynamically_composable, sinks, value_residual

# 300 inputs, 10 heads, rank 3: 60 hidden features
DYNAMIC = {
    "hidden": math.sqrt(2 / (300 + 60)),
    "first": 0.02 / (math.sqrt(60) * (10 + 3)),
    "second": 0.02 / (math.sqrt(60) * (10 + 3)),
    "gate": 0.005 * math.sqrt(2 / (300 + 10)),
}


@pytest.mark.parametrize(
    ("part", "parameter", "deviation"),
    [
        (lambda: additive.Comparison(50, 100), "weight", 0.1),
        (lambda: collaborative.Mixing(20, 10, "random"), "weight", 0.2),
        *((lambda: differential.Lambda(5000, 0.8), name, 0.1) for name in ("query1", "key1", "query2", "key2")),
        *((lambda: dynamically_composable.DynamicMatrix(300, 10, 3), name, std) for name, std in DYNAMIC.items()),
    ],
)
def test_what_is_drawn_has_the_deviation_that_it_is_said_to_have(part, parameter, deviation):
    values = part().get_parameter(parameter).detach()
    assert float(values.mean()) == pytest.approx(0, abs=5 * deviation / math.sqrt(values.numel()))
    assert float(values.std()) == pytest.approx(deviation, rel=5 / math.sqrt(2 * values.numel()))


def test_additive_logits_start_with_a_variance_of_at_most_one():
    query, key = (10 * torch.randn(1, 40, 30, 64) for _ in range(2))
    # tanh of values this large is 1 or -1
    assert float(additive.Comparison(30, 64)(query, key).detach().var()) == pytest.approx(1, rel=0.2)


def test_the_values_of_the_first_layer_start_with_half_of_the_weight_and_a_sink_with_that_of_the_softmax_off_by_one():
    assert value_residual.WeightedSum().weight.tolist() == [0.5, 0.5]
    assert sinks.Sink(3).logit.tolist() == [0.0, 0.0, 0.0]
