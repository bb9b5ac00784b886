"""Processes that divide the weights, gradients and moments of a run among them, with FSDP.

`torch.distributed.fsdp.fully_shard` (FSDP2) divides every tensor by its first dimension. Each process has a part of it,
as a `DTensor`. The weights of a layer are gathered when a pass reaches the layer, and given up again after it. In the
backward pass, gradients are summed and divided at once.
"""

from __future__ import annotations

from collections import UserDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.nn.utils import get_total_norm
from torch.optim import AdamW, Optimizer

from experiments.failures.exit_code import ExitCode
from experiments.failures.failure import Failure
from experiments.failures.wording import first_line
from experiments.model.transformer import Transformer
from experiments.objectives.cross_entropy import IGNORED_TARGET
from experiments.objectives.objective import Batch
from experiments.training.distributed.group import DistributedWorld
from experiments.training.step.micro_batches import is_out_of_memory


class PartOutOfMemoryError(Failure):
    """Memory ran out in one process of several that need each other in every pass."""

    exit_code = ExitCode.OUT_OF_MEMORY


class ShardedWorld(DistributedWorld):
    """Several processes, each with a part of the weights, gradients and moments.

    All make the same number of passes, because each pass needs the weights of all. A process whose memory runs out
    can't repeat a pass alone, so it ends the run.
    """

    sharded = True

    def place(self, model: nn.Module, device: torch.device) -> None:
        """As in `World`. Layers are divided one after the other, so the device never holds the whole model."""
        assert isinstance(model, Transformer)
        mesh = init_device_mesh(device.type, (self.size,))
        for module in (*units(model), model):
            sharded = fully_shard(module, mesh=mesh, reshard_after_forward=True)
            # a loss is divided by the number of predicted tokens of the whole batch
            sharded.set_gradient_divide_factor(1.0)
            # the other way to divide is unknown to gloo
            sharded.set_force_sum_reduction_for_comms(True)
            module.register_forward_pre_hook(_keep_mappings, prepend=True, with_kwargs=True)

    def share(self, parts: Iterable[Batch]) -> Iterator[tuple[int, Batch]]:
        """As in `World`. A process that has no part when others have one gets a part with nothing to predict."""
        numbered = enumerate(parts)
        while together := list(islice(numbered, self.size)):
            if self.rank < len(together):
                yield together[self.rank]
            else:
                index, part = together[0]
                yield index, idle(part)

    @contextmanager
    def passes(self) -> Iterator[None]:
        """As in `World`. Raises PartOutOfMemoryError and LostProcessError."""
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            if is_out_of_memory(error):
                self._lost = True
                raise PartOutOfMemoryError(
                    f"out of memory in process {self.rank}: {first_line(error)}; with trainer.sharded=true the "
                    "sequences at once are not halved, so set a smaller trainer.micro_batch"
                ) from error
            if isinstance(error, dist.DistError) or "gloo" in str(error):
                raise self._lost_process(error) from error
            raise

    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Nothing is left to do: the backward pass has summed them."""

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """As in `World`."""
        with self._heard():
            return self._gathered(get_total_norm(gradients))

    def finite(self, tensor: Tensor) -> bool:
        """As in `World`."""
        assert isinstance(tensor, DTensor)
        return not self.any(not tensor.to_local().isfinite().all())

    def update(self, optimizers: Sequence[Optimizer]) -> None:
        """As in `World`. AdamW updates each number by itself; others need whole matrices, and get one at a time."""
        for optimizer in optimizers:
            if isinstance(optimizer, AdamW):
                optimizer.step()
            else:
                self._update_whole(optimizer)

    def whole(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """As in `World`: on the CPU of the first process; in the others there are none."""
        gathered = {}
        for name, tensor in tensors.items():
            whole = self._gathered(tensor)
            if self.rank == 0:
                gathered[name] = whole.cpu()
        return gathered

    def restore(self, live: Mapping[str, Tensor], whole: Mapping[str, Tensor]) -> None:
        """As in `World`. Each process gets its part; undivided tensors are only copied in the first process."""
        for name, tensor in live.items():
            if isinstance(tensor, DTensor):
                values = whole[name] if self.rank == 0 else torch.empty(tensor.shape, dtype=tensor.dtype)
                with self._heard():
                    tensor.copy_(distribute_tensor(values.to(tensor.device), tensor.device_mesh, tensor.placements))
            elif self.rank == 0:
                tensor.copy_(whole[name])

    def spread(self, tensors: Sequence[Tensor]) -> None:
        """As in `World`, for undivided tensors. The others have each number in one process only."""
        super().spread([tensor for tensor in tensors if not isinstance(tensor, DTensor)])

    def make_whole(self, model: nn.Module) -> None:
        """As in `World`."""
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_reshard_after_forward(False, recurse=False)
                with self._heard():
                    module.unshard()

    def _gathered(self, tensor: Tensor) -> Tensor:
        if not isinstance(tensor, DTensor):
            return tensor
        with self._heard():
            return tensor.full_tensor().detach()

    def _update_whole(self, optimizer: Optimizer) -> None:
        """Let the optimizer update one whole parameter after the other, each in every process."""
        groups, states = optimizer.param_groups, optimizer.state
        for group in groups:
            before = {key: value.clone() for key, value in group.items() if isinstance(value, Tensor)}
            for parameter in group["params"]:
                whole = self._gathered(parameter)
                whole.grad = None if parameter.grad is None else self._gathered(parameter.grad)
                state = {key: self._gathered(value) for key, value in states[parameter].items()}
                # the group's own tensors, such as LAMB's number of the step, are the same for each of its parameters
                for key, value in before.items():
                    group[key].copy_(value)
                optimizer.param_groups = [group | {"params": [whole]}]
                optimizer.state = defaultdict(dict, {whole: state})
                try:
                    optimizer.step()
                finally:
                    optimizer.param_groups, optimizer.state = groups, states
                parameter.detach().copy_(_divided(whole, parameter))
                states[parameter] = {key: _divided(value, parameter) for key, value in state.items()}


def units(model: Transformer) -> list[nn.Module]:
    """The modules whose weights are gathered at once, besides the model's own: its layers.

    Layers that share modules are none, because the first one's weights are needed in all. The model gathers them.
    """
    shared = any(isinstance(value, nn.Module) for layer in model.layers for value in vars(layer).values())
    return [] if shared else [*model.layers]


def idle(part: Batch) -> Batch:
    """The part with nothing to predict, whose losses and gradient are 0."""
    labels = None if part.labels is None else torch.full_like(part.labels, IGNORED_TARGET)
    return part._replace(positions=part.positions[:0], targets=part.targets[:0], labels=labels)


def _divided(value: Any, parameter: DTensor) -> Any:
    """This process's part of a tensor that all processes have whole; what has no dimensions stays whole."""
    if not isinstance(value, Tensor) or value.dim() == 0:
        return value
    # without a source, nothing is sent; a copy, because a part would keep the memory of the whole
    return distribute_tensor(value, parameter.device_mesh, [Shard(0)], src_data_rank=None).clone()


class _Kept(UserDict[str, Any]):
    """A mapping that is passed on as the object that it is."""

    def __init__(self, mapping: dict[str, Any]) -> None:
        self.data = mapping


def _keep_mappings(
    module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Keep FSDP from copying mappings in which layers leave tensors for later ones."""
    kept = {name: _Kept(value) if isinstance(value, dict) else value for name, value in keywords.items()}
    return arguments, kept
