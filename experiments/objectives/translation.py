"""Translation with teacher forcing (Vaswani et al. 2017, 1706.03762): each target token from those before it."""

# B batch, N tokens a side, S longest source, T longest target

from __future__ import annotations

import importlib.util
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from experiments.objectives.objective import Batch, Decoding, Vocabulary
from experiments.settings import objective as settings

# sides are as long as their longest sentence, up to the next multiple: fewer shapes, for which oneDNN makes plans
MULTIPLE = 8


class Objective:
    """Every target token is predicted, [SEP] included, from the source and the target before it; first stands [CLS]."""

    assembly: ClassVar[str] = "encoder_decoder"
    lengths_vary: ClassVar[bool] = True

    def __init__(self, chosen: settings.Translation, vocabulary: Vocabulary) -> None:
        self.chosen, self.vocabulary = chosen, vocabulary
        if chosen.bleu_pairs != 0:
            self.check_scorer(f"objective.bleu_pairs={chosen.bleu_pairs or 'null'} (0: no BLEU)")

    def batch(self, tokens_BN: npt.NDArray[np.integer], seed: int, step: int) -> Batch:
        """Of rows that hold a source and a target, each filled up with [PAD]; nothing is drawn."""
        source_BN, target_BN = np.split(tokens_BN.astype(np.int64), 2, axis=1)
        source_BS, target_BT = self._trimmed(source_BN), self._trimmed(target_BN)
        decoder_BT = np.roll(target_BT, 1, axis=1)
        decoder_BT[:, 0] = self.vocabulary.cls_id
        real_BS = source_BS != self.vocabulary.pad_id
        rows = np.flatnonzero(target_BT != self.vocabulary.pad_id)
        inputs = {"tokens": source_BS, "decoder_tokens": decoder_BT, "mask": real_BS}
        return Batch(
            {name: torch.from_numpy(array) for name, array in inputs.items()},
            torch.from_numpy(rows),
            torch.from_numpy(target_BT.reshape(-1)[rows]),
            target_BT.shape[1],
            int(real_BS.sum()) + len(rows),
        )

    def _trimmed(self, side_BN: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        longest = int((side_BN != self.vocabulary.pad_id).sum(1).max())
        return side_BN[:, : min(-(-longest // MULTIPLE) * MULTIPLE, side_BN.shape[1])]

    @property
    def evaluation_seed(self) -> int:
        """Nothing is drawn."""
        return 0

    @property
    def predicted_share(self) -> float:
        """Of both sides together, which are taken to be alike in length."""
        return 0.5

    def decoding(self) -> Decoding:
        """The beam search of the settings, on so many pairs."""
        return Decoding(self.chosen.beam, self.chosen.length_penalty, self.chosen.bleu_pairs)

    def score_texts(self, texts: list[str], references: list[str]) -> dict[str, Any]:
        """BLEU of the corpus, 0 to 100, by sacrebleu (Post 2018, 1804.08771), whose signature says how."""
        from sacrebleu.metrics import BLEU

        metric = BLEU()
        bleu = metric.corpus_score(texts, [references]).score
        return {"bleu": bleu, "bleu_signature": str(metric.get_signature()), "bleu_pairs": len(references)}

    @staticmethod
    def check_scorer(asked: str) -> None:
        """Raises ValueError where sacrebleu is missing, before anything is trained for it."""
        if importlib.util.find_spec("sacrebleu") is None:
            raise ValueError(f"{asked}: needs sacrebleu: pip install -c constraints.txt -e '.[translation]'")
