"""Prediction of the next token from the tokens before it (Radford et al. 2019, GPT-2)."""

# B batch, N length, P positions to predict

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from experiments.objectives.objective import Batch, ObjectiveKind, Vocabulary


class Causal(ObjectiveKind):
    """Prediction of the next token; this objective has no settings."""

    architecture: ClassVar[str] = "causal_decoder"
    kind: Literal["causal"]

    def build(self, vocabulary: Vocabulary) -> CausalObjective:
        """The objective for a vocabulary."""
        return CausalObjective(vocabulary)


class CausalObjective:
    """Every position predicts the token after it, unless that token is special or the first of a document.

    The text after [CLS] or [SEP] can't be predicted, because the documents are shuffled. Special tokens are not
    predicted, because the loss is an average over the tokens of the text.
    """

    lengths_vary = False
    evaluation_seed = 0  # nothing is drawn
    predicted_share = 1.0

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    def batch(self, tokens_BN: npt.NDArray[np.integer], seed: int, step: int) -> Batch:
        """The batch, which is the same for every seed and step."""
        tokens_BN = tokens_BN.astype(np.int64)
        begins = np.isin(tokens_BN[:, :-1], (self.vocabulary.cls_id, self.vocabulary.sep_id))
        predicts = np.zeros(tokens_BN.shape, dtype=bool)
        predicts[:, :-1] = ~begins & ~np.isin(tokens_BN[:, 1:], list(self.vocabulary.special))
        positions = np.flatnonzero(predicts)
        return Batch.of_arrays(
            {"tokens": tokens_BN}, positions, tokens_BN.reshape(-1)[positions + 1], tokens_BN.shape[1]
        )
