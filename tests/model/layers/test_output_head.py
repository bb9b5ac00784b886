from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from experiments.model.layers.output_head import OutputHead

D, E, VOCABULARY = 12, 4, 7


@pytest.fixture
def head_of(settings_of):
    def make(**changes) -> OutputHead:
        torch.manual_seed(0)
        head = OutputHead(settings_of(**changes), VOCABULARY).double()
        for parameter in head.parameters():
            torch.nn.init.normal_(parameter)
        return head

    return make


@pytest.fixture
def hidden() -> torch.Tensor:
    """[3, D]"""
    return torch.randn(3, D, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def embedding(size: int) -> torch.Tensor:
    """[V, size]"""
    return torch.randn(VOCABULARY, size, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def test_a_tied_head_multiplies_by_the_embedding_divides_by_the_root_of_its_width_and_adds_the_bias(head_of, hidden):
    tied = embedding(D)
    plain, scaled, biased = (
        head_of(head_bias=bias, output_scaled=scale) for bias, scale in ((False, False), (False, True), (True, True))
    )
    assert_close(plain(hidden, tied), hidden @ tied.T)
    assert_close(scaled(hidden, tied), hidden @ tied.T / D**0.5)
    assert_close(biased(hidden, tied), hidden @ tied.T / D**0.5 + biased.bias)


def test_an_untied_head_reads_no_embedding(head_of, hidden):
    head = head_of(tied=False, head_bias=False)
    assert_close(head(hidden, torch.full((VOCABULARY, D), torch.nan)), hidden @ head.output.weight.T)


def test_a_narrow_embedding_is_reached_by_a_map_or_by_the_transform(head_of, hidden):
    narrow = embedding(E)
    mapped = head_of(embedding_size=E, output_scaled=True, head_bias=False)
    assert_close(mapped(hidden, narrow), mapped.transform(hidden) @ narrow.T / E**0.5)
    head = head_of(embedding_size=E, head_transform=True, head_bias=False)
    dense, norm = head.transform.dense, head.transform.norm
    inner = F.layer_norm(F.gelu(F.linear(hidden, dense.weight, dense.bias)), (E,), norm.weight, norm.bias, 1e-12)
    assert_close(head(hidden, narrow), inner @ narrow.T)
