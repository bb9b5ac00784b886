"""The peak memory of a run, predicted from the shapes of its tensors."""

from __future__ import annotations

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
from experiments.training.made_up import MadeUpVocabulary
from experiments.training.step.precision import autocast

TOKENS = 1 << 22  # of the sequences that are looked at; more of them need memory in proportion
BYTES_PER_PARAMETER = 16  # float32: weight, gradient, and AdamW's two moments
HEAP_OVERHEAD = 1.5  # factor for glibc's heap, which has holes where tensors of other sizes were; measured


def predict_peak_bytes(settings: Settings, vocabulary_size: int) -> int:
    """Predict the peak memory of a run in bytes, from one forward pass of tensors that have shapes but no data.

    The prediction is the sum of weights, gradients, moments, what the forward pass of one micro-batch keeps for the
    backward pass, and workspace. On a CPU it also includes the present memory of this process, which stands for the
    interpreter and libraries of the run's process. It is 0 to 10% below 30 measured steps of nano models (batches of 16
    to 64 sequences of length 64 or 128, 6 to 24 heads, both precisions). It is 16% below the peak of 800 steps with
    evaluations, and 25% below it with micro-batches of 8, for whose many shapes oneDNN keeps plans.
    """
    device = resolve_device(settings.trainer.device)
    precision = resolve_precision(settings.trainer.precision, device)
    parameters, saved, largest = _forward_bytes(settings, vocabulary_size, precision, device)
    # the backward pass holds two gradients of the largest size at once: those of an output and of its input
    tensors = BYTES_PER_PARAMETER * parameters + 2 * largest
    if device.type == "cuda":
        return tensors + saved
    return tensors + round(saved * HEAP_OVERHEAD) + resident_bytes()


def _forward_bytes(
    settings: Settings, vocabulary_size: int, precision: str, device: torch.device
) -> tuple[int, int, int]:
    """(number of parameters, bytes of the storages saved for the backward pass, bytes of the largest of them)."""
    trainer = settings.trainer
    of_run = min(trainer.micro_batch or trainer.batch_size, trainer.batch_size)
    sequences = min(of_run, max(1, TOKENS // settings.row_length))
    task = task_of(settings)
    objective = task.objective(MadeUpVocabulary(vocabulary_size))
    example = objective.batch(np.full((sequences, settings.row_length), vocabulary_size - 1), 0, 0)
    storages: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage._cdata] = storage
        return tensor

    with torch.random.fork_rng(devices=[]), FakeTensorMode() as fake, torch.device(device):
        model = task.build_model(vocabulary_size)
        shapes = example.map_tensors(lambda tensor: fake.from_tensor(tensor).to(device))
        weights = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
        with autocast(precision, device), saved_tensors_hooks(keep, lambda tensor: tensor):
            predict(model, shapes)
        sizes = [storage.nbytes() * of_run // sequences for key, storage in storages.items() if key not in weights]
        return sum(parameter.numel() for parameter in model.parameters()), sum(sizes), max(sizes)
