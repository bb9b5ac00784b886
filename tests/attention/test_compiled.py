"""The compiled kernel: it equals the reference at sizes around those of its tiles, repeats its bits, and is built."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import stat
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from attention.kernels import compiled, cpu_library, kernel_cache
from attention.kernels.interruptions import INTERRUPTING
from attention.kernels.problem import Projection
from attention.layers.attend import attend
from experiments.measure.cores import cpu_field


@pytest.fixture
def threads(monkeypatch):
    """threads(N): let torch use N threads, which share examples of any size. It starts with two, and is undone."""
    monkeypatch.setattr(compiled, "SHARED_WEIGHTS", 1)
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
    """In bf16 it is at least as exact as the reference, which rounds every map to bf16, except for a few numbers."""
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
    plain = [tensor.detach().requires_grad_() for tensor in leaves(3, 90, (5, 5, 5), 9, 9, dtype)[:3]]

    def results(number: int) -> list[torch.Tensor]:
        threads(number)
        output = attend(*plain, causal=causal, backend="compiled")
        return [*run(tensors, "compiled", causal=causal), output, *torch.autograd.grad(output.sum(), plain)]

    alone = results(1)
    for number in (2, 9):
        got, again = results(number), results(number)
        assert all(map(torch.equal, got, again))
        *shared, logits, weights = got[:6]
        assert all(map(torch.equal, [*shared, *got[6:]], [*alone[:4], *alone[6:]]))
        torch.testing.assert_close([logits, weights], alone[4:6])


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
        each = compiled._Tensors(*tensors[:3], *matrices, None, None, None)
        return compiled._Arguments(each, causal=False, scale=1.0, dropout=0.0).workspace_bytes(backward=True)

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
    with pytest.raises(RuntimeError):
        torch.autograd.grad(grad.sum(), tensors[0])


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
    """An empty cache, in a process that has not loaded the kernel; a build takes no time here."""
    sources = tmp_path / "sources"
    sources.mkdir()
    code = 'extern "C" long workspace_bytes() { return 0; }\nextern "C" void attend() {}\n'
    (sources / "attend.cpp").write_text(code)
    monkeypatch.setattr(cpu_library, "SOURCES", sources)
    # the cache is the former one again afterwards
    monkeypatch.setattr(kernel_cache, "_folder", tmp_path / "nowhere")
    monkeypatch.setattr(kernel_cache, "_report", None)
    # the library that this process has loaded is there again afterwards
    monkeypatch.setattr(cpu_library, "library", functools.cache(cpu_library.library.__wrapped__))
    cpu_library.build_in(tmp_path / "cache")
    return tmp_path / "cache"


def test_it_is_built_once_and_leaves_nothing_else_behind(elsewhere):
    handlers = [signal.getsignal(number) for number in INTERRUPTING]
    built = cpu_library._build()
    assert [signal.getsignal(number) for number in INTERRUPTING] == handlers
    made = built.stat().st_mtime_ns
    assert cpu_library._build() == built and built.stat().st_mtime_ns == made
    assert sorted(elsewhere.rglob("*")) == [built.parent, built, built.parent / "lock"]
    assert stat.S_IMODE(built.stat().st_mode) == 0o500 and stat.S_IMODE(built.parent.stat().st_mode) == 0o700


def test_another_source_compiler_or_flag_is_another_library(elsewhere, monkeypatch):
    made = {cpu_library._build()}
    (cpu_library.SOURCES / "another.h").write_text("// changed\n")
    made.add(cpu_library._build())
    monkeypatch.setattr(cpu_library, "FLAGS", (*cpu_library.FLAGS, "-DATTENTION_OTHER"))
    made.add(cpu_library._build())
    monkeypatch.setattr(torch, "__version__", "0.0")
    made.add(cpu_library._build())
    assert len(made) == 4 and all(path.is_file() for path in made)


def another_user(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the process seem to run as another user than the file's owner."""
    lstat = Path.lstat

    def found(each: Path) -> SimpleNamespace:
        return SimpleNamespace(st_mode=lstat(each).st_mode, st_uid=lstat(each).st_uid + (each == path))

    monkeypatch.setattr(Path, "lstat", found)


def writable_by_others(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.chmod(path.stat().st_mode | stat.S_IWGRP)


def a_link(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


@pytest.mark.parametrize("change", [another_user, writable_by_others, a_link])
@pytest.mark.parametrize("which", ["library", "folder"])
def test_what_another_user_may_have_put_there_is_not_loaded(elsewhere, monkeypatch, change, which):
    library = cpu_library._build()
    loaded: list[str] = []
    monkeypatch.setattr(cpu_library.ctypes, "CDLL", loaded.append)
    path = library if which == "library" else library.parent
    change(path, monkeypatch)
    assert cpu_library.library().functions is None and f"{path} is a link, another user's" in str(compiled.absence())
    query, told = torch.randn(1, 3, 2, 4), []
    attend(query, query, query, logits_projection=Projection(torch.eye(2)), report=told.append)
    assert told == ["blocked"] and not loaded


@pytest.mark.campaign
def test_processes_that_build_at_once_build_it_once(elsewhere, monkeypatch, tmp_path):
    log = tmp_path / "log"
    counting = tmp_path / "counting-g++"
    counting.write_text(f'#!/bin/sh\ncase "$*" in *-dM*) ;; *) echo >> {log}; sleep 1;; esac\nexec g++ "$@"\n')
    counting.chmod(0o700)
    monkeypatch.setenv("CXX", str(counting))
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        paths = pool.map(_built, 3 * [(cpu_library.SOURCES, elsewhere)])
    assert len(set(paths)) == 1 and compiled.absence() is None and log.read_text() == "\n"


def test_what_a_killed_build_has_left_is_removed_by_the_next(elsewhere):
    path = cpu_library._build()
    path.unlink()
    (path.parent / "building-abc").mkdir()
    (path.parent / "building-abc" / "half.so").write_bytes(b"half")
    assert cpu_library._build() == path and sorted(path.parent.iterdir()) == [path, path.parent / "lock"]


def test_a_compiler_is_stopped_by_the_processor_time_it_takes_and_not_by_the_clock(elsewhere, monkeypatch, tmp_path):
    endless = tmp_path / "endless"
    endless.write_text("#!/bin/sh\nwhile :; do :; done\n")
    endless.chmod(0o700)
    monkeypatch.setattr(cpu_library, "COMPILE_SECONDS", 1)
    monkeypatch.setenv("CXX", str(endless))
    assert f"{endless} was ended by SIGXCPU" in str(compiled.absence())
    monkeypatch.setattr(cpu_library, "WAIT_SECONDS", 0.05)
    endless.write_text("#!/bin/sh\nexec sleep 60\n")
    cpu_library.library.cache_clear()
    assert f"{endless} has not ended after 0.05 seconds" in str(compiled.absence())


@pytest.mark.parametrize("when", ["while it starts", "while it is awaited"])
def test_an_interrupted_build_leaves_no_process_and_no_file(elsewhere, monkeypatch, tmp_path, when):
    interrupt = "kill -INT $PPID"
    if when == "while it starts":
        interrupt = ":"

        class Interrupted(subprocess.Popen):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                if "-dM" not in args[0]:
                    while not (tmp_path / "started").exists():
                        time.sleep(0.01)
                    signal.raise_signal(signal.SIGINT)

        monkeypatch.setattr(cpu_library.subprocess, "Popen", Interrupted)
    monkeypatch.setenv("CXX", _interrupting_compiler(tmp_path, interrupt))
    monkeypatch.setenv("TMPDIR", str(elsewhere))
    with pytest.raises(KeyboardInterrupt):
        cpu_library._build()
    _check_nothing_is_left(elsewhere, tmp_path)


@pytest.mark.parametrize("signals", [["TERM"], ["HUP"], ["INT", "TERM"], ["TERM", "TERM"]])
def test_a_signal_without_a_handler_takes_effect_after_the_files_of_the_build_are_gone(
    elsewhere, monkeypatch, tmp_path, signals
):
    interrupts = "; ".join(f"kill -{name} $PPID" for name in signals)
    monkeypatch.setenv("CXX", _interrupting_compiler(tmp_path, interrupts))
    builder = multiprocessing.get_context("spawn").Process(target=_built, args=((cpu_library.SOURCES, elsewhere),))
    builder.start()
    builder.join(60)
    assert builder.exitcode == -signal.Signals[f"SIG{signals[-1]}"]
    _check_nothing_is_left(elsewhere, tmp_path)


def _interrupting_compiler(folder: Path, interrupt: str) -> str:
    """A compiler that has another process write into TMPDIR, as g++ does, and interrupts whoever started it."""
    compiler = folder / "compiler"
    starts = f'sleep 60 & echo $! > {folder}/pid; touch "$TMPDIR/half.s" {folder}/started; {interrupt}; wait'
    compiler.write_text(f'#!/bin/sh\ncase "$*" in *-dM*) ;; *) {starts};; esac\n')
    compiler.chmod(0o700)
    return str(compiler)


def _check_nothing_is_left(cache: Path, folder: Path) -> None:
    """Check that neither files of the build nor the process of `_interrupting_compiler` have stayed."""
    assert [path.name for path in cache.rglob("*") if path.is_file()] == ["lock"]
    status = Path("/proc") / (folder / "pid").read_text().strip() / "status"

    def is_dead() -> bool:
        """Whether the process has ended; its new parent may not have waited for it yet."""
        try:
            return "State:\tZ" in status.read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True

    deadline = time.monotonic() + 30
    while not is_dead():
        assert time.monotonic() < deadline, "it was not killed"
        time.sleep(0.01)


def _built(folders: tuple[Path, Path]) -> str:
    cpu_library.SOURCES, cache = folders
    cpu_library.build_in(cache)
    return str(cpu_library._build())


@pytest.mark.parametrize(
    ("compiler", "why"),
    [
        ("/nowhere/g++", "there is no program /nowhere/g.."),
        ("false", "false ended with code 1"),
        ("", "no C.. compiler"),
    ],
)
def test_without_a_compiler_auto_quietly_computes_in_blocks(elsewhere, monkeypatch, capfd, recwarn, compiler, why):
    monkeypatch.setenv("PATH", os.environ["PATH"] if compiler else str(elsewhere))
    monkeypatch.setenv("CXX", compiler)
    query, eye = torch.randn(1, 3, 2, 4), Projection(torch.eye(2))
    told: list[str] = []
    output = attend(query, query, query, logits_projection=eye, report=told.append)
    assert told == ["blocked"] and capfd.readouterr() == ("", "") and not recwarn.list
    torch.testing.assert_close(output, attend(query, query, query, backend="reference"))
    with pytest.raises(ValueError, match=f"compiled can't do this: it can't be built here: .*{why}"):
        attend(query, query, query, backend="compiled")


def test_a_library_that_was_cut_short_is_built_again(elsewhere):
    path = cpu_library._build()
    whole = path.read_bytes()
    path.chmod(0o700)
    path.write_bytes(whole[:1000])
    assert cpu_library._build() == path and path.stat().st_size == len(whole)
    assert compiled.absence() is None


def test_the_folder_is_the_callers_and_a_loaded_library_stays(elsewhere, monkeypatch):
    another, said = elsewhere.with_name("another"), list[str]()
    monkeypatch.setenv("ATTN_CACHE", str(elsewhere.with_name("environment")))
    monkeypatch.setenv("CXX", "false")
    assert "false ended with code 1" in str(compiled.absence())
    monkeypatch.delenv("CXX")
    cpu_library.build_in(another, said.append)
    assert compiled.absence() is None and len(said) == 2
    assert said[0].startswith("building the attention kernel with ") and said[1].startswith("the kernel was built in ")
    assert list(another.rglob("*.so")) and not elsewhere.exists()
    loaded = cpu_library.library()
    cpu_library.build_in(elsewhere)
    assert cpu_library.library() is loaded
