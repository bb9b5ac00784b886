"""How the programs in this folder are launched: their arguments, and what they need of tensors and GPU."""

# B batch, N queries, M memory

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from attention.kernels.cuda import library
from attention.kernels.dropout import keep_scale, keep_threshold
from attention.kernels.problem import has_no_data

LARGEST_SHARED_LIMIT = 232_448  # of compute capability 9.0, in bytes
TOO_LITTLE_SHARED_MEMORY = "its tiles need more shared memory than a program has on this GPU"


class Plan(NamedTuple):
    """How the programs of a source are compiled and launched for the sizes of a problem."""

    source: str
    constants: library.Constants
    threads: int  # of a block
    rows: int  # of a result, which a block computes
    shared_bytes: Mapping[str, int]  # of a block, by the program

    def blocks(self, results: int, length: int) -> int:
        """The number of blocks for so many results of this length; each computes rows of one of them."""
        return results * -(-length // self.rows)


class Arguments(ctypes.Structure):
    """The arguments of every program, as `problem.h` declares them."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in (
            "query", "key", "value", "grad_output", "logits_projection", "weights_projection", "mask", "dropout_keys",
            "lse", "correction", "output", "grad_query", "grad_key", "grad_value",
            "grad_logits_projection", "grad_weights_projection",
        )),
        *((name, ctypes.c_int) for name in ("queries", "memory", "mask_stride", "keep_threshold")),
        *((name, ctypes.c_float) for name in ("scale", "keep_scale")),
    ]  # fmt: skip


class Launch:
    """Launches the programs of a plan on one problem: `launch(program, blocks, **tensors)`.

    Tensors are named as in `Arguments`. Those that the constructor takes (among them query and key) belong to every
    launch. If the query has no data, nothing is launched.
    """

    def __init__(self, plan: Plan, scale: float, dropout: float, **tensors: Tensor | None) -> None:
        query, key, mask = tensors["query"], tensors["key"], tensors["mask"]
        assert query is not None and key is not None
        self.plan, self.query = plan, query
        memory = key.shape[1]
        threshold, factor = (keep_threshold(dropout), keep_scale(dropout)) if dropout else (0, 1.0)
        self.arguments = Arguments(
            queries=query.shape[1], memory=memory, mask_stride=0 if mask is None or mask.shape[0] == 1 else memory,
            keep_threshold=threshold, scale=scale, keep_scale=factor,
        )  # fmt: skip
        self._take(tensors)

    def __call__(self, program: str, blocks: int, **tensors: Tensor | None) -> None:
        """Launch a program on torch's current stream. Raises RuntimeError if it can't be compiled or launched."""
        if has_no_data(self.query):
            return
        self._take(tensors)
        plan = self.plan
        with torch.cuda.device_of(self.query):
            programs = library.programs(plan.source, plan.constants, self.query.device)
            programs.launch(program, blocks, plan.threads, plan.shared_bytes[program], self.arguments)

    def _take(self, tensors: Mapping[str, Tensor | None]) -> None:
        """Set arguments. Their tensors must stay alive until the last launch."""
        if not has_no_data(self.query):
            for name, tensor in tensors.items():
                setattr(self.arguments, name, None if tensor is None else tensor.data_ptr())


def dense(tensor: Tensor) -> Tensor:
    """Make the tensor contiguous and aligned to 16 bytes, as copies to shared memory need it."""
    tensor = tensor.contiguous()
    return tensor if has_no_data(tensor) or tensor.data_ptr() % 16 == 0 else tensor.clone()


def shared_limit(device: torch.device) -> int:
    """Bytes of shared memory that a program can have on the GPU, or on any GPU if the device (meta) is none."""
    if device.type != "cuda":
        return LARGEST_SHARED_LIMIT
    # torch's stubs don't have it
    return int(torch.cuda.get_device_properties(device).shared_memory_per_block_optin)  # type: ignore[attr-defined]
