"""The arguments of a variant's constructor, read from its source: so a YAML is checked before torch is imported.

`conf/variant/NAME.yaml` holds `name: NAME` and the arguments of `Attention.__init__` of `attention/NAME.py`; one that
reuses the class of another file says so: `module: talking_heads`.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union

from pydantic import FiniteFloat, create_model

from attention import files, mechanisms, source_files
from experiments.failures.failure import Mistake
from experiments.failures.wording import did_you_mean
from experiments.files.project import ROOT
from experiments.settings.conf_files import read_conf, yaml_files
from experiments.settings.group import Fraction, Group, NonNegative, Size
from experiments.settings.model import Model

# what an annotation means here: an int is a size, a float is finite and not negative, a Real is finite
TYPES = {"int": Size, "float": NonNegative, "Real": FiniteFloat, "bool": bool, "str": str}
CONTAINERS: dict[str, Any] = {"list": list, "Sequence": list, "Literal": Literal}

FRAMES = {"AttentionLayer", "ProjectedAttention"}  # of attention/layers/; they mix no heads


def module_of(variant: dict[str, Any]) -> str:
    """The file of `attention/` that a variant group is about."""
    return str(variant.get("module", variant.get("name")))


def arguments_of(variant: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the constructor of a variant group's class."""
    return {key: value for key, value in variant.items() if key not in ("name", "module")}


def keys_around_attention() -> set[str]:
    """The settings of the model to which the YAML of no variant refers, so that no attention layer depends on them."""
    sources = "".join(path.read_text(encoding="utf-8") for path in yaml_files("variant/*.yaml"))
    return {f"model.{key}" for key in Model.model_fields}.difference(re.findall(r"\$\{(model\.\w+)\}", sources))


@functools.cache
def keys_read_by(variant: str) -> frozenset[str]:
    """The settings outside of groups to which the YAML of a variant refers, itself or in a file that it begins with."""
    read: set[str] = set()
    for path in yaml_files(f"variant/{variant}.yaml"):
        read.update(re.findall(r"\$\{(\w+)\}", path.read_text(encoding="utf-8")))
        begins = (str(each).partition("@")[0] for each in read_conf(path).get("defaults", ()))
        read.update(*(keys_read_by(each) for each in begins if each != "_self_"))
    return frozenset(read)


@functools.cache
def mixes_heads(module: str) -> bool:
    """Whether the class in `attention/MODULE.py`, or one that it derives from, may name parameters that mix heads."""
    try:
        classes = [node for node, _ in _with_bases(*_attention_class(module))]
    except Mistake:
        # its base has another name here than its file
        return True
    others = {base.id for node in classes for base in node.bases if isinstance(base, ast.Name)} - FRAMES
    named = (getattr(member, "name", "") for node in classes for member in node.body)
    return bool(others) or "head_mixing_parameters" in named


@functools.cache
def schema(module: str) -> type[Group]:
    """The keys of a variant group whose class is in `attention/MODULE.py`, as a closed, typed model.

    Raises Mistake when there is no such file: a path to another folder names none.
    """
    node, path = _attention_class(module)
    fields: dict[str, Any] = {"name": (str, ...), "module": (str, module)}
    arguments = _constructor(node, path).args
    for argument in (*arguments.args[1:], *arguments.kwonlyargs):
        fields[argument.arg] = (_meaning(argument, path), ...)
    return create_model(f"{module}.Attention", __base__=Group, **fields)


def _shown_path(path: Path) -> str:
    """How messages name a file: ours from the root of the project, others whole."""
    return f"attention/{path.name}" if path.parent == ROOT / "attention" else str(path)


def _attention_class(module: str) -> tuple[ast.ClassDef, Path]:
    """The class of `attention/MODULE.py`, and the file. Raises Mistake."""
    if path := files().get(module):
        for node in _parsed(path).body:
            if isinstance(node, ast.ClassDef) and node.name == "Attention":
                if not node.bases:
                    base = "AttentionLayer (attention/layers/attention_layer.py)"
                    raise Mistake(f"{_shown_path(path)}: the class Attention must be a subclass of {base}")
                return node, path
    if path := source_files().get(module):
        raise Mistake(f"there is no class Attention in {_shown_path(path)}")
    known = mechanisms()
    meant = did_you_mean(module, known)
    raise Mistake(f"there is no file attention/{module}.py{meant}; there are: {', '.join(known)}")


def _parsed(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except SyntaxError as error:
        raise Mistake(f"{_shown_path(path)}, line {error.lineno}: {error.msg}") from error


def _constructor(node: ast.ClassDef, path: Path) -> ast.FunctionDef:
    """`__init__` of the class, or of the `other_module.Attention` that it inherits it from."""
    for each, _ in _with_bases(node, path):
        for member in each.body:
            if isinstance(member, ast.FunctionDef) and member.name == "__init__":
                return member
    raise Mistake(f"{_shown_path(path)}: class Attention has no __init__ to read its settings from")


def _with_bases(node: ast.ClassDef, path: Path) -> Iterator[tuple[ast.ClassDef, Path]]:
    """Yield a class and every `other_module.Attention` that it derives from, each with its file."""
    yield node, path
    for base in node.bases:
        if isinstance(base, ast.Attribute) and isinstance(base.value, ast.Name) and base.attr == node.name:
            yield from _with_bases(*_attention_class(base.value.id))


def _meaning(argument: ast.arg, path: Path) -> Any:
    if argument.annotation is None:
        raise Mistake(f"{_shown_path(path)}: argument {argument.arg} of Attention.__init__ has no annotation")
    if argument.arg == "dropout":
        return Fraction
    try:
        return _type(_without_none(argument.annotation))
    except (KeyError, AttributeError) as error:
        source = ast.unparse(argument.annotation)
        known = ", ".join([*TYPES, *(f"{name}[...]" for name in CONTAINERS)])
        raise Mistake(f"{_shown_path(path)}: {argument.arg}: {source} must consist of {known}") from error


def _without_none(node: ast.expr) -> ast.expr:
    """Without `| None`: that is for callers who leave a size to the constructor, and a YAML says what it is."""
    if isinstance(node, ast.BinOp) and ast.unparse(node.right) == "None":
        return node.left
    return node


def _type(node: ast.expr) -> Any:
    """The type that a syntax tree stands for: a name, a constant, `A | B`, a list or sequence, `Literal[...]`."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.BinOp):
        return Union[_type(node.left), _type(node.right)]  # noqa: UP007 - built at run time
    if isinstance(node, ast.Subscript):
        inner = tuple(map(_type, node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]))
        return CONTAINERS[ast.unparse(node.value)][inner]
    return TYPES[ast.unparse(node)]
