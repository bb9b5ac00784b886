"""The errors of pydantic about settings and options, in words: the key, the value and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from experiments.failures.failure import Mistake
from experiments.failures.wording import as_yaml, did_you_mean, shortened


def sentences(errors: ValidationError, kind: type[BaseModel], *above: str) -> list[str]:
    """A sentence for each error of pydantic about settings of this class, which are at the path `above`."""
    return [
        sentence(error, (*above, *error["loc"]), {})
        + (did_you_mean(str(error["loc"][-1]), _keys(kind, error["loc"])) if error["type"] == "extra_forbidden" else "")
        for error in errors.errors()
    ]


def _keys(kind: type[BaseModel], path: tuple[int | str, ...]) -> set[str]:
    """The keys that settings of this class may have in the place of the last one of `path`."""
    kinds = [kind]
    for part in path[:-1]:
        inner = [
            found
            for each in kinds
            if part in each.model_fields
            for found in _within(each.model_fields[part].annotation)
        ]
        # an index, the key of a mapping and the tag of a union are no fields
        kinds = inner or kinds
    return {name for each in kinds for name in each.model_fields}


def _within(annotation: Any) -> list[type[BaseModel]]:
    """The classes of settings in the type of a field."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for argument in get_args(annotation) for found in _within(argument)]


def sentence(
    error: Any, path: tuple[int | str, ...], sources: dict[Any, Any], of_alternatives: Sequence[Any] = ()
) -> str:
    """An error of pydantic about the value at `path`, in words.

    sources: the expressions from which values come. of_alternatives: the other errors of a value that may be of one of
    several kinds, and is of none.
    """
    if error["type"] == "union_tag_invalid":
        # pydantic means the whole group
        path, error = (*path, "kind"), error | {"input": error["input"]["kind"]}
    key = ".".join(map(str, path))
    if error["type"] == "missing":
        return f"{key} is missing"
    if error["type"] == "union_tag_not_found":
        return f"{key}.kind is missing"
    if error["type"] == "extra_forbidden":
        return f"there is no setting {key!r}"
    if error["type"] == "value_error":  # a rule between several keys
        return f"{key}: {error['ctx']['error']}" if key else str(error["ctx"]["error"])
    if path and path[-1] == "[key]":
        # the last part but one is the key itself
        return f"{'.'.join(map(str, path[:-2]))}: the key {_key(error['input'])} must be {_allowed(error)}"
    if error["type"] == "invalid_key":
        # {overrides: heads=2,4} is heads=2, and a key 4
        where = ".".join(map(str, path[:-1]))
        return f"{where}: there is no setting {path[-1]}; a text with a comma needs quotation marks"
    origin = f"; it is {source}" if (source := expression_behind(sources, path)) else ""
    allowed = _any_of([error, *of_alternatives]) if of_alternatives else _allowed(error)
    return f"{key} = {shortened(as_yaml(error['input']))}: must be {allowed}{origin}"


def _key(key: Any) -> str:
    """The key of a mapping as a file has it."""
    if isinstance(key, bool):
        return f"{as_yaml(key)} (yes, no, on and off without quotation marks are true and false)"
    return str(key)


def of_option(name: str, errors: ValidationError) -> Mistake:
    """What is wrong with the value of an option of a command, `--sequences 0: must be at least 1`."""
    error = errors.errors()[0]
    if error["type"] == "value_error":
        # Typer's own words, `'xml' is not one of 'table', 'csv'.`
        _, *choices = re.findall("'([^']*)'", str(error["ctx"]["error"]))
        allowed = f"one of {', '.join(choices)}" + did_you_mean(str(error["input"]), choices)
    else:
        allowed = _allowed(error)
    return Mistake(f"{name} {error['input']}: must be {allowed}")


def _any_of(errors: Sequence[Any]) -> str:
    """The words for what each error would allow, `auto, true or false`."""
    words = [word for error in errors for word in _alternatives(error)]
    return f"{', '.join(words[:-1])} or {words[-1]}" + did_you_mean(str(errors[0]["input"]), words)


def _alternatives(error: Any) -> list[str]:
    match error["type"]:
        case "literal_error":
            return _choices(error)
        case "bool_type":
            return ["true", "false"]
        case _:
            return [_allowed(error)]


def _choices(error: Any) -> list[str]:
    """The words that a literal, or the kind of a group, allows."""
    context = error["ctx"]
    return [word.strip("'") for word in re.split(r", | or ", context.get("expected") or context["expected_tags"])]


def _allowed(error: Any) -> str:
    context = error.get("ctx", {})
    match error["type"]:
        case "literal_error" | "union_tag_invalid":
            choices = _choices(error)
            return f"one of {', '.join(choices)}" + did_you_mean(str(error["input"]), choices)
        case "greater_than_equal":
            return f"at least {_plain(context['ge'])}"
        case "greater_than":
            return f"greater than {_plain(context['gt'])}"
        case "less_than":
            return f"less than {_plain(context['lt'])}"
        case "less_than_equal":
            return f"at most {_plain(context['le'])}"
        case "int_type" | "int_from_float" | "int_parsing":
            return "a whole number"
        case "float_type" | "finite_number" | "float_parsing":
            return "a finite number"
        case "bool_type":
            return "true or false"
        case "string_type":
            return "a text"
        case "string_too_short":
            return "a text that is not empty"
        case "string_unicode":
            return "a text in UTF-8"
        case "dict_type" | "model_type" | "model_attributes_type":
            return "a mapping, KEY: VALUE"
        case "list_type":
            return "a list, such as [a,b]"
        case "too_short":
            return f"a list of at least {context['min_length']}"
        case "too_long":
            return f"a list of at most {context['max_length']}"
        case "string_pattern_mismatch":
            return f"a text that matches {context['pattern']}"
        case other:
            return f"{error['msg']} ({other})"


def _plain(limit: float) -> str:
    """The end of a range as one writes it: 0 for 0.0."""
    return str(int(limit) if limit == int(limit) else limit)


def expression_behind(sources: Any, path: tuple[int | str, ...]) -> str:
    """The expression that a value comes from, if nobody typed the value; else empty."""
    for part in path:
        sources = sources.get(part) if isinstance(sources, dict) else None
    return sources if isinstance(sources, str) and "${" in sources else ""
