"""The interface of a format: a kind of checkpoint of Hugging Face's transformers, and its translation to our model.

Each format is a file of this folder with a subclass of `Format`.
"""

from __future__ import annotations

import inspect
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from experiments.failures.failure import Mistake
from experiments.failures.wording import did_you_mean
from experiments.settings.run import Settings

if TYPE_CHECKING:
    from torch import Tensor, nn

POSITION_TABLE = "embedding.position.weight"  # the name of ours


class Format(ABC):
    """One kind of checkpoint. Every method raises Mistake that names what the format cannot express."""

    model_type: ClassVar[str]  # of config.json
    # a pattern of the names of weights that our model has no place for and does without: they are left out on import
    unused: ClassVar[str] = "(?!)"
    # what stands around a text, and around a pair of texts, that such a model reads
    frame: ClassVar[tuple[str, str]] = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")

    @abstractmethod
    def overrides(self, config: Mapping[str, Any]) -> list[str]:
        """The overrides, as on the command line, that make our model the one of a config.json."""

    @abstractmethod
    def config(self, settings: Settings, vocabulary_size: int) -> dict[str, Any]:
        """The config.json of our model."""

    @abstractmethod
    def from_hugging_face(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Their state dict under our names, all rows of the position table included.

        It is without an output embedding if that is the input's.
        """

    @abstractmethod
    def to_hugging_face(self, state: Mapping[str, Tensor], settings: Settings) -> dict[str, Tensor]:
        """A state dict as `from_hugging_face` returns it, under their names."""

    def to_ours(self, state: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
        """The state dict of our model, whose position table begins with the row of the first token."""
        ours = self.from_hugging_face(state)
        if first := self.first_position(config):
            ours[POSITION_TABLE] = ours[POSITION_TABLE][first:]
        return ours

    def to_theirs(
        self, state: Mapping[str, Tensor], settings: Settings, config: Mapping[str, Any]
    ) -> dict[str, Tensor]:
        """The state dict of their model. Rows of its position table before that of the first token are zeros."""
        import torch

        ours = dict(state)
        if first := self.first_position(config):
            table = ours[POSITION_TABLE]
            ours[POSITION_TABLE] = torch.cat([table.new_zeros(first, table.size(1)), table])
        return self.to_hugging_face(ours, settings)

    def completed(self, config: Mapping[str, Any], state: Mapping[str, Tensor]) -> Mapping[str, Any]:
        """The config.json, completed by facts that only the weights have."""
        return config

    def first_position(self, config: Mapping[str, Any]) -> int:
        """The row of their position table for the first token of a text; ours has none of those before it."""
        return 0

    def with_tokens(self, config: Mapping[str, Any], tokens: Mapping[str, int]) -> dict[str, Any]:
        """The config.json with the ids of special tokens, `pad_token_id`, `bos_token_id` and `eos_token_id`."""
        return {**config, **tokens}

    def in_transformers(self, folder: Path, architecture: str) -> nn.Module:
        """Transformers' own model of a folder, in float32, with which `--check` compares ours."""
        import torch
        import transformers

        kind = getattr(transformers, architecture)
        model: nn.Module = kind.from_pretrained(folder, local_files_only=True, dtype=torch.float32)
        return model

    def note(self, settings: Settings) -> str | None:
        """A note for the user of an export."""
        return None


def formats() -> dict[str, Format]:
    """The formats of this folder, by model_type."""
    package = __name__.rpartition(".")[0]
    known: dict[str, Format] = {}
    for name in sorted(module.name for module in pkgutil.iter_modules(import_module(package).__path__)):
        for value in vars(import_module(f"{package}.{name}")).values():
            if isinstance(value, type) and issubclass(value, Format) and value is not Format:
                other = type(known.get(value.model_type, value()))
                if other is not value:
                    files = " and ".join(inspect.getfile(each) for each in (other, value))
                    raise Mistake(f"{files}: both have model_type = {value.model_type!r}")
                known[value.model_type] = value()
    return known


def format_of(model_type: object) -> Format:
    """The format of a config.json. Raises Mistake for a model_type without a format."""
    known = formats()
    if not isinstance(model_type, str) or model_type not in known:
        hint = did_you_mean(str(model_type), known)
        raise Mistake(f"model_type = {model_type!r}: must be one of {', '.join(known)}{hint}")
    return known[model_type]
