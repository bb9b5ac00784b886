"""Compile the Triton programs for GPUs that needn't exist, and print what each needs: one line of JSON per problem.

python compile_triton.py SHAPES CAPABILITY...: compile the first SHAPES shapes for each of these GPUs.

A stand-in for CUDA's driver names a GPU, records what is launched, and launches nothing.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget

sys.path.insert(0, str(Path(__file__).parents[2]))

from attention.kernels import triton_kernel
from attention.kernels.problem import Problem, Projection

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
SHAPES: list[tuple[Any, ...]] = [  # (h_k, h, h_v), K, V, type; dropout, causal, projections before and after, mask
    ((4, 4, 4), 64, 128, BF16),
    ((3, 5, 2), 20, 24, BF16),
    ((48, 48, 48), 16, 16, BF16),
    ((24, 24, 24), 32, 32, BF16),
    ((24, 24, 24), 32, 32, BF16, 0.1, True),
    ((24, 24, 24), 8, 8, BF16, 0.0, False, (True, True), True),
    ((12, 12, 12), 64, 64, BF16),
    ((12, 12, 12), 64, 64, FP16, 0.1),
    ((12, 12, 12), 64, 64, FP32),
    ((6, 6, 6), 20, 20, BF16, 0.1, True),
    ((6, 6, 6), 128, 128, BF16),
    ((16, 16, 16), 64, 64, BF16),
    ((16, 16, 16), 64, 64, BF16, 0.0, False, (True, False)),
    ((16, 16, 16), 64, 64, BF16, 0.0, False, (False, True)),
    ((8, 8, 8), 32, 32, BF16, 0.0, True, (False, False), True),
    ((8, 32, 8), 32, 16, BF16),
    ((32, 16, 8), 16, 64, FP16, 0.2, True),
    ((2, 2, 2), 256, 256, BF16),
    ((1, 1, 1), 64, 64, BF16),
    ((24, 24, 24), 16, 16, FP32),
]


class Driver:
    """What Triton asks of a GPU's driver. `loaded`: the shared memory asked for with each program."""

    def __init__(self, capability: int) -> None:
        self.capability = capability
        self.loaded: list[int] = []
        self.utils = SimpleNamespace(
            load_binary=self.load, get_device_properties=lambda _: {"max_shared_mem": sys.maxsize}
        )

    def get_current_device(self) -> int:
        return self.capability  # Triton keeps programs by device

    def get_current_stream(self, _: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)

    def launcher_cls(self, *_: Any) -> Any:
        return lambda *_: None

    def load(self, _name: str, _binary: bytes, shared: int, _device: int) -> tuple[Any, ...]:
        self.loaded.append(shared)
        return None, None, 0, 0, 1024


def without_assembler(_self=None, stages=None, *_: Any) -> Any:
    """The stages up to PTX: what the assembler does changes nothing in shared memory."""
    if stages is not None:
        stages["cubin"] = lambda source, _metadata: source.encode()
    return "no assembler", "no assembler"


def take(
    capability, heads, K, V, dtype, dropout=0.0, causal=False, mixes=(True, True), masked=False, N=32
) -> dict[str, Any]:
    """What the kernel says that a problem takes, and what it asked for when it ran."""
    h_k, h, h_v = heads
    driver = Driver(capability)
    triton.runtime.driver.set_active(driver)
    shapes = ((2, N, h_k, K), (2, N, h_k, K), (2, N, h_v, V))
    query, key, value = (torch.zeros(shape, dtype=dtype, requires_grad=True) for shape in shapes)
    P_l, P_w = (torch.zeros(shape, dtype=dtype, requires_grad=True) for shape in ((h_k, h), (h, h_v)))
    options = {"logits_projection": Projection(P_l)} if mixes[0] else {}
    options |= {"weights_projection": Projection(P_w)} if mixes[1] else {}
    options |= {"mask": torch.ones(2, 1, 1, N, dtype=torch.bool)} if masked else {}
    problem = Problem.of(query, key, value, causal=causal, dropout=dropout, dropout_seed=1, **options)
    launch = triton_kernel.Launch.of(problem)
    triton_kernel._needs.cache_clear()
    for program in triton_kernel.MORE:
        getattr(triton_kernel.programs(), program).device_caches.clear()
    said = launch.shared_bytes()
    fits = launch.tensor_columns() <= triton_kernel.TENSOR_COLUMNS
    try:
        triton_kernel.attend(problem).sum().backward()
        ran = True
    except triton.runtime.errors.OutOfResources:
        ran = False
    programs = [getattr(triton_kernel.programs(), program) for program in triton_kernel.MORE]
    ptx = [launch.compiled(program).asm["ptx"] for program in triton_kernel.MORE]
    return {
        "case": f"sm_{capability} {heads} {K} {V} {dtype} {dropout} {causal} {mixes} {masked}",
        "said": said, "fits": fits, "ran": ran, "loaded": driver.loaded,
        "tensor_cores": all("mma" in each for each in ptx),
        "compiled": sum(len(program.device_caches[capability][0]) for program in programs),
    }  # fmt: skip


if __name__ == "__main__":
    triton.knobs.runtime.add_stages_inspection_hook = without_assembler
    count, *capabilities = map(int, sys.argv[1:])
    for capability, shape in itertools.product(capabilities, SHAPES[:count]):
        print(json.dumps(take(capability, *shape)), flush=True)
