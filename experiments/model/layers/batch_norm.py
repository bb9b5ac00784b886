"""BatchNorm over the tokens of a batch (Ioffe and Szegedy 2015, 1502.03167), with padding counted or left out."""

# B batch, N length, D features

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

MOMENTUM = 0.1  # weight of a batch in the running statistics, as in torch.nn.BatchNorm1d


class BatchNorm(nn.Module):
    """Each feature by its mean and variance over the tokens of a micro-batch; in evaluation by the running ones.

    The running statistics are buffers, so that checkpoints hold them. A training pass only proposes their next values,
    which `commit` makes good once the step is taken: a pass that is repeated or given up leaves no trace.
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
        """Begin with the identity, and the statistics of a standard normal."""
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)
        nn.init.zeros_(self.running_mean)
        nn.init.ones_(self.running_variance)
        self.discard()

    def forward(self, x: Tensor) -> Tensor:
        """x [..., D]; where `real` is given, x is [B, N, D]."""
        x = x.to(self.weight.dtype)
        mean, variance = self.statistics(x) if self.training else (self.running_mean, self.running_variance)
        return (x - mean) * (variance + self.eps).rsqrt() * self.weight + self.bias

    def statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance [D] of the tokens that count, proposed for the running ones."""
        tokens = x.flatten(0, -2) if self.real is None else x[self.real]
        variance, mean = torch.var_mean(tokens, 0, correction=0)
        with torch.no_grad():
            count = len(tokens)
            self.next_mean.lerp_(mean, MOMENTUM)
            self.next_variance.lerp_(variance * count / max(count - 1, 1), MOMENTUM)
        return mean, variance

    def commit(self) -> None:
        """Make the proposed statistics the running ones."""
        self.running_mean.copy_(self.next_mean)
        self.running_variance.copy_(self.next_variance)

    def discard(self) -> None:
        """Drop the proposed statistics."""
        with torch.no_grad():
            self.next_mean.copy_(self.running_mean)
            self.next_variance.copy_(self.running_variance)


def tell_real(model: nn.Module, mask_BN: Tensor | None) -> None:
    """Which tokens of the next pass are real, for the norms that count those only; None: all are."""
    for norm in batch_norms(model):
        norm.real = mask_BN if norm.masked else None


def commit(model: nn.Module) -> None:
    """The step is taken: what its passes proposed becomes the running statistics."""
    for norm in batch_norms(model):
        norm.commit()


def discard(model: nn.Module) -> None:
    """A step begins, perhaps again: proposals that were not committed are dropped."""
    for norm in batch_norms(model):
        norm.discard()


def batch_norms(model: nn.Module) -> Iterator[BatchNorm]:
    """Every batch norm of a model."""
    return (module for module in model.modules() if isinstance(module, BatchNorm))
