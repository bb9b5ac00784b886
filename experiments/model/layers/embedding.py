"""The input of the encoder: token, position and token-type embeddings, summed."""

# B batch, N length, D hidden size, E embedding size

from __future__ import annotations

from torch import Tensor, nn

from experiments.failures.failure import Mistake
from experiments.model.layers.norm import build_norm
from experiments.model.layers.position import embedded_position
from experiments.settings.model import Model


class Embedding(nn.Module):
    """Sum of the embeddings, then a norm and dropout (Devlin et al. 2019, 1810.04805), whatever the placement of norms.

    With norm=pre, this norm brings the stream to unit scale, where it starts in the analysis of pre-norm (Xiong et al.
    2020, 2002.04745). Without it, embeddings with a small initial_std leave a run at the frequencies of single tokens.
    embedding_norm=false omits the norm, as in Vaswani's Transformer, GPT-2 and T5.

    If E differs from D, all this has width E, and a linear map to D follows (Lan et al. 2020, 1909.11942, 3.1).
    """

    def __init__(self, model: Model, vocabulary_size: int) -> None:
        super().__init__()
        size = model.embedding_size
        self.token = nn.Embedding(vocabulary_size, size)
        self.position = embedded_position(model)
        self.token_type = nn.Embedding(model.token_types, size) if model.token_types else None
        self.norm = build_norm(model, size) if model.embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(model.dropout)
        self.projection = nn.Linear(size, model.hidden_size) if size != model.hidden_size else nn.Identity()

    def forward(self, tokens_BN: Tensor, token_types_BN: Tensor | None = None) -> Tensor:
        """The stream [B, N, D]. Token types of None mean all 0.

        Raises Mistake if the position table is too short, and for token types without a table.
        """
        return self.place(self.token(tokens_BN), token_types_BN)

    def place(self, x_BNE: Tensor, token_types_BN: Tensor | None = None) -> Tensor:
        """The stream [B, N, D] for given embeddings [B, N, E], as `forward` computes it for tokens."""
        x_BNE = self.position(x_BNE)
        if self.token_type is not None:
            x_BNE = x_BNE + (self.token_type.weight[0] if token_types_BN is None else self.token_type(token_types_BN))
        elif token_types_BN is not None:
            raise Mistake("token types were given, but model.token_types=0")
        return self.projection(self.dropout(self.norm(x_BNE)))
