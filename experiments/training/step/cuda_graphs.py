"""The gradients of a small model on a GPU, as CUDA graphs.

The passes of a small model are a thousand programs of a few microseconds each, and the processor needs several times as
long to launch them as the GPU to run them. A graph has recorded them, and launches them all with one call. It computes
the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from experiments.failures.wording import first_line
from experiments.model.layers.batch_norm import batch_norms
from experiments.model.transformer import Transformer
from experiments.objectives.loss import LossSums
from experiments.objectives.objective import Batch, Objective
from experiments.training.step.compiling import is_compiled
from experiments.training.step.micro_batches import Forward, backward, dropout_seed, padded, seed_device

# of the passes of one batch: with more, the GPU is busy for longer than the processor needs to launch its programs, and
# a graph would only keep the memory of the passes
MOST_FLOPS = 2e12
MOST_SHAPES = 8  # each has its own graph

T = TypeVar("T")
Gradients = list[tuple[nn.Parameter, Tensor]]  # each parameter with its gradient


class Recorder:
    """Records passes on a GPU, in a stream of its own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def prepare(self, passes: Callable[[], T]) -> T:
        """Do passes like those to record, in the same stream: autograd and the libraries prepare for a stream."""
        present = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(present)
        with torch.cuda.stream(self._stream):
            results = passes()
        present.wait_stream(self._stream)
        return results

    def record(self, passes: Callable[[], T]) -> tuple[T, Callable[[], None]]:
        """Record the passes. Returns their results, and the function that computes these, in place, from the inputs.

        Raises RuntimeError.
        """
        graph = torch.cuda.CUDAGraph()
        # a recording that fails does not return to the stream from before, and its generator draws for recordings alone
        before = torch.cuda.stream(torch.cuda.current_stream(self._device))
        generator = torch.cuda.default_generators[self._stream.device.index]
        drawn = generator.clone_state()
        try:
            # other threads, such as those of loggers, may use the driver meanwhile
            with before, torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local"):
                results = passes()
        except RuntimeError:
            generator.graphsafe_set_state(drawn)
            raise
        return results, graph.replay


class CudaGraphs:
    """Computes what `backward` computes, by graphs from the second batch of a shape on.

    The first batch of a shape loads programs and fills caches, which cannot be recorded.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._recordings: dict[object, _Recording | None] = {}  # by shape; None: a batch of this shape was met
        self._refused = False

    def backward(
        self, forward: Forward, batch: Batch, step: int, micro_batch: int, say: Callable[[str], None]
    ) -> LossSums:
        """Compute the gradient of the batch's mean loss into the parameters, which have none before.

        Returns the summed losses, which the next call overwrites. say: receives a line if nothing can be recorded.
        """
        if self._refused or micro_batch < len(batch.tokens):
            return backward(forward, batch, step, micro_batch)
        part = padded(batch)
        shape = tuple(tensor.shape for tensor in _tensors(part))
        if shape not in self._recordings:
            if len(self._recordings) == MOST_SHAPES or is_compiled(forward.model):
                return backward(forward, batch, step, micro_batch)
            self._recordings[shape] = None
            return self._recorder.prepare(lambda: backward(forward, batch, step, micro_batch))
        recording = self._recordings[shape] or self._record(forward, part, say)
        if recording is None:
            return backward(forward, batch, step, micro_batch)
        self._recordings[shape] = recording
        # the generator of the dropout in the residual stream
        seed_device(dropout_seed(forward.seed, step, 0), forward.device)
        return recording.compute(batch, part)

    def _record(self, forward: Forward, part: Batch, say: Callable[[str], None]) -> _Recording | None:
        part = forward.on_device(part)
        shares = torch.zeros(2, dtype=torch.float64, device=forward.device)

        def passes() -> tuple[Tensor, Gradients]:
            sums = forward.predict_there(part)[1]
            terms = [sums.smoothed] if part.labels is None else [sums.smoothed, sums.labels]
            torch.autograd.backward(terms, [*shares[: len(terms)]])
            losses = torch.stack([each.detach().to(torch.float64) for each in sums])
            return losses, [(each, each.grad) for each in forward.model.parameters() if each.grad is not None]

        try:
            (losses, gradients), replay = self._recorder.record(passes)
        except RuntimeError as error:
            self._refused = True
            self._recordings.clear()
            forward.model.zero_grad(set_to_none=True)
            say(f"steps take longer, because their passes could not be recorded as a CUDA graph: {first_line(error)}")
            return None
        return _Recording(replay, part, shares, losses, gradients)


class _Recording(NamedTuple):
    """The recorded passes of batches of one shape."""

    replay: Callable[[], None]
    part: Batch  # a replay reads it
    shares: Tensor  # float64 [2], which it reads too: 1 / the number of positions, 1 / the number of labels
    losses: Tensor  # float64 [4], which it writes, in the order of LossSums
    gradients: Gradients  # which it writes

    def compute(self, batch: Batch, part: Batch) -> LossSums:
        """Compute the gradient of `batch`, of which `part` is the padded form."""
        for mine, given in zip(_tensors(self.part), _tensors(part), strict=True):
            mine.copy_(given, non_blocking=True)
        counts = len(batch.targets), 1 if batch.labels is None else len(batch.labels)
        self.shares.copy_(torch.tensor([1 / count for count in counts], dtype=torch.float64), non_blocking=True)
        self.replay()
        for parameter, gradient in self.gradients:
            parameter.grad = gradient
        return LossSums(*self.losses)


def graphs_of(
    model: Transformer, objective: Objective, device: torch.device, batch_size: int, length: int
) -> CudaGraphs | None:
    """The graphs of a run on `device`; None if they would not help, or if its passes cannot be replayed.

    Replayed passes see no other seed of attention dropout, which is a number of the processor, and propose no batch
    statistics.
    """
    if device.type != "cuda" or objective.lengths_vary or any(attention.dropout for attention in model.attentions):
        return None
    flops = batch_size * length * model.flops_per_token(length, objective.predicted_share)
    return None if flops > MOST_FLOPS or any(True for _ in batch_norms(model)) else CudaGraphs(Recorder(device))


def _tensors(part: Batch) -> list[Tensor]:
    labels = [] if part.labels is None else [part.labels]
    return [*part.inputs.values(), part.positions, part.targets, *labels]
