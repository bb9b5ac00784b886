"""The kernel `cuda` on a real GPU: its numbers, the same bits twice, memory linear in the length, no waiting."""

from __future__ import annotations

import threading
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from attention.kernels.cuda.kernel import absence
from attention.kernels.dropout import kept_weights
from attention.kernels.problem import Problem, Projection
from attention.layers.attend import attend, choose

if not torch.cuda.is_available():
    pytest.skip("there is no GPU; test_programs.py emulates one", allow_module_level=True)
if (ABSENCE := absence(torch.device("cuda"))) is not None:
    pytest.skip(ABSENCE, allow_module_level=True)

BF16 = torch.bfloat16


class Case(NamedTuple):
    """A problem; example 0 of a masked one may attend nowhere."""

    sizes: tuple[int, ...]  # B, N, M, K, V
    heads: tuple[int, int, int]
    causal: bool = False
    masked: bool = False
    dropout: float = 0.0
    mixes: tuple[bool, bool] = (True, True)  # before the softmax, after it

    def leaves(self) -> list[Tensor]:
        """Query, key, value, and those of P_l and P_w that mix, random."""
        (B, N, M, K, V), (h_k, h, h_v) = self.sizes, self.heads
        generator = torch.Generator("cuda").manual_seed(0)
        shapes = [(B, N, h_k, K), (B, M, h_k, K), (B, M, h_v, V), (h_k, h), (h, h_v)]
        leaves = [torch.randn(shape, generator=generator, device="cuda") for shape in shapes]
        leaves[3:] = (len(leaf) ** -0.5 * leaf for leaf, mixes in zip(leaves[3:], self.mixes, strict=True) if mixes)
        return [leaf.to(BF16).requires_grad_() for leaf in leaves]

    def options(self) -> dict[str, object]:
        """Options of `attend`."""
        options: dict[str, object] = {"causal": self.causal, "dropout": self.dropout, "dropout_seed": -7}
        if self.masked:
            generator = torch.Generator("cuda").manual_seed(1)
            mask = torch.rand(self.sizes[0], 1, 1, self.sizes[2], device="cuda", generator=generator) < 0.7
            mask[0] = False
            options["mask"] = mask
        return options

    def arguments(self, leaves: list[Tensor], **more) -> dict[str, object]:
        """The arguments of `attend`, and more."""
        names = [name for name, mixes in zip(("logits", "weights"), self.mixes, strict=True) if mixes]
        projections = {f"{name}_projection": Projection(leaf) for name, leaf in zip(names, leaves[3:], strict=True)}
        return dict(zip(("query", "key", "value"), leaves, strict=False)) | projections | self.options() | more

    def results(self, leaves: list[Tensor], backend: str, **more) -> list[Tensor]:
        """The output and all gradients."""
        output = attend(**self.arguments(leaves, **more), backend=backend)
        places = torch.arange(output.numel(), dtype=torch.float64, device="cuda")
        weight = torch.sin(1.7 * places).view_as(output).to(output.dtype)
        return [output.detach(), *torch.autograd.grad(output, leaves, weight)]


MANY, UNMIXED = (24, 24, 24), (False, False)
CASES = [
    Case((2, 100, 150, 32, 32), MANY),
    Case((2, 512, 512, 32, 32), MANY),
    Case((2, 70, 45, 32, 32), MANY, causal=True),
    Case((2, 300, 300, 64, 64), (12, 12, 12), causal=True, masked=True),
    Case((3, 140, 70, 24, 8), (3, 5, 2), causal=True, masked=True, dropout=0.3),
    Case((2, 400, 400, 8, 8), MANY, dropout=0.1, mixes=(False, True)),
    Case((2, 200, 200, 128, 128), (6, 6, 6), causal=True, mixes=(True, False)),
    Case((2, 200, 370, 16, 16), (48, 48, 48), dropout=0.1),
    Case((2, 200, 240, 64, 64), (16, 16, 16), causal=True, masked=True),
    Case((1, 2048, 2048, 32, 32), MANY),
    Case((1, 1, 1, 32, 32), MANY),
    Case((2, 512, 512, 64, 64), (12, 12, 12), dropout=0.1, mixes=UNMIXED),
    Case((3, 140, 70, 24, 8), (3, 3, 3), causal=True, masked=True, dropout=0.3, mixes=UNMIXED),
    Case((2, 70, 300, 128, 72), (2, 2, 2), masked=True, mixes=UNMIXED),
]
MIXED = CASES[0]


def skip_if_refused(case: Case) -> None:
    """Skip a problem for which the GPU has too little shared memory."""
    try:
        choose("cuda", Problem.of(**case.arguments(case.leaves())))
    except ValueError as refusal:
        if "shared memory" not in str(refusal):
            raise
        pytest.skip(str(refusal))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_as_near_to_float64_as_the_reference_in_bfloat16_and_repeats_its_bits(case):
    skip_if_refused(case)
    leaves = case.leaves()
    got, again = (case.results(leaves, "cuda") for _ in range(2))
    exact = case.results([leaf.detach().double().requires_grad_() for leaf in leaves], "reference")
    rounded = case.results(leaves, "reference")
    for one, other, expected, near in zip(got, again, exact, rounded, strict=True):
        assert torch.equal(one, other) and one.isfinite().all()
        # of one position the weights are all 1 and some gradients 0
        allowed = 1.1 * (near.double() - expected).norm() + 2e-3 * expected.norm() + 1e-4
        assert (one.double() - expected).norm() <= allowed


@pytest.mark.parametrize("mixes", [(True, True), UNMIXED])
def test_it_drops_the_weights_that_every_kernel_drops(mixes):
    """With equal logits and the identity for values, the output is positive where a weight is kept."""
    case = Case((2, 100, 64, 16, 64), (3, 3, 3), dropout=0.25, mixes=mixes)
    leaves = case.leaves()
    with torch.no_grad():
        leaves[0].zero_()
        leaves[2].copy_(torch.eye(64, device="cuda")[:, None].expand(64, 3, 64))
        for leaf in leaves[3:]:
            leaf.fill_(1)
    kept = kept_weights(5, 0.25, (2, 3, 100), 64, torch.device("cuda"))
    output = attend(**case.arguments(leaves, dropout_seed=5), backend="cuda")
    assert torch.equal(output.transpose(1, 2) > 0, kept)
    assert abs(kept.float().mean() - 0.75) < 0.02


@pytest.mark.parametrize("mixes", [(True, True), UNMIXED])
def test_the_memory_grows_linearly_with_the_length(mixes):
    def extra(length: int) -> int:
        """Most bytes that are allocated at once, beside the inputs."""
        case = Case((1, length, length, 64, 64), (12, 12, 12), dropout=0.1, mixes=mixes)
        leaves = case.leaves()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        case.results(leaves, "cuda")
        return torch.cuda.max_memory_allocated() - before

    skip_if_refused(Case((1, 16, 16, 64, 64), (12, 12, 12), dropout=0.1, mixes=mixes))
    extra(128)
    assert extra(4096) < 2.2 * extra(2048)
    # one map of all heads in bf16 would be 12 x 4096 x 4096 x 2 bytes
    assert extra(4096) < 12 * 4096 * 4096


def test_a_thread_that_has_not_used_the_gpu_may_use_it():
    expected, got = MIXED.results(MIXED.leaves(), "cuda"), list[Tensor]()
    thread = threading.Thread(target=lambda: got.extend(MIXED.results(MIXED.leaves(), "cuda")))
    thread.start()
    thread.join()
    assert len(got) == len(expected) and all(map(torch.equal, got, expected))


def test_it_runs_on_the_current_stream():
    leaves, expected = MIXED.leaves(), MIXED.results(MIXED.leaves(), "cuda")
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        # other work is in the way, so what doesn't wait for it in this stream is done with the wrong numbers
        waits = [torch.randn(4096, 4096, device="cuda") for _ in range(2)]
        for _ in range(20):
            waits[0] = waits[0] @ waits[1] * 1e-2
        moved = [(leaf.detach() + 0 * waits[0][0, 0].to(BF16)).requires_grad_() for leaf in leaves]
        got = MIXED.results(moved, "cuda")
    stream.synchronize()
    assert all(map(torch.equal, got, expected))


@pytest.mark.parametrize("backend", ["cuda", "blocked"])
def test_dropout_does_not_wait_for_the_gpu(backend):
    case = Case((2, 64, 64, 32, 32), (4, 4, 4), dropout=0.1)
    leaves, seed = case.leaves(), torch.tensor(3, device="cpu")
    weight = torch.ones(2, 64, 4, 32, device="cuda", dtype=BF16)
    for mode in ("default", "error"):
        torch.cuda.set_sync_debug_mode(mode)
        try:
            output = attend(**case.arguments(leaves, dropout_seed=seed), backend=backend)
            torch.autograd.grad(output, leaves, weight)
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_auto_takes_it_where_heads_mix():
    tensor, eye = torch.zeros(1, 5, 2, 8, dtype=BF16, device="cuda"), torch.eye(2, dtype=BF16, device="cuda")
    assert choose("auto", Problem.of(tensor, tensor, tensor, logits_projection=Projection(eye))) == "cuda"
    assert choose("auto", Problem.of(tensor, tensor, tensor)) == "sdpa"
