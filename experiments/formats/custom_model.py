"""A model of any variant as a folder with its code, which transformers loads: `--format transformers-custom`."""

from __future__ import annotations

import shutil
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.failures.failure import Mistake
from experiments.files.project import ROOT
from experiments.record.code.digests import code_digests, module_name
from experiments.record.code.imported_file import imported_file
from experiments.settings.plugins import modules
from experiments.settings.run import Settings

if TYPE_CHECKING:
    from torch import Tensor

    from experiments.formats.format import Format

CUSTOM = "transformers-custom"  # the --format of a `CustomModel`
MODEL_TYPE = "attn"  # in its config.json
PACKAGES = ("model", "settings", "files", "failures")  # of experiments, whose code the folder carries
OF_MODEL = ("attention/", "experiments/model/")  # folders with what the user adds to a model
# the class of transformers that loads a model of an architecture
AUTO = {"causal_decoder": "AutoModelForCausalLM", "encoder_decoder": "AutoModelForSeq2SeqLM"}
# the format whose special tokens stand around a text as in the training of an architecture
READS_LIKE = {"causal_decoder": "gpt2", "encoder_decoder": "t5"}


class CustomModel(NamedTuple):
    """A model of any variant, stored with its code for `from_pretrained(..., trust_remote_code=True)`.

    It is an `exported_model.ExportedModel`.
    """

    settings: Settings
    format: Format  # whose special tokens are those of the model
    config: dict[str, Any]  # config.json

    def weights(self, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of our state dict under the names of the class that transformers loads."""
        return {f"model.{name}": value.contiguous() for name, value in ours.items()}

    def write_code(self, folder: Path) -> None:
        """Write the code of the model. Raises Mistake for code that could not be loaded from its copy."""
        copy_code(folder, self.settings)

    def description(self, run: str) -> str:
        """A line about the folder."""
        return f"{self.settings.variant['name']} of {run}, for from_pretrained(..., trust_remote_code=True)"


def custom_model(settings: Settings, vocabulary_size: int, special: Mapping[str, int]) -> CustomModel:
    """The model with its code. special: the ids of special tokens by transformers' names."""
    from experiments.formats.format import format_of

    alike = format_of(READS_LIKE.get(settings.objective.architecture, "bert"))
    return CustomModel(settings, alike, alike.with_tokens(_config(settings, vocabulary_size), special))


def _config(settings: Settings, vocabulary_size: int) -> dict[str, object]:
    architecture = settings.objective.architecture
    auto = AUTO.get(architecture, "AutoModelForMaskedLM")
    return {
        "model_type": MODEL_TYPE,
        "architectures": ["AttnModel"],
        "auto_map": {
            "AutoConfig": "configuration_attn.AttnConfig",
            **dict.fromkeys(("AutoModel", auto), "modeling_attn.AttnModel"),
        },
        "architecture": architecture,
        "model": settings.model.model_dump(),
        "variant": {**settings.variant, "backend": "auto"},
        "vocab_size": vocabulary_size,
        "dtype": "float32",
    }


def copy_code(folder: Path, settings: Settings) -> None:
    """Copy the two files that transformers reads, and `source/` with the code that they import.

    Raises Mistake for code that could not be loaded from its copy.
    """
    experiments = ROOT / "experiments"
    for file in (experiments / "formats" / "custom").glob("*_attn.py"):
        shutil.copy(file, folder)
    _copy_files(ROOT / "attention", folder / "source" / "attention")
    for package in PACKAGES:
        _copy_files(experiments / package, folder / "source" / "experiments" / package)
    added = modules()
    for name in code_digests(settings.model_dump(), None):
        users = added.get(name) if name.startswith(OF_MODEL) else imported_file(module_name(name))
        if users is not None:
            _check_loadable(name, users)
            copy = folder / "source" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(users, copy)
    shutil.copy(experiments / "__init__.py", folder / "source" / "experiments")


def _copy_files(package: Path, copy: Path) -> None:
    """Copy the files of a package, up to the first error. `shutil.copytree` would go on, and raise a list of them."""
    for file in package.rglob("*"):
        place = file.relative_to(package)
        if file.is_file() and "__pycache__" not in place.parts:
            (copy / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, copy / place)


def _check_loadable(name: str, file: Path) -> None:
    """Raises Mistake for a module of the user's that a process without attn would not import from its copy."""
    module = module_name(name)
    if zipfile.is_zipfile(file):
        raise Mistake(f"{file}: {module}, which the model needs, is in an archive", "unpack the archive")
    if module.partition(".")[0] in sys.stdlib_module_names:
        # a process may have imported Python's own before
        raise Mistake(f"{file}: {module}, which the model needs, has the name of a module of Python", "rename it")
