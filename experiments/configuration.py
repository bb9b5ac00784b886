"""From composed YAML to checked settings: Hydra composes, pydantic checks, torch stays out.

    words -> hydra -> DictConfig -> resolve() -> Settings

Whatever is wrong ends as a `Mistake` that names the key, the value and what is allowed.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf
from pydantic import ValidationError

from experiments import signature
from experiments.command_line import check_overrides
from experiments.explain import CONF, explained, groups, near_key, options
from experiments.finetune.settings import FineTuning
from experiments.mistake import Mistake, nearest
from experiments.settings import Settings


def _floor_divide(number: Any, by: Any) -> int | None:
    # a size that is no number is reported under its own key, not under the keys that follow from it
    return number // by if isinstance(number, int) and isinstance(by, int) and by > 0 else None


def _times(factor: int, number: Any) -> int | None:
    return factor * number if isinstance(number, int) else None


OmegaConf.register_new_resolver("floor_divide", _floor_divide, replace=True)
OmegaConf.register_new_resolver("times", _times, replace=True)
OmegaConf.register_new_resolver("options", lambda group: ", ".join(options(group)), replace=True)
OmegaConf.register_new_resolver("interpreter", platform.python_version, replace=True)


def compose(overrides: list[str]) -> Settings:
    """The checked settings of one run, from overrides as on the command line. Raises Mistake."""
    check_overrides(overrides)
    return resolve(compose_raw(overrides))


def compose_raw(overrides: list[str], *, with_hydra: bool = False, name: str = "config") -> DictConfig:
    """The composed configuration, before interpolation and checks. Raises Mistake."""
    with explained(overrides, name), hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        return hydra.compose(name, overrides, return_hydra_config=with_hydra)


def resolve(config: DictConfig) -> Settings:
    """Interpolate and check every value. Raises Mistake."""
    sources = OmegaConf.to_container(config, resolve=False)
    assert isinstance(sources, dict)
    sources.pop("hydra", None)
    if "pretrained" in sources and "origin" not in sources:
        from experiments.finetune.pretrained import inherit

        sources = inherit({str(key): value for key, value in sources.items()})
        config = OmegaConf.create(sources)
    # the typed values first: what follows from a wrong one by interpolation would hide it
    typed = {
        str(key): value for key, value in sources.items() if not isinstance(value, dict) and "${" not in str(value)
    }
    found = _errors(typed, {}, _class_of(sources))
    if wrong := [sentence for sentence in found if not sentence.endswith(" is missing")]:
        raise Mistake("\n".join(wrong))
    with explained():
        tree = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(tree, dict)
    return from_tree({str(key): value for key, value in tree.items() if key != "hydra"}, sources)


def from_tree(tree: dict[str, Any], sources: dict[Any, Any] | None = None) -> Settings:
    """The settings of plain values, such as a run folder's `config.yaml`. Raises Mistake."""
    kind = _class_of(tree)
    wrong = list(_errors(tree, sources or {}, kind))
    variant = tree.get("variant")
    if isinstance(variant, dict):
        wrong += _variant_errors(variant, sources or {})
    if wrong:
        raise Mistake("\n".join(wrong))
    return kind.model_validate(tree)


def override(tree: dict[str, Any], words: list[str]) -> Settings:
    """The settings of a run's `config.yaml` with other values. Raises Mistake.

    A group is composed afresh; a key that people vary also reaches the places that refer to it.
    """
    parsed = check_overrides(words, "finetune" if "pretrained" in tree else "config")
    for word, each in zip(words, parsed, strict=True):
        if each.is_sweep_override():
            raise Mistake(f"{word}: one value is needed here", "to give a list write key=[a,b]")
    chosen = {each.key_or_group for each in parsed} & set(groups())
    of_groups = [word for word, each in zip(words, parsed, strict=True) if each.key_or_group.split(".")[0] in chosen]
    fresh = OmegaConf.to_container(compose_raw(of_groups), resolve=True)
    assert isinstance(fresh, dict)
    config = OmegaConf.create(tree | {group: fresh[group] for group in chosen})
    for each in parsed:
        key: str = each.key_or_group
        value: Any = each.value()
        if key.split(".")[0] in chosen:
            continue
        if OmegaConf.select(config, key, default=config) is config:
            raise Mistake(f"there is no setting {key!r}", near_key(key))
        for place in [key, *_places_of(key, tree)]:
            OmegaConf.update(config, place, value)
    return resolve(config)


def _places_of(key: str, tree: dict[str, Any]) -> Iterator[str]:
    """Dotted keys of `tree` whose YAML is nothing but `${key}`."""
    sources = OmegaConf.to_container(compose_raw([f"variant={tree['variant']['name']}"]), resolve=False)
    assert isinstance(sources, dict)
    for group, keys in sources.items():
        if isinstance(keys, dict) and isinstance(tree.get(str(group)), dict):
            referring = (name for name, source in keys.items() if source == f"${{{key}}}" and name in tree[str(group)])
            yield from (f"{group!s}.{name!s}" for name in referring)


def _variant_errors(variant: dict[Any, Any], sources: dict[Any, Any]) -> Iterator[str]:
    try:
        signature.schema(signature.module_of(variant)).model_validate(variant)
    except ValidationError as errors:
        for error in errors.errors():
            path = ("variant", *error["loc"])
            if not _follows(sources, path):
                yield _sentence(error, path, sources)
    except ValueError as error:
        yield f"variant: {error}"


def _class_of(tree: dict[Any, Any]) -> type[Settings]:
    return FineTuning if "pretrained" in tree else Settings


def _errors(tree: dict[str, Any], sources: dict[Any, Any], kind: type[Settings]) -> Iterator[str]:
    try:
        kind.model_validate(tree)
    except ValidationError as errors:
        for error in errors.errors():
            path = _without_tags(tree, error["loc"])
            if not _follows(sources, path):
                yield _sentence(error, path, sources)


def _without_tags(tree: Any, path: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """The path of an error without the tag that pydantic puts in for a union (data.text.train -> data.train)."""
    kept: list[int | str] = []
    for part in path:
        if isinstance(tree, dict) and part == tree.get("kind") and part not in tree:
            continue
        kept.append(part)
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tuple(kept)


def _sentence(error: Any, path: tuple[int | str, ...], sources: dict[Any, Any]) -> str:
    key = ".".join(map(str, path))
    if error["type"] == "missing":
        return f"{key} is missing"
    if error["type"] == "extra_forbidden":
        return f"there is no setting {key!r}"
    if error["type"] == "value_error":  # a rule between several keys
        return f"{key}: {error['ctx']['error']}" if key else str(error["ctx"]["error"])
    origin = f"; it is {source}" if (source := _source(sources, path)) else ""
    return f"{key} = {error['input']!r}: must be {_allowed(error)}{origin}"


def _allowed(error: Any) -> str:
    context = error.get("ctx", {})
    match error["type"]:
        case "literal_error":
            choices = [word.strip("'") for word in re.split(r", | or ", context["expected"])]
            return f"one of {', '.join(choices)}" + nearest(str(error["input"]), choices)
        case "union_tag_invalid":
            return f"of a kind out of {context['expected_tags']}"
        case "greater_than_equal":
            return f"at least {context['ge']}"
        case "greater_than":
            return f"greater than {context['gt']}"
        case "less_than":
            return f"less than {context['lt']}"
        case "less_than_equal":
            return f"at most {context['le']}"
        case "int_type" | "int_from_float":
            return "a whole number"
        case "float_type" | "finite_number":
            return "a finite number"
        case "bool_type":
            return "true or false"
        case "string_type" | "string_too_short":
            return "a text"
        case "list_type":
            return "a list, such as [a,b]"
        case other:
            return f"{error['msg']} ({other})"


def _source(sources: Any, path: tuple[int | str, ...]) -> str:
    """The expression that a value comes from, when nobody typed it; else nothing."""
    for part in path:
        sources = sources.get(part) if isinstance(sources, dict) else None
    return sources if isinstance(sources, str) and "${" in sources else ""


def _follows(sources: Any, path: tuple[int | str, ...]) -> bool:
    """Whether a value is that of a key people vary, `${key}`: then the error is that key's."""
    found = re.fullmatch(r"\$\{(\w+)\}", _source(sources, path))
    return found is not None and found[1] in Settings.model_fields
