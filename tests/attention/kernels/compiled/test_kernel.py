"""The compiled kernel: it equals the reference at sizes around those of its tiles, and repeats its bits."""

from __future__ import annotations

import pytest
import torch

from attention.kernels.compiled import kernel
from attention.kernels.problem import Projection
from attention.layers.attend import attend
from experiments.measure.cores import cpu_field


@pytest.fixture
def threads(monkeypatch):
    """threads(N): let torch use N threads, which share examples of any size. It starts with two, and is undone."""
    monkeypatch.setattr(kernel, "SHARED_WEIGHTS", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield torch.set_num_threads
    torch.set_num_threads(before)


def leaves(B: int, N: int, heads: tuple[int, int, int], K: int, V: int, dtype: torch.dtype = torch.float64):
    generator = torch.Generator().manual_seed(1)
    h_k, h, h_v = heads
    shapes = [(B, N, h_k, K), (B, N, h_k, K), (B, N, h_v, V), (h_k, h), (h, h_v)]
    return [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]


def run(tensors: list[torch.Tensor], backend: str, **options) -> list[torch.Tensor]:
    """The output and its gradients."""
    query, key, value, logits, weights = tensors
    projections = {"logits_projection": Projection(logits), "weights_projection": Projection(weights)}
    output = attend(query, key, value, **projections, backend=backend, **options)
    weight = torch.linspace(-1, 1, output.numel(), dtype=torch.float64).view_as(output).to(output.dtype)
    return [output.detach(), *torch.autograd.grad(output, tensors, weight)]


# heads and sizes below, at and above the registers' blocks, rows those of a tile; fewer examples than threads
SIZES = [
    (1, 129, (9, 13, 4), 17, 33),
    (1, 1, (1, 1, 1), 1, 1),
    (3, 63, (24, 24, 24), 16, 16),
    (2, 65, (8, 12, 16), 8, 64),
    (1, 1100, (2, 3, 2), 4, 4),
]


# all of causal and padded at one size, one of the two at the others
@pytest.mark.parametrize(
    ("B", "N", "heads", "K", "V", "causal", "padded"),
    [
        *((*SIZES[0], both, both) for both in (False, True)),
        *((*sizes, causal, not causal) for sizes in SIZES for causal in (False, True)),
    ],
)
def test_equals_the_reference(threads, B, N, heads, K, V, causal, padded):
    tensors = leaves(B, N, heads, K, V)
    mask = torch.ones(B, 1, 1, N, dtype=torch.bool)
    mask[0, ..., N // 2 + 1 :] = False
    options = {"causal": causal, "mask": mask if padded else None}
    results = zip(run(tensors, "compiled", **options), run(tensors, "reference", **options), strict=True)
    for got, expected in results:
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-10)


def test_a_projection_of_another_dtype_is_refused_and_never_read_as_one():
    query, key, value, logits, weights = leaves(1, 5, (3, 3, 3), 4, 4)
    for projections in (
        {"logits_projection": Projection(logits.float())},
        {"weights_projection": Projection(weights.float())},
    ):
        with pytest.raises(ValueError, match=r"needs one dtype of .*, not torch.float32 and torch.float64"):
            attend(query, key, value, **projections, backend="compiled")


@pytest.mark.parametrize(("heads", "B", "N", "K"), [(6, 2, 100, 8), (24, 1, 128, 16), (4, 2, 257, 32), (3, 1, 33, 5)])
def test_is_as_exact_as_its_dtype(heads, B, N, K):
    """In bf16 it is at most a fifth less exact than the reference, which rounds every map to bf16."""
    exact = leaves(B, N, (heads, heads, heads), K, K)
    for projection in exact[3:]:
        projection.data *= heads**-0.5

    def errors(dtype: torch.dtype, backend: str) -> list[float]:
        tensors = [tensor.detach().to(dtype).requires_grad_() for tensor in exact]
        wide = [tensor.detach().double().requires_grad_() for tensor in tensors]
        got, expected = run(tensors, backend, scale=K**-0.5), run(wide, "reference", scale=K**-0.5)
        return [float((g.double() - e).norm() / e.norm()) for g, e in zip(got, expected, strict=True)]

    assert max(errors(torch.float32, "compiled")) < 2e-6
    pairs = zip(errors(torch.bfloat16, "compiled"), errors(torch.bfloat16, "reference"), strict=True)
    assert all(mine < 1.2 * reference for mine, reference in pairs)


@pytest.mark.parametrize("B", [1, 2, 3])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_the_same_again_is_the_same_bit_by_bit(threads, B, dropout):
    tensors = leaves(B, 200, (6, 6, 6), 8, 8, torch.float32)
    results = [run(tensors, "compiled", dropout=dropout, dropout_seed=4) for _ in range(3)]
    assert all(torch.equal(one, other) for each in results[1:] for one, other in zip(results[0], each, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_more_threads_than_examples_share_their_sums_in_one_order(threads, dtype, causal):
    """With 2 threads, each computes one example before they share the third; 9 threads share all, several at a time."""
    tensors = leaves(3, 90, (5, 7, 3), 9, 5, dtype)

    def results(number: int) -> list[torch.Tensor]:
        threads(number)
        return run(tensors, "compiled", causal=causal)

    alone = results(1)
    for number in (2, 9):
        got, again = results(number), results(number)
        assert all(map(torch.equal, got, again))
        *shared, logits, weights = got
        assert all(map(torch.equal, shared, alone[:4]))
        torch.testing.assert_close([logits, weights], alone[4:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("B", "N", "M", "H", "K"), [(3, 90, 90, 5, 9), (1, 430, 310, 3, 16), (1, 600, 600, 4, 8)])
def test_heads_that_do_not_mix_have_the_same_bits_for_any_number_of_threads(threads, dtype, causal, B, N, M, H, K):
    """A tile has one head if threads compute heads, and all if they share an example; the rows then are fewer."""
    query, key, _, _, _ = leaves(B, max(N, M), (H, H, H), K, K, dtype)
    tensors = [tensor.detach().requires_grad_() for tensor in (query[:, :N], key[:, :M], key[:, -M:])]

    def results(number: int) -> list[torch.Tensor]:
        threads(number)
        output = attend(*tensors, causal=causal, backend="compiled")
        return [output, *torch.autograd.grad(output.float().square().sum(), tensors)]

    alone = results(1)
    assert all(torch.equal(got, one) for number in (2, 9) for got, one in zip(results(number), alone, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("mixes", "examples"), [(False, 1), (True, 1), (True, 3)])
def test_threads_add_the_gradient_of_a_bias_in_one_order(threads, dtype, mixes, examples):
    """All examples share it, or each has its own; 2 threads compute it by heads, or share an example, as 9 do."""
    tensors = leaves(3, 90, (5, 5, 5), 9, 5, dtype)
    generator = torch.Generator().manual_seed(2)
    bias = torch.randn(examples, 5, 90, 90, generator=generator, dtype=dtype).requires_grad_()
    projections = {"logits_projection": Projection(tensors[3])} if mixes else {}

    def gradient(number: int, dtype: torch.dtype = dtype, backend: str = "compiled") -> torch.Tensor:
        threads(number)
        inputs = [tensor.to(dtype) for tensor in tensors[:3]]
        matrices = {name: Projection(each.static.to(dtype)) for name, each in projections.items()}
        output = attend(*inputs, **matrices, bias=bias.to(dtype), scale=0.3, backend=backend)
        return torch.autograd.grad(output.float().square().sum(), bias)[0]

    alone = gradient(1)
    assert all(torch.equal(gradient(number), alone) for number in (2, 3, 9))
    exact = gradient(1, torch.float64, "reference")
    assert (alone - exact).norm() < (1e-5 if dtype == torch.float32 else 2e-2) * exact.norm()


def test_all_logits_may_come_from_a_bias():
    """Then keys have width 0, as those of multi-token attention do."""
    query, value = torch.randn(2, 33, 3, 0).double(), torch.randn(2, 33, 3, 5).double().requires_grad_()
    bias = torch.randn(2, 3, 33, 33).double().requires_grad_()
    outputs = [attend(query, query, value, bias=bias, scale=1.0, backend=each) for each in ("compiled", "reference")]
    gradients = [torch.autograd.grad(output.square().sum(), (value, bias)) for output in outputs]
    torch.testing.assert_close(*outputs), torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("B", [1, 4])
@pytest.mark.parametrize("mixes", [False, True])
def test_the_workspace_is_bounded_by_the_inputs_whatever_the_threads(threads, B, mixes):
    tensors = [tensor.detach().bfloat16() for tensor in leaves(B, 1024, (24, 24, 24), 32, 32)]
    matrices = tensors[3:] if mixes else [None, None]
    # without instructions for bfloat16, the kernel holds its numbers as float32
    bytes_held = 2 if "avx512_bf16" in cpu_field("flags").split() else 4
    inputs = bytes_held * sum(tensor.numel() for tensor in tensors[:3])

    def workspace(number: int) -> int:
        threads(number)
        each = kernel._Tensors(*tensors[:3], *matrices, None, None, None)
        return kernel._Arguments(each, causal=False, scale=1.0, dropout=0.0).workspace_bytes(backward=True)

    sizes = [workspace(number) for number in (1, 2, 8, 64, 512)]
    assert sizes == sorted(sizes) and sizes[0] < 3 * inputs and sizes[-1] < 12 * inputs


def test_dropout_is_drawn_again_in_the_backward():
    """Finite differences agree only if both directions drop the same weights."""
    tensors = leaves(2, 5, (2, 3, 2), 2, 3)

    def function(*values: torch.Tensor) -> torch.Tensor:
        query, key, value, logits, weights = values
        projections = {"logits_projection": Projection(logits), "weights_projection": Projection(weights)}
        return attend(query, key, value, **projections, dropout=0.4, dropout_seed=3, backend="compiled")

    assert torch.autograd.gradcheck(function, tensors)


def test_dropout_takes_weights_with_the_probability_asked_for_and_independently():
    """With equal logits and the identity for values, the output is the weights: 1 / (N keep_scale) where kept."""
    N = 512
    query, value = torch.zeros(2, N, 3, 1), torch.eye(N).view(1, N, 1, N).expand(2, N, 3, N)
    kept = attend(query, query, value, dropout=0.1, dropout_seed=1, backend="compiled") > 0
    assert kept.float().mean().item() == pytest.approx(0.9, abs=0.002)
    for axis in range(4):
        along = kept.float() - 0.9
        neighbours = (along * along.roll(1, axis)).mean() / 0.09
        assert abs(neighbours) < 0.005, axis


def test_nothing_is_kept_for_the_backward_but_the_inputs_and_the_memory_is_linear(threads):
    def extra(B: int, N: int) -> int:
        """Most bytes allocated at once, without output and gradients."""
        tensors = leaves(B, N, (8, 8, 8), 4, 4, torch.float32)
        weight = torch.ones(B, N, 8, 4)
        activities = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
            projections = {"logits_projection": Projection(tensors[3]), "weights_projection": Projection(tensors[4])}
            output = attend(*tensors[:3], **projections, backend="compiled")
            results = [output, *torch.autograd.grad(output, tensors, weight)]
        now = peak = 0
        for event in profile.profiler.kineto_results.events():
            if event.name() == "[memory]":
                now += event.nbytes()
                peak = max(peak, now)
        return peak - sum(result.nbytes for result in results)

    # of every example, the gradients of the two projections
    assert extra(64, 64) < extra(8, 64) + 64 * 2 * 8 * 8 * 4 + 4096
    longest = extra(2, 1024)
    assert longest < 2.2 * extra(2, 512) < 5 * extra(2, 256)
    assert longest < 8 * 1024**2 * 4 / 4


def test_a_second_derivative_is_refused():
    tensors = leaves(1, 3, (2, 2, 2), 2, 2)
    output = attend(*tensors[:3], backend="compiled").square().sum()
    (grad,) = torch.autograd.grad(output, tensors[0], create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(grad.sum(), tensors[0])
