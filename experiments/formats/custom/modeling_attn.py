"""A model of attn, for `AutoModel.from_pretrained(FOLDER, trust_remote_code=True)`: the code that trained it, wrapped.

`source/` beside this file has that code: `attention`, and `experiments.model` with the settings that it reads. It needs
torch, transformers and pydantic.
"""

# B batch, N tokens, V vocabulary

from __future__ import annotations

import re
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel
from transformers.modeling_outputs import MaskedLMOutput

from .configuration_attn import AttnConfig


class AttnModel(PreTrainedModel):
    """The model with its pretraining head. `labels`: int64 [B, N], -100 where nothing is predicted.

    The labels of a causal model are the tokens themselves, as elsewhere in transformers: position n predicts label
    n + 1. In every other model, position n predicts label n, in an encoder-decoder position n of the decoder.
    """

    config_class = AttnConfig
    config: AttnConfig
    base_model_prefix = "model"

    def __init__(self, config: AttnConfig) -> None:
        super().__init__(config)
        self.model = _build(config)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **others: Any,
    ) -> MaskedLMOutput:
        """Logits [B, N, V], and with labels their mean cross-entropy."""
        optional = {"token_types": token_type_ids, "decoder_tokens": decoder_input_ids}
        inputs = {name: tensor for name, tensor in optional.items() if tensor is not None}
        mask = None if attention_mask is None else attention_mask.bool()
        logits = self.model(input_ids, mask=mask, **inputs)
        loss = None
        if labels is not None:
            predicted, targets = (logits[:, :-1], labels[:, 1:]) if self.model.causal else (logits, labels)
            loss = F.cross_entropy(predicted.flatten(0, 1), targets.flatten())
        return MaskedLMOutput(loss=loss, logits=logits)

    def _init_weights(self, module: torch.nn.Module) -> None:
        """Fill what is computed and not stored, as a table of sinusoids: transformers leaves it empty."""
        names = module._non_persistent_buffers_set
        if names:
            path = next(path for path, each in self.model.named_modules() if each is module)
            computed = _build(self.config).get_submodule(path)
            for name in names:
                getattr(module, name).copy_(getattr(computed, name))


def _build(config: AttnConfig) -> torch.nn.Module:
    """The model of the folder's own code, or of attn's if the process has imported it already."""
    source = _folder(config) / "source"
    if "experiments" not in sys.modules:
        sys.path.insert(0, str(source))
    # not as statements, which transformers takes for packages to be installed
    build, settings = (import_module(f"experiments.{name}") for name in ("model.build", "settings.model"))
    _warn_of_other_code(source, Path(str(build.__file__)).parents[2])
    model: torch.nn.Module = build.construct(
        config.architecture, settings.Model(**config.model), config.variant, config.vocab_size
    )
    return model


def _warn_of_other_code(own: Path, used: Path) -> None:
    """Warn if the code that computes the model is not the code that trained it."""
    for file in sorted(own.rglob("*.py")) if own != used else ():
        other = used / file.relative_to(own)
        if not other.is_file() or other.read_bytes() != file.read_bytes():
            warnings.warn(
                f"{own.parent}: {file.relative_to(own)} differs in {used}, the code that this process has imported; "
                "the model may compute other numbers than in a process of its own",
                stacklevel=2,
            )
            return


def _folder(config: AttnConfig) -> Path:
    name = str(config.name_or_path)
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download

    # transformers keeps this file in a folder that is named after the commit
    commit = re.fullmatch("[0-9a-f]{40}", Path(__file__).parent.name)
    return Path(snapshot_download(name, allow_patterns="source/**", revision=commit and commit[0]))
