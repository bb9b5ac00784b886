"""The head of every architecture that predicts tokens."""

# D hidden size, E embedding size, V vocabulary

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.model.layers.feed_forward import ACTIVATIONS
from experiments.model.layers.norm import build_norm
from experiments.settings.model import Model


class OutputHead(nn.Module):
    """Logits by the output embedding, which is the input embedding if tied.

    The settings can add BERT's transform, a bias, and a scale.

    If the embedding size E differs from D, the transform maps D to E, or a linear map does if there is no transform.

    If `model.output_scaled`, the input of the output embedding is divided by sqrt(E), so that a tied embedding of unit
    variance, such as T5's, gives logits of unit variance.
    """

    def __init__(self, model: Model, vocabulary_size: int) -> None:
        super().__init__()
        self.transform: nn.Module = nn.Identity()
        if model.head_transform:
            self.transform = Transform(model)
        elif model.embedding_size != model.hidden_size:
            self.transform = nn.Linear(model.hidden_size, model.embedding_size)
        self.scale = model.embedding_size**-0.5 if model.output_scaled else None
        self.output = None if model.tied else nn.Linear(model.embedding_size, vocabulary_size, bias=False)
        self.bias = nn.Parameter(torch.zeros(vocabulary_size)) if model.head_bias else None

    def reset_parameters(self) -> None:
        """Start with a bias of 0, which prefers no token."""
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, hidden: Tensor, embedding_VE: Tensor) -> Tensor:
        """hidden [..., D] -> logits [..., V]."""
        x = self.transform(hidden)
        weight_VE = embedding_VE if self.output is None else self.output.weight
        return F.linear(x if self.scale is None else x * self.scale, weight_VE, self.bias)


class Transform(nn.Module):
    """norm(activation(dense(x))), from D to E, between BERT's encoder and its output embedding."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.dense = nn.Linear(model.hidden_size, model.embedding_size)
        self.activation = ACTIVATIONS[model.activation]
        self.norm = build_norm(model, model.embedding_size)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., D] -> [..., E]"""
        return self.norm(self.activation(self.dense(x)))
