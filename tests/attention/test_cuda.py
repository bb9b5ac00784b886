"""The Triton kernel on a real GPU: the numbers of the reference, the same bits twice, memory linear in the length."""

from __future__ import annotations

import pytest
import torch

from attention.kernels import triton_kernel
from attention.kernels.problem import Projection
from attention.layers.attend import attend

if not torch.cuda.is_available():
    pytest.skip("there is no GPU; test_triton.py runs the programs in Triton's interpreter", allow_module_level=True)
ABSENCE = triton_kernel.absence(torch.device("cuda"))
if ABSENCE is not None or triton_kernel.interpreted():
    pytest.skip(ABSENCE or "TRITON_INTERPRET=1 keeps the programs off the GPU", allow_module_level=True)

SIZES = [  # B, N, M, K, V; h_k, h, h_v
    ((2, 1, 1, 32, 32), (12, 12, 12)),
    ((2, 63, 65, 20, 24), (3, 5, 2)),
    ((2, 512, 512, 64, 64), (12, 12, 12)),
    ((1, 512, 512, 32, 32), (24, 24, 24)),
    ((1, 2048, 2048, 32, 32), (24, 24, 24)),
]


def leaves(sizes: tuple[int, ...], heads: tuple[int, ...], dtype: torch.dtype) -> list[torch.Tensor]:
    """Query, key, value, P_l and P_w, random."""
    (B, N, M, K, V), (h_k, h, h_v) = sizes, heads
    generator = torch.Generator("cuda").manual_seed(0)
    shapes = ((B, N, h_k, K), (B, M, h_k, K), (B, M, h_v, V), (h_k, h), (h, h_v))
    scales = (1.0, 1.0, 1.0, h_k**-0.5, h**-0.5)
    return [
        (scale * torch.randn(shape, generator=generator, device="cuda")).to(dtype).requires_grad_()
        for shape, scale in zip(shapes, scales, strict=True)
    ]


def results(tensors: list[torch.Tensor], backend: str, **options) -> list[torch.Tensor]:
    """The output and all gradients."""
    query, key, value, P_l, P_w = tensors
    projections = {"logits_projection": Projection(P_l), "weights_projection": Projection(P_w)}
    output = attend(query, key, value, **projections, backend=backend, **options)
    weight = torch.linspace(-1, 1, output.numel(), device="cuda").view_as(output).to(output.dtype)
    return [output.detach(), *torch.autograd.grad(output, tensors, weight)]


def skip_if_refused(tensors: list[torch.Tensor]) -> None:
    """Skip a problem that the kernel refuses: too many heads for the GPU's shared memory, or many heads in float32."""
    try:
        results([each[:, :1] if each.ndim == 4 else each for each in tensors], "triton")
    except ValueError as refusal:
        pytest.skip(str(refusal))


@pytest.mark.parametrize(("sizes", "heads"), SIZES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-4), (torch.bfloat16, 0.03), (torch.float16, 0.01)])
def test_the_numbers_are_those_of_the_reference_in_float64(sizes, heads, causal, dtype, bound):
    tensors = leaves(sizes, heads, dtype)
    skip_if_refused(tensors)
    mask = torch.rand(sizes[0], 1, 1, sizes[2], device="cuda") < 0.8
    mask[0, ..., 0] = True
    got = results(tensors, "triton", mask=mask, causal=causal)
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    expected = results(exact, "reference", mask=mask, causal=causal)
    for one, other in zip(got, expected, strict=True):
        # of one position the weights are all 1 and some gradients 0
        assert (one.double() - other).norm() <= bound * other.norm() + 1e-6
    for one, again in zip(got, results(tensors, "triton", mask=mask, causal=causal), strict=True):
        assert torch.equal(one, again)


def test_dropout_has_its_share_and_the_gradient_of_what_it_dropped():
    tensors = leaves((2, 200, 200, 32, 32), (12, 12, 12), torch.bfloat16)
    tensors[2] = torch.ones_like(tensors[2]).requires_grad_()
    tensors[4] = torch.eye(12, device="cuda", dtype=torch.bfloat16).requires_grad_()
    output, *_, grad_value, _, _ = results(tensors, "triton", dropout=0.25, dropout_seed=1)
    for one, other in zip(
        results(tensors, "triton", dropout=0.25, dropout_seed=-7),
        results(tensors, "reference", dropout=0.25, dropout_seed=-7),
        strict=True,
    ):
        assert (one.float() - other.float()).norm() <= 0.05 * other.float().norm()
    assert abs(output.float().mean() - 1) < 0.02 and output.float().std() > 0.01
    weight = torch.linspace(-1, 1, output.numel(), device="cuda").view_as(output)
    # the output is linear in V = 1, so it is the product of V and its gradient, whichever weights were dropped
    torch.testing.assert_close(grad_value.float().sum(), (weight * output.float()).sum(), rtol=0.05, atol=1.0)


def test_the_memory_grows_linearly_with_the_length():
    def extra(length: int) -> int:
        tensors = leaves((1, length, length, 64, 64), (12, 12, 12), torch.bfloat16)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        results(tensors, "triton")
        return torch.cuda.max_memory_allocated() - before

    skip_if_refused(leaves((1, 16, 16, 64, 64), (12, 12, 12), torch.bfloat16))
    extra(128)
    assert extra(4096) < 2.2 * extra(2048)
    # one map of all heads in bf16 would be 12 x 4096 x 4096 x 2 bytes
    assert extra(4096) < 12 * 4096 * 4096
