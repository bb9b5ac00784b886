"""A decoder alone, as GPT-2 (Radford et al. 2019): BERT's layers, where a position attends to no later one."""

from __future__ import annotations

from typing import ClassVar

from experiments.model.architectures.bert import Bert


class CausalDecoder(Bert):
    """norm=pre, position=learned, activation=gelu_tanh, embedding_norm=false and head_bias=false make it GPT-2."""

    causal: ClassVar[bool] = True
