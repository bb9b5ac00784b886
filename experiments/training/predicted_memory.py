"""The peak memory of a run, predicted from shapes alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks

from experiments.measure.hardware import resolve_device, resolve_precision
from experiments.measure.memory import resident_bytes
from experiments.objectives.loss import predict
from experiments.settings.run import Settings
from experiments.tasks.choose import task_of

BYTES_PER_PARAMETER = 16  # float32: weight, gradient, and AdamW's two moments
HEAP_OVERHEAD = 1.5  # of glibc's heap, which has holes where tensors of other sizes were; measured


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
    source = task_of(settings)
    objective = source.objective(Ids(vocabulary_size))
    example = objective.batch(np.full((sequences, settings.row_length), vocabulary_size - 1), 0, 0)
    storages: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage._cdata] = storage
        return tensor

    with torch.random.fork_rng(devices=[]), FakeTensorMode() as fake, torch.device(device):
        model = source.build_model(vocabulary_size)
        shapes = example.map_tensors(lambda tensor: fake.from_tensor(tensor).to(device))
        weights = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
        with (
            torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16"),
            saved_tensors_hooks(keep, lambda tensor: tensor),
        ):
            predict(model, shapes)
        sizes = [storage.nbytes() for key, storage in storages.items() if key not in weights]
        return sum(parameter.numel() for parameter in model.parameters()), sum(sizes), max(sizes)


class Ids(NamedTuple):
    """Stands in for a vocabulary where only its size is known: the first ids are the special ones."""

    vocabulary_size: int
    special: frozenset[int] = frozenset(range(5))
    pad_id: int = 0
    unk_id: int = 1
    cls_id: int = 2
    sep_id: int = 3
    mask_id: int = 4

    @property
    def sentinel_ids(self) -> range:
        """All ids but the first: as many sentinels as are asked for."""
        return range(5, self.vocabulary_size)
