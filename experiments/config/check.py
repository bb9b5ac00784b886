"""Checks that turn plain values into settings. `validation_messages.py` says in words what is wrong."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from typing import Any, NamedTuple

from omegaconf import MISSING
from pydantic import ValidationError

from experiments.config.validation_messages import expression_behind, sentence
from experiments.failures.failure import Mistake
from experiments.failures.wording import plural
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
    if errors := [error for error in wrong if not (error.kind == "missing" and has(sources, error.path))]:
        raise WrongSettings(errors)


def _written(sources: dict[Any, Any], unchecked: Container[str], above: str = "") -> dict[str, Any]:
    """The values without expressions, and without those that are still to be given."""
    return {
        str(key): _written(value, unchecked, f"{above}{key}.") if isinstance(value, dict) else value
        for key, value in sources.items()
        if isinstance(value, dict) or not ("${" in str(value) or value == MISSING or f"{above}{key}" in unchecked)
    }


def has(tree: Any, path: tuple[int | str, ...]) -> bool:
    """Whether nested mappings have a value at this path; the empty path is the tree itself."""
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
        is_head_size = not above and expression_behind(sources, path) == HEAD_SIZE
        too_small = is_head_size and error["type"] == "greater_than_equal"
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


def _key_behind(sources: Any, path: tuple[int | str, ...]) -> str | None:
    """The key that a value takes over, as `${key}`; None for any other value."""
    reference = re.fullmatch(r"\$\{(\w+)\}", expression_behind(sources, path))
    return reference[1] if reference else None
