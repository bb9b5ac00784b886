"""Every kernel against the reference, forward and gradient, and the choice between kernels."""

from __future__ import annotations

import math
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from attention.kernels import blocked
from attention.kernels.compiled import kernel as compiled
from attention.kernels.dropout import keep_scale, kept_weights
from attention.kernels.problem import Problem, Projection
from attention.layers.attend import KERNELS, attend, choose

# the tests in cuda/ look at the one for GPUs
ON_CPU = [name for name in KERNELS if name != "cuda"]
INFINITY = float("inf")


def tensors(
    sizes: tuple[int, ...],
    heads: tuple[int, int, int],
    terms: tuple[str, ...] = (),
    *,
    bias_shape: tuple[int, ...] | None = None,
    dtype: torch.dtype = torch.float64,
) -> dict[str, Tensor]:
    """Random leaves: query, key, value, and those named in `terms`, such as logits.static or weights.query."""
    B, N, M, K, V = sizes
    h_k, h, h_v = heads
    shapes = {"query": (B, N, h_k, K), "key": (B, M, h_k, K), "value": (B, M, h_v, V)}
    for term in terms:
        side, kind = term.split(".")
        mixed = (h_k, h) if side == "logits" else (h, h_v)
        shapes[term] = {"static": (), "query": (B, N), "memory": (B, M)}[kind] + mixed
    if bias_shape is not None:
        shapes["bias"] = bias_shape
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for name, shape in shapes.items()
    }


def run(leaves: dict[str, Tensor], backend: str, **options) -> Tensor:
    projections = {
        f"{side}_projection": Projection(*(leaves.get(f"{side}.{kind}") for kind in Projection._fields))
        for side in ("logits", "weights")
    }
    query, key, value = leaves["query"], leaves["key"], leaves["value"]
    return attend(query, key, value, **projections, backend=backend, **{"bias": leaves.get("bias"), **options})


def check_equal(leaves: dict[str, Tensor], backend: str, **options) -> None:
    """The same output and the same gradients as the reference, all of them finite."""
    results = []
    for kernel in ("reference", backend):
        output = run(leaves, kernel, **options)
        weight = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
        results.append([output, *torch.autograd.grad(output, list(leaves.values()), weight)])
    for name, expected, got in zip(["output", *leaves], *results, strict=True):
        assert expected.isfinite().all(), name
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-11, msg=lambda text, name=name: f"{name}: {text}")


ALL_TERMS = tuple(f"{side}.{kind}" for side in ("logits", "weights") for kind in Projection._fields)

STATIC_TERMS = ("logits.static", "weights.static")


SEEDS = st.integers(-(2**63), 2**63 - 1)


@st.composite
def cases(draw: st.DrawFn, of: tuple[str, ...] = ALL_TERMS) -> tuple[dict[str, Tensor], dict]:
    B, N, M, K, V = (draw(st.integers(1, size)) for size in (3, 7, 7, 4, 4))
    terms = draw(st.sets(st.sampled_from(of)))
    h_k, h, h_v = (draw(st.integers(1, 4)) for _ in range(3))
    h = h if any(term.startswith("logits") for term in terms) else h_k
    h_v = h_v if any(term.startswith("weights") for term in terms) else h
    full = (B, h, N, M)
    partial = st.sampled_from([None, (1, 1, 1, M), (B, 1, 1, M), (1, h, N, M), (B, 1, N, 1), full])
    bias_shape, mask_shape = draw(partial), draw(partial)
    leaves = tensors((B, N, M, K, V), (h_k, h, h_v), tuple(sorted(terms)), bias_shape=bias_shape)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    if bias_shape is not None and draw(st.booleans()):
        with torch.no_grad():
            leaves["bias"][torch.rand(bias_shape, generator=generator) < 0.3] = -INFINITY
    mask = None if mask_shape is None else torch.rand(mask_shape, generator=generator) < 0.6
    options = {"mask": mask, "causal": draw(st.booleans()), "scale": draw(st.sampled_from([None, 1.0]))}
    return leaves, options | {"dropout": draw(st.sampled_from([0.0, 0.4])), "dropout_seed": draw(SEEDS)}


@given(cases(), st.sampled_from([1, 200, 1000, 10**7]))
def test_blocked_equals_the_reference_whatever_the_block(case, block_bytes):
    leaves, options = case
    with mock.patch.dict(blocked.BLOCK_BYTES, cpu=block_bytes):
        check_equal(leaves, "blocked", **options)


@given(cases(STATIC_TERMS), st.integers(1, 3))
def test_compiled_equals_the_reference_whatever_the_threads(case, threads):
    leaves, options = case
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with mock.patch.object(compiled, "SHARED_WEIGHTS", 1):
            check_equal(leaves, "compiled", **options)
    finally:
        torch.set_num_threads(before)


@given(cases())
def test_sdpa_equals_the_reference_where_heads_do_not_mix(case):
    leaves, options = case
    if not any("." in name for name in leaves):
        check_equal(leaves, "sdpa", **options | {"dropout": 0.0})
    else:
        with pytest.raises(ValueError, match="sdpa can't do this: it can't mix heads"):
            run(leaves, "sdpa", **options)


@pytest.mark.parametrize("length", [1, 7, 63])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("backend", "terms", "heads"),
    [("sdpa", (), (3, 3, 3)), ("blocked", (), (3, 3, 3)), ("blocked", ALL_TERMS, (3, 5, 2))],
)
def test_odd_sizes_with_padding_bias_and_a_fully_masked_row(length, causal, backend, terms, heads):
    leaves = tensors((2, length, length, 4, 5), heads, terms, bias_shape=(1, heads[1], length, length))
    mask = torch.ones(2, 1, length, length, dtype=torch.bool)
    mask[0, ..., length // 2 :] = False
    mask[1, :, length // 3] = False
    with mock.patch.dict(blocked.BLOCK_BYTES, cpu=20_000):
        check_equal(leaves, backend, mask=mask, causal=causal)


@pytest.mark.parametrize("sizes", [(2, 7, 7, 4, 5), (1, 3, 5, 2, 2), (1, 5, 3, 2, 2)])
@pytest.mark.parametrize("backend", [name for name in ON_CPU if name != "reference"])
def test_causal_without_a_mask(backend, sizes):
    check_equal(tensors(sizes, (3, 3, 3)), backend, causal=True)


@pytest.mark.parametrize("backend", ON_CPU)
@pytest.mark.parametrize("how", ["mask", "bias"])
def test_a_fully_masked_row_is_zero_and_sends_no_gradient(backend, how):
    leaves = tensors((1, 3, 4, 2, 2), (2, 2, 2), bias_shape=(1, 1, 3, 4))
    mask = torch.ones(1, 1, 3, 4, dtype=torch.bool)
    if how == "mask":
        mask[:, :, 1] = False
    else:
        with torch.no_grad():
            leaves["bias"][:, :, 1] = -INFINITY
    output = run(leaves, backend, mask=mask)
    assert output[:, 1].eq(0).all() and output[:, 0].ne(0).all()
    grads = torch.autograd.grad(output.sum(), list(leaves.values()))
    assert grads[0][:, 1].eq(0).all() and grads[-1][:, :, 1].eq(0).all()
    assert all(grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize("backend", [name for name in ON_CPU if name != "reference"])
@pytest.mark.parametrize("shape", [(1, 2, 4, 5), (3, 1, 4, 5), (1, 1, 1, 5)])
def test_a_bias_that_was_expanded_has_a_gradient_for_each_example_and_head(backend, shape):
    leaves = tensors((3, 4, 5, 3, 3), (2, 2, 2), bias_shape=shape)
    leaves["bias"] = leaves["bias"].detach().expand(3, 2, 4, 5).requires_grad_()
    check_equal(leaves, backend)


@pytest.mark.parametrize("backend", ON_CPU)
def test_a_nan_is_not_hidden(backend):
    leaves = tensors((1, 3, 4, 2, 2), (2, 2, 2), bias_shape=(1, 1, 3, 4))
    with torch.no_grad():
        leaves["bias"][:, :, 1] = float("nan")
    assert run(leaves, backend, bias=leaves["bias"].detach())[:, 1].isnan().all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("backend", [name for name in ON_CPU if name != "sdpa"])
def test_logits_that_overflow_are_not_hidden(backend, causal):
    leaves = tensors((1, 3, 3, 2, 2), (2, 2, 2), dtype=torch.float32)
    with torch.no_grad():
        leaves["query"][:, 1], leaves["key"][:] = 3e38, -3e38
    output = run(leaves, backend, causal=causal, scale=1.0)
    assert output[:, 1].isnan().all()


@pytest.mark.parametrize("backend", [name for name in ON_CPU if name != "sdpa"])
def test_dropout_keeps_the_mean_and_follows_its_seed_alone(backend):
    leaves = tensors((4, 50, 60, 2, 3), (2, 2, 2))
    leaves["value"] = torch.ones_like(leaves["value"])
    state = torch.get_rng_state()
    output, other, again = (run(leaves, backend, dropout=0.25, dropout_seed=seed) for seed in (1, 2, 1))
    # the weights of a row sum to 1; so does their mean over 400 rows after dropout
    assert abs(output.mean() - 1) < 0.03 and output.std() > 0.01
    assert torch.equal(output, again) and not torch.equal(output, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_without_a_scale_logits_are_divided_by_the_root_of_the_key_size():
    leaves = tensors((1, 3, 4, 5, 2), (2, 2, 2))
    torch.testing.assert_close(run(leaves, "reference"), run(leaves, "reference", scale=1 / math.sqrt(5)))
    assert not torch.allclose(run(leaves, "reference"), run(leaves, "reference", scale=1.0))


def test_torchs_own_kernel_refuses_dropout():
    with pytest.raises(ValueError, match="sdpa can't do this: its dropout draws from torch's global generator"):
        run(tensors((1, 3, 4, 2, 2), (2, 2, 2)), "sdpa", dropout=0.1, dropout_seed=1)


def test_torchs_own_kernel_refuses_a_key_size_of_0_with_and_without_a_bias():
    for bias_shape in (None, (1, 2, 3, 4)):
        leaves = tensors((1, 3, 4, 0, 2), (2, 2, 2), bias_shape=bias_shape)
        with pytest.raises(ValueError, match=r"sdpa can't do this: .* the key size is 0, as in additive attention"):
            run(leaves, "sdpa", scale=1.0)


def test_a_new_seed_in_the_same_tensor_is_a_new_mask_of_the_same_compiled_function():
    leaves = tensors((2, 5, 6, 2, 3), (2, 2, 2))
    query, key, value = leaves["query"], leaves["key"], leaves["value"]
    seed, compilations = torch.tensor(0), []

    def count(graph, _):
        compilations.append(graph)
        return graph

    def function(query: Tensor, seed: Tensor) -> Tensor:
        return attend(query, key, value, dropout=0.5, dropout_seed=seed, backend="reference")

    function_compiled = torch.compile(function, backend=count)
    outputs = []
    for number in range(4):
        seed.fill_(number)
        outputs.append(function_compiled(query, seed))
        torch.testing.assert_close(outputs[-1], run(leaves, "reference", dropout=0.5, dropout_seed=number))
    assert len(compilations) == 1 and not torch.allclose(outputs[0], outputs[1])


def test_weights_are_dropped_with_the_probability_asked_for_and_independently():
    seed, cpu = torch.tensor(5), torch.device("cpu")
    kept = kept_weights(seed, 0.1, (2, 3, 512), 512, cpu)
    assert kept.float().mean().item() == pytest.approx(0.9, abs=0.002)
    assert keep_scale(0.1) == pytest.approx(1 / 0.9, rel=1e-9)
    for axis in range(4):
        along = kept.float() - 0.9
        assert abs((along * along.roll(1, axis)).mean() / 0.09) < 0.005, axis
    other = kept_weights(torch.tensor(6), 0.1, (2, 3, 512), 512, cpu).float() - 0.9
    assert abs(((kept.float() - 0.9) * other).mean() / 0.09) < 0.005
    part = kept_weights(seed, 0.1, (2, 3, 512), 100, cpu, slice(1, 2), slice(7, 30))
    assert torch.equal(part, kept[1:2, :, 7:30, :100])


@pytest.mark.parametrize("backend", ON_CPU)
def test_bf16_autocast_is_close_to_float32_in_value_and_gradient(backend):
    terms = () if backend == "sdpa" else ("logits.static", "weights.static")
    leaves = tensors((2, 33, 33, 8, 8), (4, 4, 4), terms, bias_shape=(1, 4, 33, 33), dtype=torch.float32)
    exact = run(leaves, "reference")
    expected = torch.autograd.grad(exact.square().sum(), list(leaves.values()))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = run(leaves, backend)
    assert output.dtype == torch.bfloat16
    got = torch.autograd.grad(output.float().square().sum(), list(leaves.values()))
    assert (output - exact).norm() < 0.02 * exact.norm()
    for name, one, other in zip(leaves, got, expected, strict=True):
        assert one.dtype == torch.float32
        assert (one - other).norm() < 0.03 * other.norm(), name


def test_the_softmax_of_the_reference_is_in_float32():
    """A logit of 256 and a bias of 1 are 256 in bf16, and a weight of 1/2 instead of e / (1 + e)."""
    query, value = torch.full((1, 1, 1, 1), 16.0).bfloat16(), torch.tensor([0.0, 1.0]).bfloat16().view(1, 2, 1, 1)
    output = attend(
        query, query.expand(1, 2, 1, 1), value, bias=torch.tensor([[[[0, 1]]]]).bfloat16(), backend="reference"
    )
    assert output.item() == pytest.approx(math.e / (1 + math.e), rel=0.01)


def test_meta_tensors_go_through_with_dropout_and_gradient():
    leaves = {
        name: leaf.detach().to("meta").requires_grad_()
        for name, leaf in tensors((3, 9, 11, 4, 5), (2, 3, 4), ALL_TERMS, bias_shape=(1, 1, 9, 11)).items()
    }
    for backend in ("reference", "blocked", "auto"):
        output = run(leaves, backend, dropout=0.1, dropout_seed=1)
        assert output.shape == (3, 9, 4, 5) and output.device.type == "meta"
        grads = torch.autograd.grad(output.sum(), list(leaves.values()))
        assert [grad.shape for grad in grads] == [leaf.shape for leaf in leaves.values()]


@pytest.mark.parametrize("backend", ["reference", "blocked", "auto"])
def test_empty_tensors_give_empty_or_zero_output(backend):
    for sizes in ((0, 3, 3, 2, 2), (2, 0, 3, 2, 2), (2, 3, 0, 2, 2)):
        output = run(tensors(sizes, (2, 2, 2), ("logits.static",)), backend)
        assert output.shape == (sizes[0], sizes[1], 2, 2) and output.eq(0).all()


@pytest.mark.parametrize("compiler", [True, False])
@pytest.mark.parametrize("amx", [True, False])
def test_auto_takes_what_was_measured_to_be_fastest(monkeypatch, compiler, amx):
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(compiled, "absence", lambda: None if compiler else "it can't be built here")

    def name(length: int, dtype: torch.dtype = torch.float32, backend: str = "auto", width: int = 4, **options) -> str:
        query = torch.zeros(1, length, 2, width, dtype=dtype)
        return choose(backend, Problem.of(query, query, query, **options))

    own, plain = ("compiled", "compiled") if compiler else ("blocked", "sdpa")
    eye = Projection(torch.eye(2))
    by_position = Projection(query=torch.zeros(1, 64, 2, 2))
    trained_bias = torch.zeros(1, 2, 64, 64, requires_grad=True)
    assert name(64, logits_projection=eye) == name(1024, weights_projection=eye, dropout=0.1, dropout_seed=1) == own
    half = Projection(torch.eye(2, dtype=torch.bfloat16))
    assert name(64, torch.bfloat16, logits_projection=half) == own
    assert name(64, logits_projection=by_position) == "blocked"
    assert name(64) == name(1024) == name(64, logits_projection=Projection()) == plain
    assert name(64, bias=trained_bias) == name(64, logits_projection=eye, bias=trained_bias) == own
    assert name(1024, dropout=0.1, dropout_seed=1) == ("compiled" if compiler else "blocked")
    assert name(64, torch.bfloat16) == name(64, torch.bfloat16, width=128) == own
    assert name(256, torch.bfloat16) == name(2048, torch.bfloat16, width=16) == plain
    long = {"dtype": torch.bfloat16, "width": 64}
    assert name(512, **long) == name(1024, causal=True, **long) == ("sdpa" if amx else plain)
    assert name(256, **long) == name(512, causal=True, **long) == name(512, width=64) == plain
    assert name(512, dropout=0.1, dropout_seed=1, **long) == name(512, logits_projection=half, **long) == own
    assert name(64, bias=trained_bias, **long) == own
    assert name(64, torch.float16) == "blocked" and name(256, torch.float16) == "sdpa"
    assert name(64, backend="reference") == "reference"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits_projection": Projection(query=torch.zeros(1, 3, 2, 2))}, "mix heads by position"),
        ({"key": torch.zeros(1, 0, 2, 4), "value": torch.zeros(1, 0, 2, 4)}, "at least one example, position, head"),
        ({"value": torch.zeros(1, 3, 2, 4).double()}, "one dtype of float32, bfloat16 and float64"),
        ({name: torch.zeros(1, 3, 2, 4, device="meta") for name in ("query", "key", "value")}, "not on meta"),
    ],
)
def test_compiled_refuses_by_name(change, message):
    query = torch.zeros(1, 3, 2, 4)
    with pytest.raises(ValueError, match=f"compiled can't do this: .*{message}"):
        attend(**{"query": query, "key": query, "value": query, "backend": "compiled"} | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": torch.zeros(2, 4, 3, 6)}, "key: has shape"),
        ({"value": torch.zeros(2, 4, 2, 5)}, r"value: has shape \[2, 4, 2, 5\], must be \[2, 4, 3, V\]"),
        ({"logits_projection": Projection(torch.eye(2))}, r"logits_projection.static: .* must be \[3, 2\]"),
        ({"weights_projection": Projection(query=torch.zeros(2, 9, 3, 3))}, r"weights_projection.query: .*\[2, 5, 3"),
        ({"mask": torch.zeros(5, 4)}, "mask: has dtype torch.float32, must be bool"),
        (
            {"mask": torch.ones(2, 5, 4, dtype=torch.bool)},
            r"mask: has shape \[2, 5, 4\], must have four dimensions",
        ),
        ({"mask": torch.ones(2, 4, 5, 4, dtype=torch.bool)}, r"mask: .*, each 1 or that of \[2, 3, 5, 4\]"),
        (
            {"mask": torch.ones(5, 4, dtype=torch.bool)},
            r"of \[B, M\] give mask\[:.*of \[N, M\] give mask\[None",
        ),
        ({"bias": torch.zeros(4)}, "bias: has shape"),
        ({"bias": torch.zeros(2, 3, 5, 4, 1)}, "bias: "),
        (
            {"query": torch.zeros(2, 5, 3, 0), "key": torch.zeros(2, 4, 3, 0)},
            r"scale: is None, must be a number as a query \[2, 5, 3, 0\] has a key size of 0",
        ),
        ({"dropout": 1.0}, "dropout: is 1.0"),
        ({"dropout": 0.1}, "dropout_seed: is None, must be an integer as dropout is 0.1"),
        ({"dropout": 0.1, "dropout_seed": 2**63}, "dropout_seed: is 9223372036854775808, must be .* under 2\\*\\*63"),
        ({"dropout": 0.1, "dropout_seed": torch.zeros(1)}, r"dropout_seed: is torch.float32 of shape \[1\]"),
        ({"backend": "flash"}, "backend: is 'flash', must be one of auto, blocked, compiled, cuda, reference, sdpa"),
    ],
)
def test_a_mistake_is_named(change, message):
    arguments = {"query": torch.zeros(2, 5, 3, 7), "key": torch.zeros(2, 4, 3, 7), "value": torch.zeros(2, 4, 3, 5)}
    with pytest.raises(ValueError, match=message):
        attend(**{**arguments, **change})


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (torch.zeros(2, 3, 5, 5), r"returns shape \[2, 3, 5, 5\], must return shape \[2, 5, 3, 5\]"),
        (None, "returns a NoneType"),
    ],
)
def test_a_kernel_that_returns_another_shape_is_named(returned, said, monkeypatch):
    monkeypatch.setitem(KERNELS, "blocked", lambda problem: returned)
    query, key, value = torch.zeros(2, 5, 3, 7), torch.zeros(2, 4, 3, 7), torch.zeros(2, 4, 3, 5)
    with pytest.raises(ValueError, match=f"^backend: blocked {said}"):
        attend(query, key, value, backend="blocked")
