"""What the blocked kernel promises besides the numbers of the reference: gradients, memory and products."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from attention.kernels import blocked
from tests.attention.kernels.test_kernels import ALL_TERMS, STATIC_TERMS, run, tensors


@pytest.mark.parametrize(
    ("terms", "dropout"), [(ALL_TERMS, 0.0), (ALL_TERMS, 0.4), (STATIC_TERMS, 0.4), ((), 0.0), ((), 0.4)]
)
def test_blocked_gradients_are_the_derivatives_with_dropout_drawn_again(dropout, terms):
    """Finite differences agree only if both directions drop the same weights."""
    leaves = tensors((2, 3, 4, 2, 3), (2, 3, 2) if terms else (2, 2, 2), terms, bias_shape=(1, 1, 3, 4))
    mask = torch.ones(1, 1, 3, 4, dtype=torch.bool)
    mask[..., 0, 2:], mask[..., 2, :] = False, False

    def function(*values: Tensor) -> Tensor:
        return run(dict(zip(leaves, values, strict=True)), "blocked", mask=mask, dropout=dropout, dropout_seed=3)

    with mock.patch.dict(blocked.BLOCK_BYTES, cpu=200):
        assert torch.autograd.gradcheck(function, list(leaves.values()), fast_mode=True)


def test_the_backward_of_blocked_may_run_under_another_autocast():
    leaves = tensors((2, 5, 5, 4, 4), (2, 2, 2), ("logits.static",), dtype=torch.float32)
    outside = torch.autograd.grad(run(leaves, "blocked").sum(), list(leaves.values()))
    output = run(leaves, "blocked").sum()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = torch.autograd.grad(output, list(leaves.values()))
    assert all(map(torch.equal, inside, outside))


def saved_numbers(leaves: dict[str, Tensor], backend: str) -> int:
    """How many numbers the graph keeps besides the leaves."""
    saved: dict[int, int] = {}
    own = {leaf.untyped_storage().data_ptr() for leaf in leaves.values()}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in own:
            saved[tensor.untyped_storage().data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = run(leaves, backend)
    del output
    return sum(saved.values())


def measured(leaves: dict[str, Tensor], backend: str, **options) -> tuple[int, int]:
    """(peak, results): most bytes allocated at once by a forward and a backward; those of the output and gradients."""
    shape = *leaves["query"].shape[:2], *leaves["value"].shape[2:]
    weight = torch.ones(shape, dtype=leaves["value"].dtype)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        output = run(leaves, backend, **options)
        grads = torch.autograd.grad(output, list(leaves.values()), weight)
    now = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return peak, sum(tensor.nbytes for tensor in (output, *grads))


def peak_bytes(backend: str, B: int, N: int) -> int:
    leaves = tensors((B, N, N, 4, 4), (8, 8, 8), ("logits.static", "weights.static"), dtype=torch.float32)
    return measured(leaves, backend)[0]


def test_blocked_saves_its_inputs_only_and_needs_the_maps_of_one_block():
    leaves = tensors((3, 16, 16, 4, 4), (8, 8, 8), ("logits.static", "weights.static"), dtype=torch.float32)
    assert saved_numbers(leaves, "reference") > 3 * 8 * 16 * 16 and saved_numbers(leaves, "blocked") == 0
    # a query of an example, in bytes; its map is 16 times as large at length 64 and 64 times at 256
    query = 64 * 8 * 4 * 4
    with mock.patch.dict(blocked.BLOCK_BYTES, cpu=2**17):
        assert peak_bytes("blocked", 8, 64) < 8 * 10 * query + 10 * 2**17
        assert peak_bytes("blocked", 48, 64) - peak_bytes("blocked", 8, 64) < 40 * 10 * query
        assert peak_bytes("blocked", 2, 256) < 2 * 10 * (4 * query) + 10 * 2**17
    assert peak_bytes("reference", 48, 64) - peak_bytes("reference", 8, 64) > 40 * 3 * 16 * query


@pytest.mark.parametrize(
    ("dtype", "dropout", "terms"),  # every pair of values occurs
    [
        (torch.float32, 0.0, ()),
        (torch.float32, 0.1, ("logits.static", "weights.query")),
        (torch.bfloat16, 0.0, ("logits.static", "weights.query")),
        (torch.bfloat16, 0.1, ()),
    ],
)
def test_the_memory_that_blocked_needs_beside_its_results_does_not_grow_with_the_batch(dtype, dropout, terms):
    def extra(B: int) -> int:
        peak, results = measured(
            tensors((B, 64, 64, 16, 16), (8, 8, 8), terms, dtype=dtype), "blocked", dropout=dropout, dropout_seed=1
        )
        return peak - results

    # an eighth of the block, so that 32 examples are several of them
    with mock.patch.dict(blocked.BLOCK_BYTES, cpu=2**18):
        assert extra(128) <= 1.15 * extra(32)


def test_a_half_precision_gradient_is_rounded_once_however_many_blocks_it_is_summed_over():
    """Each of 512 row blocks adds 1/512 to the gradient of the values: summed in bfloat16, it would stop at 1/2."""
    leaves = tensors((2, 512, 1, 2, 2), (1, 1, 1), bias_shape=(1, 1, 1, 1), dtype=torch.bfloat16)
    with mock.patch.dict(blocked.BLOCK_BYTES, cpu=1):
        output = run(leaves, "blocked")
        (grad,) = torch.autograd.grad(output, leaves["value"], torch.full_like(output, 1 / 512))
    assert grad.eq(1).all()


def test_blocked_refuses_a_second_derivative():
    leaves = tensors((1, 3, 4, 2, 2), (2, 2, 2))
    (grad,) = torch.autograd.grad(run(leaves, "blocked").square().sum(), leaves["query"], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


def test_blocked_computes_the_products_of_the_reference_and_again_in_the_backward():
    leaves = tensors((2, 6, 6, 4, 4), (3, 3, 3), ("logits.static", "weights.static"), dtype=torch.float32)
    counts = {}
    for backend in ("reference", "blocked"):
        with FlopCounterMode(display=False) as counter:
            output = run(leaves, backend)
        forward = counter.get_total_flops()
        with FlopCounterMode(display=False) as counter:
            output.sum().backward()
        counts[backend] = forward, counter.get_total_flops()
    value_product = 2 * 2 * 6 * 6 * 3 * 4
    assert counts["blocked"][0] == counts["reference"][0]
    assert counts["blocked"][1] == counts["reference"][1] + counts["reference"][0] - value_product


def test_a_compiled_function_calls_the_blocked_kernel_as_it_is():
    leaves, targets = tensors((2, 5, 6, 2, 3), (2, 2, 2)), []

    def record(graph, _):
        targets.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    def function(query: Tensor) -> Tensor:
        return run({**leaves, "query": query.sin()}, "blocked").cos()

    compiled = torch.compile(function, backend=record)(leaves["query"])
    assert torch.equal(compiled, function(leaves["query"]))
    assert {"sin", "cos"} <= {*targets} and not any("exp" in each or "mm" in each for each in targets)
