"""The arguments of a variant's constructor, read from its source: so a YAML is checked before torch is imported.

`conf/variant/NAME.yaml` holds `name: NAME` and the arguments of `Attention.__init__` of `attention/NAME.py`; one that
reuses the class of another file says so: `module: talking_heads`.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
from pathlib import Path
from typing import Any, Literal, Union

from pydantic import FiniteFloat, create_model

from experiments.settings.group import Fraction, Group, NonNegative, Size
from experiments.settings.mistake import Mistake

# what an annotation means here: an int is a size, a float is finite and not negative, a Real is finite
TYPES = {"int": Size, "float": NonNegative, "Real": FiniteFloat, "bool": bool, "str": str}


def attention_folder() -> Path:
    """The folder of the package `attention`, found without importing it."""
    spec = importlib.util.find_spec("attention")
    assert spec is not None and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


def module_of(variant: dict[str, Any]) -> str:
    """The file of `attention/` that a variant group is about."""
    return str(variant.get("module", variant.get("name")))


def arguments_of(variant: dict[str, Any]) -> dict[str, Any]:
    """What the constructor of a variant group's class is called with."""
    return {key: value for key, value in variant.items() if key not in ("name", "module")}


@functools.cache
def schema(module: str) -> type[Group]:
    """The keys of a variant group whose class is in `attention/MODULE.py`, as a closed, typed model.

    Raises Mistake when there is no such file: a path to another folder names none.
    """
    path = attention_folder() / f"{module}.py"
    node = _attention_class(path) if module.isidentifier() and path.is_file() else None
    if node is None:
        known = [
            each.stem for each in sorted(path.parent.glob("*.py")) if "\nclass Attention(" in each.read_text("utf-8")
        ]
        raise Mistake(f"there is no class Attention in attention/{module}.py; there are: {', '.join(known)}")
    fields: dict[str, Any] = {"name": (str, ...), "module": (str, module)}
    for argument in _constructor(node, path).args.args[1:]:
        fields[argument.arg] = (_meaning(argument, path), ...)
    return create_model(f"{module}.Attention", __base__=Group, **fields)


def _attention_class(path: Path) -> ast.ClassDef | None:
    try:
        body = ast.parse(path.read_text(encoding="utf-8")).body
    except SyntaxError as error:
        raise Mistake(f"attention/{path.name}, line {error.lineno}: {error.msg}") from error
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name == "Attention":
            return node
    return None


def _constructor(node: ast.ClassDef, path: Path) -> ast.FunctionDef:
    """`__init__` of the class, or of the `other_module.Attention` that it inherits it from."""
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and member.name == "__init__":
            return member
    for base in node.bases:
        if isinstance(base, ast.Attribute) and isinstance(base.value, ast.Name):
            parent_path = path.with_name(f"{base.value.id}.py")
            parent = _attention_class(parent_path) if parent_path.is_file() else None
            if parent is not None:
                return _constructor(parent, parent_path)
    raise Mistake(f"{path.name}: class Attention has no __init__ to read its settings from")


def _meaning(argument: ast.arg, path: Path) -> Any:
    if argument.annotation is None:
        raise Mistake(f"{path.name}: argument {argument.arg} of Attention.__init__ has no annotation")
    if argument.arg == "dropout":
        return Fraction
    try:
        return _type(_given(argument.annotation))
    except (KeyError, AttributeError) as error:
        source = ast.unparse(argument.annotation)
        raise Mistake(f"{path.name}: {argument.arg}: {source} is not made of {', '.join(TYPES)}, Literal") from error


def _given(node: ast.expr) -> ast.expr:
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
        container: Any = {"list": list, "Sequence": list, "Literal": Literal}[ast.unparse(node.value)]
        return container[inner]
    return TYPES[ast.unparse(node)]
