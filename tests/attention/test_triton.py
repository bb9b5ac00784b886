"""The Triton kernel in Triton's interpreter, against the reference; and that its programs compile for real GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from attention import talking_heads
from attention.kernels import triton_kernel
from attention.kernels.problem import Problem
from attention.layers.attend import Projection, choose
from tests.attention.test_kernels import SEEDS, check_equal, run, saved_numbers, tensors

pytest.importorskip("triton", reason="Triton isn't installed: the extra `test` brings it on Linux")
if not triton_kernel.interpreted():
    pytest.skip("there is a GPU: test_cuda.py runs the programs on it", allow_module_level=True)

# numpy's warning for log(0) in a row that may attend nowhere
pytestmark = pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")

BOTH = ("logits.static", "weights.static")


def tile(rows: int, columns: int):
    """Larger tiles than on a GPU, because the interpreter is faster with them."""
    return mock.patch.multiple(triton_kernel, ROWS=rows, COLUMNS=columns)


@pytest.mark.parametrize(
    ("terms", "heads", "length", "causal"),  # every mixing is causal and not; so is every length
    [
        (BOTH, (3, 5, 2), 1, False),
        (BOTH, (3, 5, 2), 63, True),
        (BOTH[:1], (17, 3, 3), 7, True),
        (BOTH[:1], (17, 3, 3), 63, False),
        (BOTH[1:], (2, 2, 3), 7, False),
        (BOTH[1:], (2, 2, 3), 63, True),
        ((), (3, 3, 3), 1, True),
        ((), (3, 3, 3), 63, False),
    ],
)
def test_odd_sizes_with_padding_and_a_fully_masked_example(length, causal, terms, heads):
    leaves = tensors((3, length, length, 4, 5), heads, terms)
    mask = torch.ones(3, 1, 1, length, dtype=torch.bool)
    mask[0, ..., length // 2 :] = False
    mask[1] = False
    with tile(64, 64) if length == 63 else tile(16, 16):
        check_equal(leaves, "triton", mask=mask, causal=causal)


@st.composite
def cases(draw: st.DrawFn):
    B, N, M, K, V = (draw(st.integers(1, size)) for size in (2, 40, 40, 20, 20))
    terms = draw(st.sampled_from([(), BOTH[:1], BOTH[1:], BOTH]))
    h_k, h, h_v = (draw(st.integers(1, 18)) for _ in range(3))
    h = h if BOTH[0] in terms else h_k
    h_v = h_v if BOTH[1] in terms else h
    leaves = tensors((B, N, M, K, V), (h_k, h, h_v), terms)
    shape = draw(st.sampled_from([None, (B, 1, 1, M)]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    mask = None if shape is None else torch.rand(shape, generator=generator) < 0.6
    options = {"mask": mask, "causal": draw(st.booleans()), "scale": draw(st.sampled_from([None, 1.0]))}
    return leaves, options | {"dropout": draw(st.sampled_from([0.0, 0.4])), "dropout_seed": draw(SEEDS)}


@settings(max_examples=5, deadline=None)
@given(cases(), st.sampled_from([(16, 16), (32, 16), (16, 64)]))
def test_equals_the_reference_whatever_the_tile(case, shape):
    leaves, options = case
    with tile(*shape):
        check_equal(leaves, "triton", **options)


def test_inputs_that_are_views_and_a_gradient_that_is_one():
    leaves = tensors((2, 5, 6, 4, 3), (2, 3, 2), BOTH)
    views = {name: leaf.transpose(-1, -2).contiguous().transpose(-1, -2) for name, leaf in leaves.items()}
    expected = run(leaves, "reference").sum()
    got = run(views, "triton").expand(2, -1, -1, -1, -1)[0].sum()
    pairs = zip(*(torch.autograd.grad(each, list(leaves.values())) for each in (got, expected)), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other)


def test_a_row_that_may_attend_nowhere_is_zero_and_sends_no_gradient():
    leaves = tensors((2, 5, 6, 4, 3), (2, 3, 2), BOTH)
    output = run(leaves, "triton", mask=torch.tensor([True, False])[:, None, None, None].expand(2, 1, 1, 6))
    assert output[1].eq(0).all() and output[0].ne(0).all()
    query, key, value, *_ = torch.autograd.grad(output.sum(), list(leaves.values()))
    assert all(grad[1].eq(0).all() and grad[0].ne(0).any() and grad.isfinite().all() for grad in (query, key, value))


def test_a_nan_is_not_hidden():
    leaves = tensors((1, 3, 4, 2, 2), (2, 2, 2), BOTH)
    with torch.no_grad():
        leaves["query"][0, 1, 0, 0] = float("nan")
    output = run(leaves, "triton")
    assert output[:, 1].isnan().all() and output[:, ::2].isfinite().all()


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 0.01), (torch.float16, 0.005)])
def test_each_type_is_as_near_to_float64_as_its_digits_allow(dtype, bound):
    leaves = tensors((2, 33, 35, 8, 6), (4, 5, 3), BOTH, dtype=dtype)
    exact = {name: leaf.detach().double().requires_grad_() for name, leaf in leaves.items()}
    with tile(64, 64):
        output, expected = run(leaves, "triton"), run(exact, "reference")
        grads = torch.autograd.grad(output.double().square().sum(), list(leaves.values()))
    wanted = torch.autograd.grad(expected.square().sum(), list(exact.values()))
    for one, other in zip([output, *grads], [expected, *wanted], strict=True):
        assert one.dtype == dtype
        assert (one.double() - other).norm() < 2 * bound * other.norm()


def test_under_autocast_it_computes_in_bf16_and_the_projections_get_float32_gradients():
    leaves = tensors((2, 9, 9, 8, 8), (4, 4, 4), BOTH, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = run(leaves, "triton")
    grads = torch.autograd.grad(output.float().sum(), list(leaves.values()))
    assert output.dtype == torch.bfloat16 and all(grad.dtype == torch.float32 for grad in grads)


def test_the_gradients_are_the_derivatives_with_the_same_weights_dropped():
    """Finite differences agree only if all passes drop the same weights, whatever their tiles."""
    leaves = tensors((1, 3, 4, 2, 3), (2, 3, 2), BOTH)

    def function(*values: torch.Tensor) -> torch.Tensor:
        return run(dict(zip(leaves, values, strict=True)), "triton", dropout=0.4, dropout_seed=3)

    assert torch.autograd.gradcheck(function, list(leaves.values()), fast_mode=True)


def test_dropout_has_its_share_follows_the_seed_and_does_not_follow_the_tile():
    leaves = tensors((2, 60, 60, 2, 1), (2, 2, 2))
    ones = leaves | {"value": torch.ones_like(leaves["value"])}

    with tile(64, 64):
        first, other = (run(ones, "triton", dropout=0.25, dropout_seed=seed) for seed in (1, 2))
    with tile(16, 32):
        again = run(ones, "triton", dropout=0.25, dropout_seed=1)
    torch.testing.assert_close(first, again)
    # the weights of a row sum to 1; so does their mean over 240 rows
    assert abs(first.mean() - 1) < 0.03 and first.std() > 0.01 and not torch.equal(first, other)
    # two heads and two examples drop different weights
    assert not torch.allclose(first[0], first[1]) and not torch.allclose(first[:, :, 0], first[:, :, 1])


def test_the_same_inputs_give_the_same_bits():
    leaves = tensors((2, 20, 20, 4, 4), (3, 3, 3), BOTH, dtype=torch.float32)
    one, two = (torch.autograd.grad(run(leaves, "triton").square().sum(), list(leaves.values())) for _ in range(2))
    assert all(map(torch.equal, one, two))


def test_beside_its_inputs_it_keeps_one_sum_a_row_and_head():
    leaves = tensors((2, 40, 50, 4, 4), (3, 5, 3), BOTH)
    assert saved_numbers(leaves, "triton") == 2 * 5 * 40


def test_it_refuses_a_second_derivative():
    leaves = tensors((1, 3, 4, 2, 2), (2, 2, 2), BOTH)
    (grad,) = torch.autograd.grad(run(leaves, "triton").square().sum(), leaves["query"], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


@pytest.mark.parametrize("sizes", [(0, 3, 3, 2, 2), (2, 0, 3, 2, 2), (2, 3, 0, 2, 2)])
def test_empty_tensors_give_empty_or_zero_output_and_gradients(sizes):
    leaves = tensors(sizes, (2, 2, 2), BOTH)
    output = run(leaves, "triton")
    assert output.shape == (sizes[0], sizes[1], 2, 2) and output.eq(0).all()
    assert all(grad.eq(0).all() for grad in torch.autograd.grad(output.sum(), list(leaves.values())))


def test_tensors_without_data_go_through():
    leaves = tensors((3, 9, 11, 4, 5), (2, 3, 4), BOTH)
    for without_data in (torch.device("meta"), FakeTensorMode()):
        with without_data:
            empty = {name: torch.empty(leaf.shape).requires_grad_() for name, leaf in leaves.items()}
            output = run(empty, "triton", dropout=0.1, dropout_seed=1)
            grads = torch.autograd.grad(output.sum(), list(empty.values()))
        assert output.shape == (3, 9, 4, 5) and [grad.shape for grad in grads] == [
            leaf.shape for leaf in leaves.values()
        ]


def test_a_layer_runs_on_it_and_names_its_kernel():
    layer = talking_heads.Attention(12, 3, 5, 2, 4, 3, backend="triton")
    x = torch.randn(2, 7, 12)
    output, kernel, layer.backend = layer(x), layer.kernel, "reference"
    torch.testing.assert_close(output, layer(x))
    assert kernel == "triton"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bias": torch.zeros(1, 1, 5, 4)}, "it takes no bias"),
        ({"mask": torch.ones(1, 1, 5, 4, dtype=torch.bool)}, r"a mask of memory positions only, \[B, 1, 1, M\]"),
        ({"mask": torch.ones(2, 1, 1, 1, dtype=torch.bool)}, r"a mask of memory positions only, \[B, 1, 1, M\]"),
        ({"weights_projection": Projection(query=torch.zeros(2, 5, 3, 3))}, "by static projections only"),
        ({"value": torch.zeros(2, 4, 3, 5).half()}, r"one type, not torch\.float16 and torch\.float32"),
        (
            {"query": torch.zeros(2, 5, 3, 0), "key": torch.zeros(2, 4, 3, 0), "scale": 1.0},
            "a key size and a value size",
        ),
    ],
)
def test_what_it_cannot_do_it_refuses_by_name(change, message):
    arguments = {"query": torch.zeros(2, 5, 3, 7), "key": torch.zeros(2, 4, 3, 7), "value": torch.zeros(2, 4, 3, 5)}
    case = Problem.of(**{**arguments, **change})
    with pytest.raises(ValueError, match=f"backend: triton can't do this: .*{message}"):
        choose("triton", case)


@pytest.mark.parametrize(
    ("device", "kernels"), [("cpu", {"blocked", "compiled", "sdpa"}), ("cuda", {"blocked", "sdpa"})]
)
def test_auto_does_not_take_it(device, kernels):
    """On a GPU, auto chooses only kernels that consist of torch's own operators."""
    with FakeTensorMode(), torch.device(device):
        tensor, eye = torch.zeros(1, 5, 2, 4), Projection(torch.eye(2))
        problems = (Problem.of(tensor, tensor, tensor, logits_projection=mixing) for mixing in (eye, None))
        assert {choose("auto", problem) for problem in problems} <= kernels


def test_without_triton_or_a_gpu_it_says_so(monkeypatch):
    monkeypatch.setattr(triton_kernel, "interpreted", lambda: False)
    assert triton_kernel.absence(torch.device("cpu")) == "it runs on a CUDA GPU, not on cpu"
    monkeypatch.setattr(triton_kernel, "programs", lambda: None)
    assert "Triton isn't installed" in triton_kernel.absence(torch.device("cuda"))


COMPILE = Path(__file__).with_name("compile_triton.py")


@pytest.mark.campaign
def test_the_kernel_says_what_shared_memory_its_programs_ask_of_a_gpu(tmp_path, tries):
    """Compile the programs, because the interpreter accepts what the compiler doesn't, such as a tile of 3 x 5.

    The small campaign compiles two shapes for one GPU, in a minute. The large one compiles twenty for four, in an hour.
    """
    shapes, gpus = tries(2, 20), ["80", "89", "90", "100"][: tries(1, 4)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TRITON")}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    command = [sys.executable, str(COMPILE), str(shapes), *gpus]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=7200)
    assert done.returncode == 0, done.stderr
    cases = [json.loads(line) for line in done.stdout.splitlines()]
    assert len({each["case"] for each in cases}) == len(gpus) * shapes
    for each in cases:
        # the three programs that it was asked about are those that ran: none is compiled twice
        assert each["compiled"] == 3 and each["fits"] == each["ran"], each
        assert not each["ran"] or (len(each["loaded"]) == 3 and each["said"] == max(each["loaded"])), each
        assert not each["ran"] or each["tensor_cores"] != ("float32" in each["case"]), each
