"""A check that an imported model equals its source: it has the same logits and the same tokens as with transformers."""

# B sequences, N tokens

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from experiments.data.tokenizer import Tokenizer
from experiments.failures.failure import Mistake
from experiments.failures.missing_extra import check_installed
from experiments.failures.wording import first_line
from experiments.settings.run import Settings

if TYPE_CHECKING:
    from torch import Tensor, nn

    from experiments.formats.format import Format

TOLERANCE = 1e-3  # of the standard deviation of the logits: float32 in another order of sums stays far below it
MAX_TOKENS = 256  # of a sequence: more than the windows and the relative distances of published models
TEXTS = (
    "The cat sees two dogs, and doesn't run.",
    "In 1969 e = 2.71828; U.S.A.   (spaces)\nand a new line",
    "\u4eca\u5929\u5929\u6c14\u5f88\u597d\uff0c\u6211\u4eec\u53bb\u516c\u56ed\u3002",
    "na\u00efve caf\u00e9, \u00dcber \U0001f600",
)


def compare_with_transformers(
    source: Path, format: Format, settings: Settings, model: nn.Module, tokenizer: Tokenizer
) -> str:
    """The differences between our model and tokenizer and those that transformers reads from the folder, in words.

    Transformers may rebuild the tokenizer by its class, while ours is the file's; texts that they split differently are
    named. Raises Mistake if logits differ by more than rounding, and if transformers is missing or cannot read the
    folder.
    """
    check_installed("peers", "--check", "transformers")
    import torch
    import transformers

    kind = format.config(settings, tokenizer.vocabulary_size)["architectures"][0]
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        theirs = format.in_transformers(source, kind).eval()
        their_tokenizer = transformers.AutoTokenizer.from_pretrained(source, local_files_only=True)
    except Exception as error:
        # what transformers raises for a folder that it can't read is of many kinds
        raise Mistake(f"--check: transformers can't read {source}: {first_line(error)}") from error

    def encode(text: str) -> list[int]:
        ids: list[int] = their_tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    with torch.inference_mode():
        ours_PV, theirs_PV = _logits(model.eval(), theirs, settings, tokenizer)
    furthest, spread = float((ours_PV - theirs_PV).abs().max()), float(theirs_PV.std())
    finding = (
        f"the logits of {len(ours_PV)} tokens differ by at most {furthest:.1e} from those of {kind} of "
        f"transformers {transformers.__version__}, whose standard deviation is {spread:.2g}"
    )
    if not furthest <= TOLERANCE * spread:
        raise Mistake(f"--check: {finding}")
    same = [text for text, ids in zip(TEXTS, tokenizer.encode(TEXTS), strict=True) if ids.tolist() == encode(text)]
    others = "".join(
        f"\n  other tokens by {type(their_tokenizer).__name__}: {text!r}" for text in TEXTS if text not in same
    )
    return f"checked: {finding}; {len(same)} of {len(TEXTS)} texts have the same tokens{others}"


def _logits(ours: nn.Module, theirs: nn.Module, settings: Settings, tokenizer: Tokenizer) -> tuple[Tensor, Tensor]:
    """Logits [P, V] of both for the same two sequences; the second is half padding, which is left out."""
    import torch

    N = min(settings.length, MAX_TOKENS)
    draw = torch.Generator().manual_seed(0)
    ordinary = torch.tensor(sorted(set(range(tokenizer.vocabulary_size)) - tokenizer.special))
    tokens_BN = ordinary[torch.randint(len(ordinary), (2, N), generator=draw)]
    mask_BN = torch.arange(N) < torch.tensor([N, N // 2])[:, None]
    tokens_BN = tokens_BN.masked_fill(~mask_BN, tokenizer.pad_id)
    inputs, their_inputs = {"mask": mask_BN}, {"attention_mask": mask_BN.long()}
    counted_BN = mask_BN
    if settings.objective.architecture == "encoder_decoder":
        inputs["decoder_tokens"] = their_inputs["decoder_input_ids"] = tokens_BN[:1].flip(1).expand(2, N)
        counted_BN = torch.ones_like(mask_BN)
    elif settings.model.token_types >= 2:
        inputs["token_types"] = their_inputs["token_type_ids"] = torch.randint(2, (2, N), generator=draw)
    output = theirs(input_ids=tokens_BN, **their_inputs)
    logits = output.prediction_logits if "prediction_logits" in output else output.logits
    return ours(tokens_BN, **inputs)[counted_BN], logits[counted_BN]
