"""The base of a format: a kind of checkpoint of Hugging Face's transformers, and its translation to our model.

Each format is a file of this folder with a subclass of `Format`. It consists of tables, and of what no table can say.
"""

from __future__ import annotations

import inspect
import json
import pkgutil
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from experiments.failures.failure import Mistake
from experiments.failures.wording import as_yaml, did_you_mean
from experiments.formats.keys import read, require
from experiments.formats.names import Names
from experiments.record.dotted import value_at
from experiments.settings.position import POSITION_TABLE
from experiments.settings.run import Settings
from experiments.settings.variant import module_of

GROUPS = {"variant.name": "variant", "objective.kind": "objective"}  # what is chosen by the name of its group


class Format:
    """One kind of checkpoint. Every method raises Mistake that names what the format cannot express."""

    model_type: ClassVar[str]  # of config.json
    proper_name: ClassVar[str]  # in messages
    architecture: ClassVar[str]  # the class of transformers
    # the settings that every such model has
    fixed_settings: ClassVar[Mapping[str, Any]] = {
        "variant.name": "multi_head",
        "objective.kind": "masked",
        "model.sharing": "none",
        "model.local_window": None,
    }
    # the files of attention/ whose parameters such a model can hold
    mechanisms: ClassVar[tuple[str, ...]] = ("multi_head",)
    # the keys of config.json that must have this value if they are there
    fixed_keys: ClassVar[Mapping[str, Any]] = {}
    # settings -> the key of config.json with the same value, and its default, see `keys.read`
    same_values: ClassVar[Mapping[str, tuple[str, Any]]]
    # their modules -> ours, see `Names`
    modules: ClassVar[Mapping[str, str | tuple[str, ...]]]
    # a pattern of the names of weights that our model has no place for and does without: they are left out on import
    unused: ClassVar[str] = "(?!)"
    # what stands around a text, and around a pair of texts, that such a model reads
    frame: ClassVar[tuple[str, str]] = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")

    def overrides(self, config: Mapping[str, Any]) -> list[str]:
        """The overrides, as on the command line, that make our model the one of a config.json."""
        return [f"{GROUPS.get(key, key)}={_text(value)}" for key, value in self.settings(config).items()]

    def settings(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The settings, by their dotted keys, that make our model the one of a config.json."""
        require(config, self.fixed_keys)
        same = {ours: read(config, *key) for ours, key in self.same_values.items()}
        return {**self.fixed_settings, **same, **self.settings_of(config, same)}

    def settings_of(self, config: Mapping[str, Any], same: Mapping[str, Any]) -> dict[str, Any]:
        """The settings that no table has, or not as they are. same: those of `same_values`."""
        return {}

    def config(self, settings: Settings, vocabulary_size: int) -> dict[str, Any]:
        """The config.json of our model."""
        self.check(settings)
        tree = settings.model_dump()
        return {
            "model_type": self.model_type,
            "architectures": [self.architecture],
            "vocab_size": vocabulary_size,
            **self.fixed_keys,
            **{theirs: value_at(tree, ours) for ours, (theirs, _) in self.same_values.items()},
            **self.keys_of(settings),
        }

    def keys_of(self, settings: Settings) -> dict[str, Any]:
        """The keys of config.json that no table has, or not as they are."""
        return {}

    def check(self, settings: Settings) -> None:
        """Raises Mistake that names the settings which such a model can't have."""
        tree, wrong = settings.model_dump(), []
        for key, needed in (self.needs(settings) | _of_model(settings)).items():
            choices = needed if isinstance(needed, tuple) else (needed,)
            if (value := value_at(tree, key)) not in choices:
                has = " or ".join(map(_text, choices))
                wrong.append(f"{key}={_text(value)}: {self.proper_name} has {has}")
        for key, (_, default) in self.same_values.items():
            if default is not None and value_at(tree, key) is None:
                wrong.append(f"{key}=null: {self.proper_name} has a number")
        if wrong:
            raise Mistake("; ".join(wrong))

    def needs(self, settings: Settings) -> dict[str, Any]:
        """The settings that such a model has, which may depend on others; of a tuple, one."""
        size, rest = divmod(settings.hidden_size, settings.heads)
        exact = settings.hidden_size / settings.heads if rest else size
        return {**self.fixed_settings, **self.variant_of(settings), "key_size": exact, "value_size": exact}

    def variant_of(self, settings: Settings) -> dict[str, Any]:
        """The variant of a run if it is of one of the mechanisms, whatever its name, else their names."""
        variant = settings.variant
        return {"variant.name": variant["name"] if module_of(variant) in self.mechanisms else self.mechanisms}

    def from_hugging_face(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Their state dict under our names, all rows of the position table included.

        It is without an output embedding if that is the input's.
        """
        ours = self._names.to_ours(state)
        if "head.output.bias" in ours:
            # the bias may be stored twice, and the decoder's is the one that is added
            ours["head.bias"] = ours.pop("head.output.bias")
        if self.fixed_settings.get("model.head_bias") and "head.bias" not in ours:
            head = next(theirs for theirs, module in self.modules.items() if module == "head.transform.dense")
            raise Mistake(f"there is no masked-token head ({head}) in this checkpoint")
        output, embedding = (ours.get(f"{module}.weight") for module in ("head.output", "embedding.token"))
        if output is not None and embedding is not None and torch.equal(output, embedding):
            del ours["head.output.weight"]
        elif output is not None and self.fixed_settings.get("model.tied"):
            raise Mistake(f"the output embedding differs from the input embedding; {self.proper_name} ties the two")
        return {name: tensor.contiguous() for name, tensor in ours.items()}

    def to_hugging_face(self, state: Mapping[str, Tensor], settings: Settings) -> dict[str, Tensor]:
        """A state dict as `from_hugging_face` returns it, under their names: the output embedding and its bias too."""
        self.check(settings)
        ours = dict(state)
        ours.setdefault("head.output.weight", ours["embedding.token.weight"])
        if (bias := ours.get("head.bias")) is not None:
            ours["head.output.bias"] = bias.clone()
            if "head" not in self.modules.values():
                del ours["head.bias"]
        return self._names.to_theirs(ours)

    @property
    def _names(self) -> Names:
        return Names(self.modules, self.architecture)

    def to_ours(self, state: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
        """The state dict of our model, whose position table begins with the row of the first token."""
        ours = self.from_hugging_face(state)
        if POSITION_TABLE in ours:
            ours[POSITION_TABLE] = ours[POSITION_TABLE][self.first_position(config) :]
        return ours

    def to_theirs(
        self, state: Mapping[str, Tensor], settings: Settings, config: Mapping[str, Any]
    ) -> dict[str, Tensor]:
        """The state dict of their model. Rows of its position table before that of the first token are zeros."""
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
        import transformers

        kind = getattr(transformers, architecture)
        model: nn.Module = kind.from_pretrained(folder, local_files_only=True, dtype=torch.float32)
        return model

    def note(self, settings: Settings) -> str | None:
        """A note for the user of an export."""
        return None


def _of_model(settings: Settings) -> dict[str, Any]:
    """What the attention of every format has as the rest of the model does, if the variant has the setting at all."""
    model = settings.model
    needed = {"linear_bias": model.linear_bias, "dropout": model.attention_dropout}
    return {f"variant.{key}": value for key, value in needed.items() if key in settings.variant}


def formats() -> dict[str, Format]:
    """The formats of this folder, by model_type."""
    package = __name__.rpartition(".")[0]
    known: dict[str, Format] = {}
    for name in sorted(module.name for module in pkgutil.iter_modules(import_module(package).__path__)):
        module = import_module(f"{package}.{name}")
        for value in vars(module).values():
            # a format that a module imports is another module's
            is_its_own = isinstance(value, type) and value.__module__ == module.__name__
            if is_its_own and issubclass(value, Format) and value is not Format:
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
        raise Mistake(f"model_type = {as_yaml(model_type)} of config.json: must be one of {', '.join(known)}{hint}")
    return known[model_type]


def _text(value: Any) -> str:
    """The value as YAML and the command line write it."""
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)
