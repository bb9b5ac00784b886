"""Checks that turn plain values into settings. A message names the key, the value and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from experiments.settings.finetuning import FinetuningSettings
from experiments.settings.mistake import Mistake, nearest, shortened
from experiments.settings.run import Settings
from experiments.settings.variant import module_of, schema


def from_tree(tree: dict[str, Any], sources: dict[Any, Any] | None = None) -> Settings:
    """The settings of plain values, such as a run folder's `config.yaml`. Raises Mistake."""
    kind = class_of(tree)
    variant = tree.get("variant")
    wrong = list(_variant_errors(variant, sources or {})) if isinstance(variant, dict) else []
    try:
        settings = kind.model_validate(tree)
    except ValidationError as errors:
        raise Mistake("\n".join([*_sentences(errors, tree, sources or {}), *wrong])) from errors
    if wrong:
        raise Mistake("\n".join(wrong))
    return settings


def _variant_errors(variant: dict[Any, Any], sources: dict[Any, Any]) -> Iterator[str]:
    try:
        schema(module_of(variant)).model_validate(variant)
    except ValidationError as errors:
        for error in errors.errors():
            path = ("variant", *error["loc"])
            if not _follows(sources, path):
                yield sentence(error, path, sources)
    except Mistake as error:
        yield f"variant: {error}"


def class_of(tree: dict[Any, Any]) -> type[Settings]:
    """The class that checks a configuration: that of fine-tuning if it names a pretrained run, else that of
    pretraining.
    """
    return FinetuningSettings if "pretrained" in tree else Settings


def errors_of(tree: dict[str, Any], sources: dict[Any, Any], kind: type[Settings]) -> Iterator[str]:
    """Yield a sentence for each value of `tree` that `kind` refuses, except those that follow from a refused key."""
    try:
        kind.model_validate(tree)
    except ValidationError as errors:
        yield from _sentences(errors, tree, sources)


def _sentences(errors: ValidationError, tree: dict[str, Any], sources: dict[Any, Any]) -> Iterator[str]:
    for error in errors.errors():
        path = _without_tags(tree, error["loc"])
        if not _follows(sources, path):
            yield sentence(error, path, sources)


def _without_tags(tree: Any, path: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """The path of an error without the tag that pydantic puts in for a union (data.text.train -> data.train)."""
    untagged: list[int | str] = []
    for part in path:
        if isinstance(tree, dict) and part == tree.get("kind") and part not in tree:
            continue
        untagged.append(part)
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tuple(untagged)


def sentence(error: Any, path: tuple[int | str, ...], sources: dict[Any, Any]) -> str:
    """An error of pydantic about the value at `path`, in words. sources: the expressions from which values come."""
    key = ".".join(map(str, path))
    if error["type"] == "missing":
        return f"{key} is missing"
    if error["type"] == "extra_forbidden":
        return f"there is no setting {key!r}"
    if error["type"] == "value_error":  # a rule between several keys
        return f"{key}: {error['ctx']['error']}" if key else str(error["ctx"]["error"])
    origin = f"; it is {source}" if (source := _source(sources, path)) else ""
    return f"{key} = {shortened(repr(error['input']))}: must be {_allowed(error)}{origin}"


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
        case "string_unicode":
            return "a text in UTF-8"
        case "list_type":
            return "a list, such as [a,b]"
        case other:
            return f"{error['msg']} ({other})"


def _source(sources: Any, path: tuple[int | str, ...]) -> str:
    """The expression that a value comes from, if nobody typed the value; else empty."""
    for part in path:
        sources = sources.get(part) if isinstance(sources, dict) else None
    return sources if isinstance(sources, str) and "${" in sources else ""


def _follows(sources: Any, path: tuple[int | str, ...]) -> bool:
    """Whether a value is `${key}`, so that the error belongs to that key."""
    reference = re.fullmatch(r"\$\{(\w+)\}", _source(sources, path))
    return reference is not None and reference[1] in Settings.model_fields
