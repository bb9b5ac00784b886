"""Muon: with products in bfloat16 it is torch's own, and an update has the singular vectors of its matrix."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from experiments.training.step.optimizers.kinds import muon
from experiments.training.step.optimizers.kinds.muon import Muon, orthogonalized


@pytest.mark.parametrize("nesterov", [True, False])
def test_with_products_in_bfloat16_it_is_that_of_torch_bit_by_bit(nesterov):
    generator = torch.Generator().manual_seed(0)
    matrices = [torch.randn(shape, generator=generator) for shape in ((6, 6), (5, 9), (9, 5), (1, 4))]
    ours, theirs = ([matrix.clone().requires_grad_() for matrix in matrices] for _ in range(2))
    mine = Muon(ours, 0.1, 0.3, momentum=0.9, nesterov=nesterov, newton_schulz_steps=5, products=torch.bfloat16)
    torchs = torch.optim.Muon(theirs, 0.1, 0.3, 0.9, nesterov, ns_steps=5, adjust_lr_fn="match_rms_adamw")
    for rate in (0.1, 0.0, 0.2, 0.1):
        for our, their in zip(ours, theirs, strict=True):
            our.grad = torch.randn(our.shape, generator=generator)
            their.grad = our.grad.clone()
        mine.param_groups[0]["lr"] = torchs.param_groups[0]["lr"] = rate
        mine.step()
        torchs.step()
        assert all(map(torch.equal, ours, theirs))


@pytest.mark.parametrize("shape", [(7, 7), (5, 8), (8, 5), (1, 3)])
def test_singular_values_become_one_and_singular_vectors_stay(shape):
    generator = torch.Generator().manual_seed(1)
    matrix = torch.randn(shape, generator=generator, dtype=torch.float64)
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    found = left.mT @ orthogonalized(matrix, 8) @ right.mT
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, found.diagonal().diag(), atol=1e-12, rtol=0)
    assert found.diagonal().min() > 0.65 and found.diagonal().max() < 1.25
    torch.testing.assert_close(orthogonalized(1e6 * matrix, 8), orthogonalized(matrix, 8))


@pytest.mark.parametrize("shape", [(4, 7), (7, 4)])
@pytest.mark.parametrize("nesterov", [True, False])
def test_matrices_that_are_updated_together_are_updated_as_each_alone(monkeypatch, shape, nesterov):
    generator = torch.Generator().manual_seed(2)
    start = [scale * torch.randn(shape, generator=generator, dtype=torch.float64) for scale in (1, 1e3, 1e-3)]
    alone, together = ([matrix.clone().requires_grad_() for matrix in start] for _ in range(2))
    options = {"lr": 0.1, "weight_decay": 0.3, "momentum": 0.9, "nesterov": nesterov, "newton_schulz_steps": 5}
    one, other = Muon(alone, **options), Muon(together, **options)
    for _ in range(3):
        for first, second in zip(alone, together, strict=True):
            first.grad = torch.randn(shape, generator=generator, dtype=torch.float64)
            second.grad = first.grad.clone()
        one.step()
        with monkeypatch.context() as patch:
            patch.setattr(muon, "at_once", lambda parameters: [parameters])
            other.step()
        torch.testing.assert_close(alone, together)


class Products(TorchDispatchMode):
    """Counts products of matrices, or of stacks of them."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function.overloadpacket.__name__ in ("mm", "addmm", "bmm", "baddbmm")
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(("device", "products"), [("cpu", 6 * 3 * 5), ("cuda", 3 * 3 * 5)])
def test_a_gpu_multiplies_all_matrices_of_a_shape_at_once(device, products):
    with FakeTensorMode():
        shapes = ((4, 4), (4, 9), (9, 4), (4, 4), (4, 9), (4, 4), (5, 5))
        matrices = [torch.empty(shape, device=device) for shape in shapes]
        for matrix in matrices[:-1]:
            matrix.grad = torch.empty_like(matrix)
        with Products() as counted:
            Muon(matrices, 0.1, momentum=0.9, nesterov=True, newton_schulz_steps=5).step()
    assert counted.count == products


def test_a_matrix_of_zeros_stays_zero():
    assert orthogonalized(torch.zeros(3, 4), 5).eq(0).all()
