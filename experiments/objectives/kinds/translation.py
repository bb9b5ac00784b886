"""Translation with teacher forcing (Vaswani et al. 2017, 1706.03762): each target token is predicted from those before.

The model also reads the whole source sentence.
"""

# B batch, N tokens on each side, S longest source, T longest target

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from experiments.failures.failure import Mistake
from experiments.failures.missing_extra import check_installed
from experiments.objectives.objective import Batch, Decoding, ObjectiveKind, TextScores, Vocabulary
from experiments.settings.group import Count, NonNegative, Size

# each side is as long as its longest sentence, rounded up to a multiple of this, because oneDNN plans for each shape
LENGTH_MULTIPLE = 8


class Translation(ObjectiveKind):
    """Prediction of the target sentence from the source sentence and the preceding target tokens."""

    architecture: ClassVar[str] = "encoder_decoder"
    reads_pairs: ClassVar[bool] = True
    generation_keys: ClassVar[tuple[str, ...]] = ("beam", "length_penalty", "bleu_pairs")
    pads: ClassVar[bool] = True
    kind: Literal["translation"]
    beam: Size  # hypotheses of the beam search; 1 with length_penalty 0 is greedy search
    length_penalty: NonNegative  # alpha; log likelihoods are divided by ((5 + tokens) / 6)^alpha
    bleu_pairs: Count | None  # pairs of the validation split to translate when the run ends; null: all

    def build(self, vocabulary: Vocabulary) -> TranslationObjective:
        """Build the objective. Raises Mistake if padding can't be told from ends, or if the run could not be scored."""
        if vocabulary.pad_id == vocabulary.sep_id:
            raise Mistake(
                f"objective={self.kind}: id {vocabulary.pad_id} of the tokenizer both pads and ends a sentence; give a "
                "tokenizer.path that has a [PAD] or <pad> of its own, or use tokenizer=byte_bpe"
            )
        if self.bleu_pairs != 0:
            self.check_scorer(f"objective.bleu_pairs={self.bleu_pairs or 'null'} (0: no BLEU)")
        return TranslationObjective(self, vocabulary)

    def row_length(self, length: int) -> int:
        """Tokens of a row, which holds a sentence of each language."""
        return 2 * length

    def measured(self) -> list[str]:
        """BLEU, unless nothing is translated."""
        return [] if self.bleu_pairs == 0 else ["text_scores.bleu", "scored_texts"]

    def check_scorer(self, setting: str) -> None:
        """Raise Mistake if sacrebleu is not installed, so that nothing is trained in vain."""
        check_installed("translation", setting, "sacrebleu")

    def without_generation(self) -> Translation:
        """The same settings without a translation of the validation split for BLEU."""
        return self.model_copy(update={"bleu_pairs": 0})


class TranslationObjective:
    """Every target token, including [SEP], is predicted from the source and from the target tokens before it.

    The decoder reads [CLS] before the first target token.
    """

    lengths_vary = True
    evaluation_seed = 0  # nothing is drawn
    predicted_share = 0.5  # as if both sides were equally long

    def __init__(self, settings: Translation, vocabulary: Vocabulary) -> None:
        self.settings, self.vocabulary = settings, vocabulary

    def batch(self, tokens_BN: npt.NDArray[np.integer], seed: int, step: int) -> Batch:
        """The batch, the same for every seed and step. A row holds a source and a target, each padded with [PAD]."""
        source_BN, target_BN = np.split(tokens_BN.astype(np.int64), 2, axis=1)
        source_BS, target_BT = self._trimmed(source_BN), self._trimmed(target_BN)
        decoder_BT = np.roll(target_BT, 1, axis=1)
        decoder_BT[:, 0] = self.vocabulary.cls_id
        real_BS = source_BS != self.vocabulary.pad_id
        positions = np.flatnonzero(target_BT != self.vocabulary.pad_id)
        inputs = {"tokens": source_BS, "decoder_tokens": decoder_BT, "mask": real_BS}
        return Batch.of_arrays(
            inputs, positions, target_BT.reshape(-1)[positions], target_BT.shape[1], int(real_BS.sum()) + len(positions)
        )

    def decoding(self) -> Decoding:
        """The beam search of the settings, and the number of pairs to translate."""
        return Decoding(self.settings.beam, self.settings.length_penalty, self.settings.bleu_pairs)

    def score_texts(self, texts: list[str], references: list[str]) -> TextScores:
        """BLEU of the corpus, 0 to 100, by sacrebleu (Post 2018, 1804.08771), with its signature."""
        from sacrebleu.metrics import BLEU

        metric = BLEU()
        bleu = metric.corpus_score(texts, [references]).score
        return TextScores({"bleu": bleu}, str(metric.get_signature()))

    def _trimmed(self, side_BN: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        longest = int((side_BN != self.vocabulary.pad_id).sum(1).max())
        return side_BN[:, : min(-(-longest // LENGTH_MULTIPLE) * LENGTH_MULTIPLE, side_BN.shape[1])]
