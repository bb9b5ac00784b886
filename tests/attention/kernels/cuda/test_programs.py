"""The CUDA programs on an emulated GPU, against the reference; what is refused; that a GPU's compiler takes them."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import random
import re
import shutil
import signal
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from attention import talking_heads
from attention.kernels.cuda import kernel, library, mixed
from attention.kernels.cuda.launch import LARGEST_SHARED_LIMIT
from attention.kernels.dropout import kept_weights
from attention.kernels.problem import Problem
from attention.layers.attend import Projection, choose
from tests.attention.kernels.cuda import cubin
from tests.attention.kernels.cuda.emulated_gpu import COMPILER, emulated_gpu, launches_noted
from tests.attention.kernels.test_blocked import saved_numbers
from tests.attention.kernels.test_kernels import STATIC_TERMS, run, tensors
from tests.fixtures.device import skip_where_no_process_can_be_forked

BF16 = torch.bfloat16
LOGITS, WEIGHTS = ((term,) for term in STATIC_TERMS)


class Case(NamedTuple):
    """A problem. Those with the same heads, sizes of a head, flags and tiles take the same programs."""

    sizes: tuple[int, ...]  # B, N, M, K, V
    heads: tuple[int, int, int]
    terms: tuple[str, ...] = STATIC_TERMS
    tiles: tuple[int, int] = mixed.TILES[-1]
    causal: bool = False
    masked: bool = False
    dropout: float = 0.0

    def leaves(self) -> dict[str, Tensor]:
        """Random inputs in bfloat16; mixed logits and weights are as large as before."""
        leaves = tensors(self.sizes, self.heads, self.terms)
        for name, leaf in leaves.items():
            scale = len(leaf) ** -0.5 if "." in name else 1
            leaves[name] = (scale * leaf).detach().to(BF16).requires_grad_()
        return leaves

    def options(self) -> dict[str, object]:
        """Options of `attend`. Example 0 may attend nowhere, and the first position of the others is padding."""
        options: dict[str, object] = {"causal": self.causal, "dropout": self.dropout, "dropout_seed": -7}
        if self.masked:
            B, _, M, *_ = self.sizes
            mask = torch.rand(B, 1, 1, M, generator=torch.Generator().manual_seed(2)) < 0.7
            mask[0], mask[1:, ..., 0], mask[1:, ..., 1] = False, False, True
            options["mask"] = mask
        return options


# sizes are no multiples of those of a tile
EVERYTHING = Case((2, 37, 41, 24, 8), (3, 5, 2), causal=True, masked=True, dropout=0.3)
WIDE = Case((1, 40, 50, 16, 32), (12, 12, 12), tiles=mixed.TILES[0])
# the sums of all threads, at the end, take more shared memory than the tiles before them
NARROW = Case((1, 40, 40, 8, 8), (1, 64, 1), tiles=mixed.TILES[1])
UNMIXED = Case((2, 70, 83, 24, 8), (2, 2, 2), (), causal=True, masked=True, dropout=0.3)
LARGE = Case((1, 70, 50, 72, 128), (1, 1, 1), ())
CASES = [
    EVERYTHING,
    WIDE,
    NARROW,
    UNMIXED,
    LARGE,
    Case((1, 20, 40, 48, 16), (9, 17, 8)),
    Case((1, 19, 35, 8, 8), (6, 6, 10), WEIGHTS, causal=True, dropout=0.2),
    Case((2, 35, 19, 8, 8), (10, 6, 6), LOGITS, masked=True),
]


@pytest.fixture
def gpu(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Case], None]]:
    """gpu(case): emulate a GPU that takes the tiles of the case. Before that it takes those of an H100."""
    if not COMPILER:
        pytest.skip("there is no C++ compiler")

    def take_tiles(case: Case) -> None:
        monkeypatch.setattr(mixed, "TILES", (case.tiles,))
        mixed.plan.cache_clear()

    with emulated_gpu(pytestconfig.cache.mkdir("emulated-gpu")):
        yield take_tiles
    mixed.plan.cache_clear()


def results(leaves: dict[str, Tensor], backend: str, **options) -> dict[str, Tensor]:
    """The output and the gradient of every leaf."""
    output = run(leaves, backend, **options)
    weight = torch.sin(1.7 * torch.arange(output.numel(), dtype=torch.float64)).view_as(output).to(output)
    grads = torch.autograd.grad(output, list(leaves.values()), weight)
    return {"output": output.detach(), **dict(zip(leaves, grads, strict=True))}


def check_near(got: dict[str, Tensor], leaves: dict[str, Tensor], **options) -> None:
    """Check that results are about as near to those in float64 as the reference in bfloat16 is."""
    exact = {name: leaf.detach().double().requires_grad_() for name, leaf in leaves.items()}
    expected, rounded = results(exact, "reference", **options), results(leaves, "reference", **options)
    for name, tensor in expected.items():
        assert got[name].dtype == BF16 and got[name].isfinite().all(), name
        allowed = 1.1 * (rounded[name].double() - tensor).norm() + 2e-3 * tensor.norm()
        assert (got[name].double() - tensor).norm() <= allowed, name


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_as_near_to_float64_as_the_reference_in_bfloat16(gpu, case):
    gpu(case)
    leaves = case.leaves()
    check_near(results(leaves, "cuda", **case.options()), leaves, **case.options())


@pytest.mark.parametrize("case", [EVERYTHING, UNMIXED], ids=str)
def test_the_same_inputs_give_the_same_bits_also_as_views_and_with_a_gradient_that_is_one(gpu, case):
    gpu(case)
    leaves, options = case.leaves(), case.options()
    output = run(leaves, "cuda", **options)
    grads = torch.autograd.grad(output.sum(), list(leaves.values()))
    # also one that begins at an address that is no multiple of 16
    views = {name: leaf.transpose(0, -1).contiguous().transpose(0, -1) for name, leaf in leaves.items()}
    views["key"] = torch.cat([leaves["key"].new_zeros(1), leaves["key"].flatten()])[1:].view_as(leaves["key"])
    again = run(views, "cuda", **options)
    one = output.new_ones(()).expand_as(output)
    assert torch.equal(again, output)
    for name, grad, other in zip(leaves, grads, torch.autograd.grad(again, list(leaves.values()), one), strict=True):
        assert torch.equal(grad, other), name


@pytest.mark.parametrize("scale", [None, 30.0])
@pytest.mark.parametrize("case", [EVERYTHING, UNMIXED], ids=str)
def test_a_row_that_may_attend_nowhere_is_zero_and_sends_no_gradient(gpu, case, scale):
    gpu(case)
    got = results(case.leaves(), "cuda", scale=scale, **case.options())
    assert all(got[name][0].eq(0).all() for name in ("output", "query", "key", "value"))
    # of the other example, the first query sees the first position alone, which is padding
    assert all(got[name][1, 0].eq(0).all() for name in ("output", "query", "key", "value"))
    # with a large scale one weight is 1, and no other logit matters
    assert all(got[name][1].ne(0).any() for name in ("output", "value", *(() if scale else ("query", "key"))))


@pytest.mark.parametrize("case", [EVERYTHING, UNMIXED], ids=str)
def test_it_drops_the_weights_that_every_kernel_drops(gpu, case):
    """With equal logits and the identity for values, the output is positive where a weight is kept."""
    gpu(case)
    leaves = case._replace(sizes=(2, 17, 8, 24, 8)).leaves()
    with torch.no_grad():
        leaves["query"].zero_()
        if case.terms:
            leaves["weights.static"].fill_(1)
        leaves["value"].copy_(torch.eye(8)[:, None].expand(8, 2, 8))
    output = run(leaves, "cuda", dropout=0.3, dropout_seed=5, causal=True, mask=torch.ones(1, 1, 1, 8).bool())
    kept = kept_weights(5, 0.3, (2, 2, 17), 8, torch.device("cpu")) & torch.ones(17, 8).tril().bool()
    assert torch.equal(output.transpose(1, 2) > 0, kept) and 0.6 < kept[..., 8:, :].float().mean() < 0.8


@pytest.mark.parametrize("case", [WIDE, LARGE], ids=str)
def test_a_nan_is_not_hidden(gpu, case):
    gpu(case)
    leaves = case.leaves()
    with torch.no_grad():
        leaves["query"][0, 1, 0, 0] = float("nan")
    output = run(leaves, "cuda")
    assert output[:, 1].isnan().all() and output[:, ::2].isfinite().all()


def test_beside_its_inputs_it_keeps_one_number_a_query_and_head(gpu):
    gpu(WIDE)
    # of eight heads at a time; without mixing, the output too
    assert saved_numbers(WIDE.leaves(), "cuda") == 40 * 16
    assert saved_numbers(LARGE.leaves(), "cuda") == 70 + 70 * 128


@pytest.mark.parametrize("case", [WIDE, LARGE], ids=str)
def test_it_refuses_a_second_derivative(gpu, case):
    gpu(case)
    leaves = case._replace(sizes=(1, 3, 4, *case.sizes[-2:])).leaves()
    (grad,) = torch.autograd.grad(run(leaves, "cuda").square().sum(), leaves["query"], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


def test_a_layer_runs_on_it_under_autocast_and_its_parameters_get_float32_gradients(gpu):
    gpu(WIDE)
    layer = talking_heads.Attention(32, *WIDE.heads, *WIDE.sizes[-2:], backend="cuda")
    x = torch.randn(2, 7, 32)

    def gradients() -> tuple[Tensor, ...]:
        with torch.autocast("cpu", dtype=BF16):
            return torch.autograd.grad(layer(x).float().square().sum(), list(layer.parameters()))

    got, kernel, layer.backend = gradients(), layer.kernel, "reference"
    expected = gradients()
    assert kernel == "cuda" and all(grad.dtype == torch.float32 for grad in got)
    # that of the keys' bias is 0 but for rounding
    largest = max(grad.norm() for grad in expected)
    for one, other in zip(got, expected, strict=True):
        assert (one - other).norm() <= 0.03 * other.norm() + 1e-3 * largest


@pytest.mark.parametrize("case", [EVERYTHING, UNMIXED], ids=str)
def test_tensors_without_data_go_through(monkeypatch, case):
    monkeypatch.setattr(kernel, "absence", lambda device: None)
    leaves = case.leaves()
    for without_data in (torch.device("meta"), FakeTensorMode()):
        with without_data:
            empty = {name: torch.empty(leaf.shape, dtype=BF16).requires_grad_() for name, leaf in leaves.items()}
            output = run(empty, "cuda", dropout=0.1, dropout_seed=1)
            grads = torch.autograd.grad(output.sum(), list(empty.values()))
        assert output.shape == (2, case.sizes[1], 2, 8)
        assert [grad.shape for grad in grads] == [leaf.shape for leaf in leaves.values()]


def test_what_has_data_is_computed_as_before_after_a_problem_without_data(gpu):
    """The identity in the place of a missing projection must have data."""
    case = CASES[-1]
    gpu(case)
    with FakeTensorMode():
        run(case._replace(sizes=(1, 3, 3, 8, 8)).leaves(), "cuda")
    assert run(case.leaves(), "cuda", **case.options()).isfinite().all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bias": torch.zeros(1, 1, 5, 4)}, "it takes no bias"),
        ({"mask": torch.ones(1, 1, 5, 4, dtype=torch.bool)}, r"a mask of memory positions only, \[B, 1, 1, M\]"),
        ({"mask": torch.ones(2, 1, 1, 1, dtype=torch.bool)}, r"a mask of memory positions only, \[B, 1, 1, M\]"),
        ({"weights_projection": Projection(query=torch.zeros(2, 5, 3, 3))}, "by static projections only"),
        ({"value": torch.zeros(2, 4, 3, 8)}, r"it computes in bfloat16, not in torch\.float32"),
        ({"query": torch.zeros(2, 5, 3, 12).bfloat16(), "key": torch.zeros(2, 4, 3, 12).bfloat16()}, "multiples of 8"),
        ({"query": torch.zeros(2, 0, 3, 16).bfloat16()}, "at least one example and position"),
        (
            {"query": torch.zeros(2, 5, 3, 512).bfloat16(), "key": torch.zeros(2, 4, 3, 512).bfloat16()},
            "it has registers for 1024 numbers",
        ),
        ({"logits_projection": None, "value": torch.zeros(2, 4, 3, 136).bfloat16()}, "keys and values of size 128"),
        ({"scale": -1.0}, "it needs a positive scale, not -1.0"),
    ],
)
def test_what_it_cannot_do_it_refuses_by_name(monkeypatch, change, message):
    monkeypatch.setattr(kernel, "absence", lambda device: None)
    shapes = {"query": (2, 5, 3, 16), "key": (2, 4, 3, 16), "value": (2, 4, 3, 8)}
    arguments = {name: torch.zeros(shape, dtype=BF16) for name, shape in shapes.items()}
    arguments["logits_projection"] = Projection(torch.zeros(3, 3, dtype=BF16))
    case = Problem.of(**{**arguments, **change})
    with pytest.raises(ValueError, match=f"backend: cuda can't do this: .*{message}"):
        choose("cuda", case)


def test_without_a_gpu_it_says_so(monkeypatch):
    assert kernel.absence(torch.device("cpu")) == "it runs on a CUDA GPU, not on cpu"
    assert kernel.absence(torch.device("meta")) is None
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert kernel.absence(torch.device("cuda")) == "torch finds no CUDA GPU"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert kernel.absence(torch.device("cuda")) == "it needs a GPU of compute capability 8.0 or newer"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr(library, "absence", lambda: "there is no compiler")
    assert kernel.absence(torch.device("cuda")) == "there is no compiler"


@pytest.mark.parametrize("absence", [None, "it isn't here"])
def test_auto_takes_it_on_a_gpu_where_torch_cannot_mix_or_drop(monkeypatch, absence):
    monkeypatch.setattr(kernel, "absence", lambda device: absence)
    monkeypatch.setattr(kernel, "shared_limit", lambda device: LARGEST_SHARED_LIMIT)
    with FakeTensorMode(), torch.device("cuda"):
        tensor, eye = torch.zeros(1, 5, 2, 8, dtype=BF16), Projection(torch.eye(2, dtype=BF16))
        where = {"logits_projection": eye}, {"dropout": 0.1, "dropout_seed": 1}, {}
        taken = [choose("auto", Problem.of(tensor, tensor, tensor, **options)) for options in where]
        single = choose("auto", Problem.of(*3 * [tensor.float()], logits_projection=Projection(torch.eye(2))))
    found = "blocked" if absence else "cuda"
    assert taken == [found, found, "sdpa"] and single == "blocked"


def test_a_prediction_without_data_asks_the_gpu_that_will_compute(monkeypatch):
    monkeypatch.setattr(kernel, "absence", lambda device: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(**limit))
    limit = {"shared_memory_per_block_optin": 10_000}
    with FakeTensorMode(), torch.device("cuda"):
        tensor = torch.zeros(1, 5, 2, 8, dtype=BF16)
        problem = Problem.of(tensor, tensor, tensor, dropout=0.1, dropout_seed=1)
    assert "more shared memory than a program has on this GPU" in str(kernel.refusal(problem))
    limit["shared_memory_per_block_optin"] = 101_376
    assert kernel.refusal(problem) is None


STATEMENT = re.compile(r"\b(?:barrier|end_group|wait_for_groups<\d+>)\(\);")
# how a fork ends that has noticed it: a wrong result, a rule of the emulation, an address that isn't there
WRONG, NOTICED = 3, {3, -signal.SIGABRT, -signal.SIGSEGV}


def statements() -> list[tuple[str, int]]:
    """The file and the number of each statement by which threads wait for others or for copies."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(library.SOURCES.glob("*.cu"))}
    return [(name, number) for name, text in texts.items() for number in range(len(STATEMENT.findall(text)))]


def outcome(case: Case, folder: Path, name: str = "", number: int = 0) -> int:
    """The exit code of a fork that checks a case.

    It takes a copy of the programs in the folder; if there is a name, this file is without one of its statements.
    """
    skip_where_no_process_can_be_forked()
    sources = folder / "sources"
    if not sources.exists():
        shutil.copytree(library.SOURCES, sources)
        if name:
            text = (sources / name).read_text(encoding="utf-8")
            place = [*STATEMENT.finditer(text)][number]
            (sources / name).write_text(text[: place.start()] + text[place.end() :], encoding="utf-8")

    def check() -> None:
        faulthandler.disable()
        leaves = case.leaves()
        try:
            with emulated_gpu(folder / "built", sources), pytest.MonkeyPatch.context() as patched:
                patched.setattr(mixed, "TILES", (case.tiles,))
                mixed.plan.cache_clear()
                got = results(leaves, "cuda", **case.options())
            check_near(got, leaves, **case.options())
        except AssertionError:
            traceback.print_exc()
            os._exit(WRONG)

    process = multiprocessing.get_context("fork").Process(target=check)
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


@pytest.mark.skipif(not COMPILER, reason="there is no C++ compiler")
def test_the_emulation_shows_that_threads_do_not_wait(tmp_path):
    assert outcome(UNMIXED, tmp_path / "whole") == 0
    (name, first), *_ = [each for each in statements() if each[0] == "plain.cu"]
    assert outcome(UNMIXED, tmp_path / "spoiled", name, first + 1) in NOTICED


@pytest.mark.campaign
@pytest.mark.skipif(not COMPILER, reason="there is no C++ compiler")
def test_no_statement_by_which_threads_wait_is_superfluous(tmp_path, tries, chance: random.Random):
    """A small campaign leaves out three of them, one at a time; a large one does so with all."""
    every, superfluous = statements(), []
    for name, number in chance.sample(every, min(len(every), tries(3, 1000))):
        cases = (EVERYTHING, WIDE, NARROW) if name == "mixed.cu" else (UNMIXED, LARGE)
        if not any(outcome(case, tmp_path / f"{name}-{number}", name, number) in NOTICED for case in cases):
            superfluous.append((name, number))
    assert not superfluous


# bytes of shared memory that a program can have, by the GPU's compute capability
GPUS = {(8, 0): 166_912, (8, 9): 101_376, (9, 0): 232_448, (10, 0): 232_448}
RESERVED_BYTES = 1024  # of each block, by CUDA
MIXED_SHAPES = [  # heads, K, V, terms; causal, masked, dropout
    ((3, 5, 2), 24, 8, STATIC_TERMS, True, True, 0.1),
    ((24, 24, 24), 32, 32, STATIC_TERMS, True, True, 0.1),
    ((24, 24, 24), 32, 32, STATIC_TERMS),
    ((12, 12, 12), 64, 64, STATIC_TERMS, False, True),
    ((4, 4, 4), 64, 128, STATIC_TERMS),
    ((48, 48, 48), 16, 16, STATIC_TERMS),
    ((24, 24, 24), 8, 8, STATIC_TERMS, False, True),
    ((12, 12, 12), 64, 64, STATIC_TERMS, False, False, 0.1),
    ((6, 6, 6), 128, 128, STATIC_TERMS, True, False, 0.1),
    ((16, 16, 16), 64, 64, LOGITS),
    ((16, 16, 16), 64, 64, WEIGHTS, True),
    ((8, 32, 8), 32, 16, STATIC_TERMS),
    ((32, 16, 8), 16, 64, STATIC_TERMS, True, False, 0.2),
    ((2, 2, 2), 256, 256, STATIC_TERMS),
    ((1, 1, 1), 64, 64, STATIC_TERMS),
]
UNMIXED_SHAPES = [
    ((12, 12, 12), 64, 64, (), False, True, 0.1),
    ((12, 12, 12), 64, 64, (), True),
    ((6, 6, 6), 128, 128, (), False, False, 0.1),
    ((24, 24, 24), 32, 32, (), True, True, 0.1),
    ((3, 3, 3), 24, 8, ()),
]
# the first two fit each of the GPUs, and are of the one program and of the other
SHAPES = [MIXED_SHAPES[0], *UNMIXED_SHAPES, *MIXED_SHAPES[1:]]
WITH_NVRTC = pytest.mark.skipif(library.absence() is not None, reason=str(library.absence()))


def compile_for(capability: tuple[int, int], shape: tuple) -> int | None:
    """Compile a shape's programs for a GPU: the bytes of a thread's stack, or None if the GPU has too little memory."""
    heads, K, V, terms, *flags = shape
    case = Case((1, 16, 16, K, V), heads, terms, mixed.TILES[0], *flags)
    with launches_noted(GPUS[capability]) as noted:
        try:
            results(case.leaves(), "cuda", **case.options())
        except ValueError as refusal:
            assert "its tiles need more shared memory than a program has on this GPU" in str(refusal)
            return None
    ((source, constants, launches),) = noted
    needs = cubin.needs(library.compile_programs(source, constants, capability))
    assert launches.keys() == needs.keys()
    for program, (threads, shared_bytes) in launches.items():
        assert threads * needs[program].registers <= 65_536, program
        assert shared_bytes <= GPUS[capability] and needs[program].static_bytes <= RESERVED_BYTES, program
    return max(need.stack_bytes for need in needs.values())


@WITH_NVRTC
@pytest.mark.parametrize(("capability", "shape"), [((8, 9), MIXED_SHAPES[0]), ((9, 0), UNMIXED_SHAPES[0])])
def test_a_gpus_compiler_takes_the_programs(capability, shape):
    assert compile_for(capability, shape) is not None


@WITH_NVRTC
def test_what_a_gpus_compiler_does_not_take_is_shown():
    with pytest.raises(RuntimeError, match=r"^mixed\.cu doesn't compile: .*block\.h\(\d+\): error"):
        library.compile_programs("mixed.cu", (("KEY_HEADS", 3),), (9, 0))


@WITH_NVRTC
@pytest.mark.campaign
@pytest.mark.parametrize("capability", GPUS)
def test_compilers_for_gpus_that_need_not_exist_take_the_programs(capability, tries, say):
    """The small campaign compiles two shapes for each of four GPUs, in 40 seconds; the large one compiles twenty."""
    stacks = {shape: compile_for(capability, shape) for shape in SHAPES[: tries(2, 20)]}
    refused = sum(stack is None for stack in stacks.values())
    assert refused < len(stacks)
    spilled = [*filter(None, stacks.values())]
    say(f"{len(stacks) - refused} shapes compiled, {refused} refused; threads have {spilled} bytes of stack")
