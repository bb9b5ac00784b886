"""Peak memory: measured, with a sentence that says what was counted, and predicted from shapes alone."""

from __future__ import annotations

import ctypes
import resource
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode

from experiments.material import material
from experiments.measure.hardware import resolve_device, resolve_precision
from experiments.objectives.objective import predict
from experiments.settings import Settings

STATUS = Path("/proc/self/status")
CLEAR_REFS = Path("/proc/self/clear_refs")
BYTES_PER_PARAMETER = 16  # float32: weight, gradient, and AdamW's two moments
HEAP_OVERHEAD = 1.5  # of glibc's heap, which has holes where tensors of other sizes were; measured


class PeakMemory:
    """The largest memory [bytes] since `reset`: of the process on a CPU, of torch's allocator on a GPU.

    `meaning` says in words what `peak_bytes` counts. `baseline_bytes` is what was in use at the reset already.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.meaning = ""
        self.baseline_bytes = 0
        self.reset()

    def reset(self) -> None:
        # or the peak would depend on whether this process has prepared the corpus
        give_back_freed_memory()
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            self.baseline_bytes = torch.cuda.memory_allocated(self._device)
            self.meaning = "largest amount of GPU memory that tensors held at once (torch.cuda.max_memory_allocated)"
            return
        was_reset = _reset_high_water_mark()
        self.baseline_bytes = _status("VmRSS") or process_peak_bytes()
        since = "from the start of training on" if was_reset else "since the process began, as it can't be reset here"
        self.meaning = (
            f"largest resident memory of the process {since}, of which {self.baseline_bytes / 1e6:,.0f} MB "
            "(interpreter, libraries, weights) were there before the first step"
        )

    def peak_bytes(self) -> int:
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        return _status("VmHWM") or process_peak_bytes()


def predict_peak_bytes(settings: Settings, vocabulary_size: int) -> int:
    """Peak memory of a run that isn't made, from one forward pass of tensors that have shapes but no data.

    Weights, gradients, moments, what the forward pass of one micro-batch keeps for the backward pass, and workspace. On
    a CPU also what this process holds now, as a stand-in for the interpreter and libraries of the run's own process.
    Compared with 30 measured steps of nano models (batches of 16 to 64 sequences of 64 or 128, 6 to 24 heads, both
    precisions) it is 0 to 10% too low; 16% below what 800 steps with evaluations reached, and 25% with micro-batches of
    8, whose many shapes oneDNN keeps plans for.
    """
    device = resolve_device(settings.trainer.device)
    precision = resolve_precision(settings.trainer.precision, device)
    parameters, saved, largest = _forward_bytes(settings, vocabulary_size, precision, device)
    # the backward pass holds the gradients of two tensors of the largest kind at once: of an output and of its input
    tensors = BYTES_PER_PARAMETER * parameters + 2 * largest
    if device.type == "cuda":
        return tensors + saved
    return tensors + round(saved * HEAP_OVERHEAD) + resident_bytes()


def _forward_bytes(
    settings: Settings, vocabulary_size: int, precision: str, device: torch.device
) -> tuple[int, int, int]:
    """Number of parameters; bytes saved for the backward pass, each storage once; bytes of the largest of them."""
    trainer = settings.trainer
    sequences = min(trainer.micro_batch or trainer.batch_size, trainer.batch_size)
    source = material(settings)
    objective = source.objective(Ids(vocabulary_size))
    example = objective.batch(np.full((sequences, settings.row_length), vocabulary_size - 1), 0, 0)
    storages: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage._cdata] = storage
        return tensor

    with torch.random.fork_rng(devices=[]), FakeTensorMode() as fake, Seeds(), torch.device(device):
        model = source.assemble(vocabulary_size)
        shapes = example.each(lambda tensor: fake.from_tensor(tensor).to(device))
        weights = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
        with (
            torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16"),
            saved_tensors_hooks(keep, lambda tensor: tensor),
        ):
            predict(model, shapes)
        sizes = [storage.nbytes() for key, storage in storages.items() if key not in weights]
        return sum(parameter.numel() for parameter in model.parameters()), sum(sizes), max(sizes)


class Seeds(TorchFunctionMode):
    """A seed that a kernel draws for its dropout is a number, which tensors of shapes alone lack: here it is 0."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return 0 if function is torch.randint else function(*args, **(kwargs or {}))


class Ids(NamedTuple):
    """Stands in for a vocabulary where only its size is known: the first ids are the special ones."""

    vocabulary_size: int
    special: frozenset[int] = frozenset(range(5))
    pad_id: int = 0
    cls_id: int = 2
    sep_id: int = 3
    mask_id: int = 4

    @property
    def sentinel_ids(self) -> range:
        return range(5, self.vocabulary_size)


def resident_bytes() -> int:
    """Memory that the process holds now; where that can't be known, the most it ever held."""
    return _status("VmRSS") or process_peak_bytes()


def process_peak_bytes() -> int:
    """The most memory this process ever held: getrusage, which counts in KiB but on macOS in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def give_back_freed_memory() -> None:
    """Allocators keep what was freed for later; here they return it to the system, as far as they can."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    # glibc's, which the CPU's tensors come from
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _reset_high_water_mark() -> bool:
    """Sets VmHWM back to what is resident now (proc(5): writing 5 to clear_refs); False where that isn't possible."""
    try:
        CLEAR_REFS.write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def _status(field: str) -> int | None:
    """A field of /proc/self/status in bytes; None where there is no such file or field."""
    try:
        lines = STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":")), None)
