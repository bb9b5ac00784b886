"""Checks that turn plain values into settings. A message names the key, the value and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, get_args

from omegaconf import MISSING
from pydantic import BaseModel, ValidationError

from experiments.failures.failure import Mistake
from experiments.failures.wording import as_yaml, did_you_mean, plural, shortened
from experiments.settings.finetuning import FinetuningSettings
from experiments.settings.run import Settings
from experiments.settings.variant import module_of, schema

HEAD_SIZE = "${floor_divide:${hidden_size},${heads}}"  # in conf/, of key_size and value_size


class Error(NamedTuple):
    """An error in settings."""

    path: tuple[int | str, ...]  # of its value
    kind: str  # pydantic's word for it
    text: str


class WrongSettings(Mistake):
    """A mistake about settings, which keeps the errors apart."""

    def __init__(self, errors: Iterable[Error]) -> None:
        by_text = {error.text: error for error in errors}
        super().__init__("\n".join(by_text))
        self.errors = [*by_text.values()]


def from_tree(tree: dict[str, Any], sources: dict[Any, Any] | None = None) -> Settings:
    """The settings of plain values, such as a run folder's `config.yaml`. Raises Mistake."""
    sources = sources or {}
    settings, wrong = _validated(tree, class_of(tree), sources)
    if settings is None or wrong:
        raise WrongSettings(_root_errors(wrong, sources))
    return settings


def _validated(
    tree: dict[str, Any], kind: type[Settings], sources: dict[Any, Any]
) -> tuple[Settings | None, list[Error]]:
    """The settings of plain values, None if `kind` refuses them, and all errors, also those of the variant."""
    wrong: list[Error] = []
    if isinstance(variant := tree.get("variant"), dict):
        variant, wrong = _checked_variant(variant, sources)
        tree = tree | {"variant": variant}
    try:
        return kind.model_validate(tree), wrong
    except ValidationError as errors:
        return None, [*_errors(errors, tree, sources), *wrong]


def _checked_variant(variant: dict[Any, Any], sources: dict[Any, Any]) -> tuple[dict[Any, Any], list[Error]]:
    """The values of a variant as its constructor takes them, and all errors.

    A dropout of 0 is 0.0 then, as the name of a run's folder tells the two apart.
    """
    if "name" not in variant:
        text = "variant.name is missing: conf/variant/NAME.yaml must contain name: NAME"
        return variant, [Error(("variant", "name"), "missing", text)]
    try:
        values = schema(module_of(variant)).model_validate(variant).model_dump()
    except ValidationError as errors:
        return variant, [*_errors(errors, variant, sources, ("variant",))]
    except Mistake as error:
        return variant, [Error(("variant",), "value_error", f"variant: {error}")]
    return {key: values[key] for key in variant}, []


def class_of(tree: dict[Any, Any]) -> type[Settings]:
    """The class that checks a configuration: that of fine-tuning if it names a pretrained run, else that of
    pretraining.
    """
    return FinetuningSettings if "pretrained" in tree else Settings


def errors_of(tree: dict[str, Any], kind: type[Settings]) -> Iterator[str]:
    """Yield a sentence for each value of `tree` that `kind` refuses."""
    try:
        kind.model_validate(tree)
    except ValidationError as errors:
        yield from (error.text for error in _errors(errors, tree, {}))


def check_written(sources: dict[str, Any], unchecked: Container[str] = ()) -> None:
    """Check the values that no expression gives, as what follows from a wrong one by interpolation would hide it.

    unchecked: keys to which no expression refers, so their values may be wrong here. Raises Mistake.
    """
    _, wrong = _validated(_written(sources, unchecked), class_of(sources), {})
    # what is left out here is not missing
    if errors := [error for error in wrong if not (error.kind == "missing" and _has(sources, error.path))]:
        raise WrongSettings(errors)


def _written(sources: dict[Any, Any], unchecked: Container[str], above: str = "") -> dict[str, Any]:
    """The values without expressions, and without those that are still to be given."""
    return {
        str(key): _written(value, unchecked, f"{above}{key}.") if isinstance(value, dict) else value
        for key, value in sources.items()
        if isinstance(value, dict) or not ("${" in str(value) or value == MISSING or f"{above}{key}" in unchecked)
    }


def _has(tree: Any, path: tuple[int | str, ...]) -> bool:
    for part in path:
        if not isinstance(tree, dict) or part not in tree:
            return False
        tree = tree[part]
    return True


def _errors(
    errors: ValidationError, tree: dict[Any, Any], sources: dict[Any, Any], above: tuple[str, ...] = ()
) -> Iterator[Error]:
    """Yield one error for each value of `tree`, which is at the path `above`."""
    by_path: dict[tuple[int | str, ...], list[Any]] = {}
    for error in errors.errors():
        by_path.setdefault((*above, *_without_tags(tree, error)), []).append(error)
    for path, (error, *of_alternatives) in by_path.items():
        # a variant may have a width of the same expression
        too_small = not above and error["type"] == "greater_than_equal" and _source(sources, path) == HEAD_SIZE
        text = _too_many_heads(tree) if too_small else sentence(error, path, sources, of_alternatives)
        kind = "missing" if error["type"] == "union_tag_not_found" else error["type"]
        # pydantic means the whole group
        yield Error((*path, "kind") if error["type"].startswith("union_tag") else path, kind, text)


def _too_many_heads(tree: dict[Any, Any]) -> str:
    heads, hidden_size = tree["heads"], tree["hidden_size"]
    return (
        f"heads = {heads}: hidden_size = {hidden_size} has no width for so many heads; "
        f"give at most {hidden_size} {plural('head', hidden_size)}, or set key_size and value_size"
    )


def _root_errors(errors: list[Error], sources: dict[Any, Any]) -> list[Error]:
    """The errors without that of a value `${key}` where `key` itself has an error."""
    wrong = {error.path[0] for error in errors if error.path}
    return [error for error in errors if _key_behind(sources, error.path) not in wrong]


def _without_tags(tree: Any, error: Any) -> tuple[int | str, ...]:
    """The path of an error without the tags that pydantic puts in for unions (data.text.train -> data.train)."""
    if not error["loc"]:
        return ()
    *parents, last = error["loc"]
    untagged: list[int | str] = []
    for part in parents:
        if (isinstance(tree, dict) and part in tree) or (isinstance(tree, list) and isinstance(part, int)):
            untagged.append(part)
            tree = tree[part]
    is_there = isinstance(tree, list) or (isinstance(tree, dict) and last in tree)
    return (*untagged, last) if is_there or error["type"] == "missing" or last == "[key]" else tuple(untagged)


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
    origin = f"; it is {source}" if (source := _source(sources, path)) else ""
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


def _source(sources: Any, path: tuple[int | str, ...]) -> str:
    """The expression that a value comes from, if nobody typed the value; else empty."""
    for part in path:
        sources = sources.get(part) if isinstance(sources, dict) else None
    return sources if isinstance(sources, str) and "${" in sources else ""


def _key_behind(sources: Any, path: tuple[int | str, ...]) -> str | None:
    """The key that a value takes over, as `${key}`; None for any other value."""
    reference = re.fullmatch(r"\$\{(\w+)\}", _source(sources, path))
    return reference[1] if reference else None
