"""A model as `attn export` writes it: in a format whose code transformers has, or with its own code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from experiments.failures.failure import Mistake
from experiments.failures.wording import did_you_mean
from experiments.formats.custom_model import CUSTOM
from experiments.formats.format import Format, formats
from experiments.settings.run import Settings


class ExportedModel(Protocol):
    """A model as a folder stores it that transformers loads."""

    @property
    def format(self) -> Format:
        """The format whose special tokens are those of the model."""

    @property
    def config(self) -> dict[str, Any]:
        """The content of config.json."""

    def weights(self, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of our state dict under the names that transformers expects."""

    def write_code(self, folder: Path) -> None:
        """Write the code of the model that transformers lacks. Raises Mistake for code that cannot be copied."""

    def description(self, run: str) -> str:
        """A line or two about the folder."""


class FormatModel(NamedTuple):
    """A model as a format stores it, whose code transformers has."""

    settings: Settings
    format: Format
    config: dict[str, Any]  # config.json

    def weights(self, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors under the names of the format, each stored once."""
        return _without_shared(self.format.to_theirs(ours, self.settings, self.config))

    def write_code(self, folder: Path) -> None:
        """Write nothing, because transformers has it."""

    def description(self, run: str) -> str:
        """The class and the run, and a second line if the format has a note."""
        note = self.format.note(self.settings)
        return f"{self.config['architectures'][0]} of {run}" + (f"\n{note}" if note else "")


def fitting(
    settings: Settings,
    vocabulary_size: int,
    special: Mapping[str, int],
    model_type: str | None,
    imported: Mapping[str, Any],
) -> FormatModel:
    """The model in the format that can hold it. Raises Mistake if none can, and says what a named one cannot.

    For an imported model, the format of its source comes first, with the other keys of the source's config.json.
    """
    known, source = formats(), imported.get("model_type")
    if model_type is not None and model_type not in known:
        allowed = [*known, CUSTOM]
        meant = did_you_mean(model_type, allowed)
        raise Mistake(f"--format {model_type}: must be one of {', '.join(allowed)}{meant}")
    candidates = [*known.values()] if model_type is None else [known[model_type]]
    refusal = ""
    for format in sorted(candidates, key=lambda format: format.model_type != source):
        try:
            config = format.config(settings, vocabulary_size)
        except Mistake as error:
            refusal = f"--format {format.model_type} cannot express this run: {error}"
            continue
        config = format.with_tokens(config, special) | {"dtype": "float32"}
        rest = imported.get("config", {}) if format.model_type == source else {}
        others = {key: value for key, value in rest.items() if key != "torch_dtype"}
        return FormatModel(settings, format, others | config)
    of_none = (
        "no format of transformers can express this run; with --format NAME, this message says why that one cannot"
    )
    raise Mistake(refusal if model_type else of_none, f"--format {CUSTOM} exports the model of any run")


def _without_shared(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Keep the first of several names of one tensor.

    Safetensors stores each tensor once, and transformers ties them again.
    """
    firsts: dict[int, str] = {}
    contiguous = {name: value.contiguous() for name, value in state.items()}
    return {name: value for name, value in contiguous.items() if firsts.setdefault(value.data_ptr(), name) == name}
