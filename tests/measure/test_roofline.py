"""The least time of some work, by the rates of products and copies that are measured here."""

from __future__ import annotations

import pytest
import torch

from experiments.measure import roofline
from experiments.measure.roofline import Rates, measure_rates


def test_the_floor_is_the_slower_of_products_and_traffic():
    rates = Rates(flops_per_second=100.0, bytes_per_second=10.0)
    assert rates.floor(1000, 10) == 10 and rates.floor(10, 1000) == 100
    assert all(rate > 1e6 for rate in measure_rates(torch.device("cpu"), "bf16"))


@pytest.mark.parametrize(("flops_per_second", "largest"), [(1e15, 8192), (1e9, 256)])
def test_rates_are_those_of_calls_that_take_long_enough(monkeypatch, flops_per_second, largest):
    products, copies = [], []
    monkeypatch.setattr(roofline, "_product_seconds", lambda n, *_: products.append(n) or 2 * n**3 / flops_per_second)
    monkeypatch.setattr(roofline, "_copy_seconds", lambda size, _: copies.append(size) or 2 * size / 5e10)
    rates = measure_rates(torch.device("cpu"), "bf16")
    assert rates == (pytest.approx(flops_per_second), pytest.approx(5e10))
    assert products[-1] == largest and copies[-1] == 2**29
