"""BatchNorm over the tokens of a batch (Ioffe and Szegedy 2015, 1502.03167), including padding or not."""

# B batch, N length, D features

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from experiments.failures.failure import Mistake
from experiments.settings.model import Model

MOMENTUM = 0.1  # weight of a batch in the running statistics, as in torch.nn.BatchNorm1d


class BatchNorm(nn.Module):
    """Normalizes each feature by its mean and variance over the tokens of a micro-batch.

    In evaluation it uses running statistics. They are buffers, so checkpoints hold them. A training pass only proposes
    their next values; `commit` adopts them when the step is taken. A pass that is repeated or abandoned therefore has
    no effect on them.
    """

    running_mean: Tensor
    running_variance: Tensor
    next_mean: Tensor
    next_variance: Tensor

    def __init__(self, size: int, eps: float, *, masked: bool) -> None:
        super().__init__()
        self.eps, self.masked = eps, masked
        self.real: Tensor | None = None  # bool [B, N], True = counts; None: every token
        self.weight = nn.Parameter(torch.empty(size))
        self.bias = nn.Parameter(torch.empty(size))
        for name in ("mean", "variance"):
            self.register_buffer(f"running_{name}", torch.empty(size))
            self.register_buffer(f"next_{name}", torch.empty(size), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start with the identity, and with the statistics of a standard normal distribution."""
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)
        nn.init.zeros_(self.running_mean)
        nn.init.ones_(self.running_variance)
        self.discard()

    def forward(self, x: Tensor) -> Tensor:
        """x [..., D] -> [..., D]; if `real` is set, x must be [B, N, D]."""
        x = x.to(self.weight.dtype)
        mean, variance = self.statistics(x) if self.training else (self.running_mean, self.running_variance)
        return (x - mean) * (variance + self.eps).rsqrt() * self.weight + self.bias

    def statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance [D] of the tokens that count; this also updates the proposed running statistics."""
        if self.real is None:
            count = torch.tensor(x.shape[:-1].numel(), device=x.device)
            variance, mean = torch.var_mean(x.flatten(0, -2), 0, correction=0)
        else:  # sums with weights, because a selection would have a shape that depends on the values of the mask
            count = self.real.sum().clamp(min=1)
            mean = x.masked_fill(~self.real[..., None], 0).sum((0, 1)) / count
            variance = (x - mean).masked_fill(~self.real[..., None], 0).square().sum((0, 1)) / count
        with torch.no_grad():
            self.next_mean.lerp_(mean, MOMENTUM)
            self.next_variance.lerp_(variance * count / (count - 1).clamp(min=1), MOMENTUM)
        return mean, variance

    def commit(self) -> None:
        """Adopt the proposed statistics as the running ones."""
        self.running_mean.copy_(self.next_mean)
        self.running_variance.copy_(self.next_variance)

    def discard(self) -> None:
        """Drop the proposed statistics."""
        with torch.no_grad():
            self.next_mean.copy_(self.running_mean)
            self.next_variance.copy_(self.running_variance)


def tell_real(model: nn.Module, mask_BN: Tensor | None) -> None:
    """Tell the norms that ignore padding which tokens of the next pass are real; None means all."""
    for norm in batch_norms(model):
        norm.real = mask_BN if norm.masked else None


def refuse_batch_norms(model: Model, architecture: str) -> None:
    """Raise Mistake for norms by batch in an architecture that reads what it predicts."""
    if model.norms_by_batch:
        raise Mistake(
            f"model.norm_kind={model.norm_kind}: {architecture} is given the tokens that it predicts, and the "
            "statistics of a batch would leak them; use layer or rms"
        )


def commit(norms: Iterable[BatchNorm]) -> None:
    """Adopt the statistics that a step's passes proposed, when the step is taken."""
    for norm in norms:
        norm.commit()


def discard(norms: Iterable[BatchNorm]) -> None:
    """Drop proposals that were not committed, when a step begins or is repeated."""
    for norm in norms:
        norm.discard()


def batch_norms(model: nn.Module) -> Iterator[BatchNorm]:
    """The batch norms of a model."""
    return (module for module in model.modules() if isinstance(module, BatchNorm))
