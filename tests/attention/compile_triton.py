"""Compiles the Triton programs for GPUs that needn't be there, and prints what each takes: a line of JSON a program."""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

sys.path.insert(0, str(Path(__file__).parents[2]))

from attention.kernels import triton_kernel, triton_programs
from attention.kernels.problem import Problem, Projection

PROGRAMS = ("forward", "backward_queries", "backward_memory")


def compile_program(program: str, heads: int, size: int, capability: int, dropout: float, causal: bool) -> None:
    query = torch.empty(1, 16, heads, size, dtype=torch.bfloat16, device="meta")
    matrix = Projection(torch.empty(heads, heads, dtype=torch.bfloat16, device="meta"))
    case = Problem.of(query, query, query, logits_projection=matrix, weights_projection=matrix, causal=causal)
    problem = triton_kernel.Launch.of(case)._replace(dropout=dropout)
    function = getattr(triton_programs, program)
    constants = problem.constants()
    kinds = dict.fromkeys(("N", "M", "mask_stride", "threshold"), "i32") | {
        "seed": "i64",
        "scale": "fp32",
        "growth": "fp32",
    }
    wide = ("lse", "correction", "grad_logits_projection", "grad_weights_projection")
    signature, aligned = {}, {}
    for index, name in enumerate(inspect.signature(function.fn).parameters):
        pointer = "*u8" if name == "mask" else "*fp32" if name in wide else "*bf16"
        signature[name] = "constexpr" if name in constants else kinds.get(name, pointer)
        if signature[name].startswith("*"):
            aligned[(index,)] = [["tt.divisibility", 16]]
    source = ASTSource(function, signature, constants, aligned)
    options = {"num_warps": triton_kernel.WARPS, "num_stages": 1}
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    facts = {"program": program, "heads": heads, "shared": compiled.metadata.shared, "foreseen": problem.shared_bytes()}
    print(json.dumps(facts | {"tensor_cores": "mma" in compiled.asm["ptx"]}))


if __name__ == "__main__":
    for program in PROGRAMS:
        compile_program(program, heads=6, size=20, capability=80, dropout=0.1, causal=True)
