"""The digest of one file of source code, in which comments and layout do not count.

That of a Python module is of its syntax tree without docstrings, and is the same in every version of Python. Files are
parsed, not imported, once in a process, because a process computes with the files that it began with.
"""

from __future__ import annotations

import ast
import functools
import re
from importlib.util import resolve_name
from pathlib import Path
from typing import NamedTuple

from experiments.files.digest import bytes_digest, text_digest

C_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


class ModuleSource(NamedTuple):
    """The code of a Python module: its digest, and what it imports."""

    digest: str
    imports: tuple[str, ...]  # dotted; for `from a import b`, both a and a.b; relative ones begin with dots

    def imported_names(self, package: str) -> set[str]:
        """What the module, one of this package, imports, by absolute names."""
        # a relative import beyond the top of its package fails when the module is imported
        return {
            resolve_name(name, package) if name.startswith(".") else name
            for name in self.imports
            if len(name) - len(name.lstrip(".")) <= len(package.split(".")) * bool(package)
        }


@functools.cache
def module_source(path: Path) -> ModuleSource | None:
    """The digest and the imports of a module; None for a package, and for a name that is not a module."""
    if not path.is_file():
        return None
    content = path.read_bytes()
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # compiled, or broken, which shows if it is imported
        return ModuleSource(bytes_digest([content])[:16], ())
    pieces: list[str] = []
    imports: list[str] = []
    _walk(tree, pieces, imports)
    return ModuleSource(text_digest("\0".join(pieces))[:16], tuple(dict.fromkeys(imports)))


@functools.cache
def c_source_digest(path: Path) -> str:
    """The digest of a C++ source without comments and white space."""
    pieces = C_COMMENTS.sub(" ", path.read_text(encoding="utf-8")).split()
    return text_digest(" ".join(pieces))[:16]


@functools.cache
def format_version(path: Path) -> str:
    """The line `FORMAT = N` of a module whose product is kept in the cache."""
    return "format " + re.findall(r"^FORMAT = (\d+)", path.read_text(encoding="utf-8"), re.MULTILINE)[0]


def _walk(tree: ast.AST, pieces: list[str], imports: list[str]) -> None:
    """Write down a syntax tree without docstrings and without empty fields, which depend on the version of Python; note
    its imports.
    """
    # what is still to be written, last first, and the list for its imports
    waiting: list[tuple[ast.AST | str, list[str]]] = [(tree, imports)]
    while waiting:
        node, imports = waiting.pop()
        if isinstance(node, str):
            pieces.append(node)
            continue
        if isinstance(node, ast.Import):
            imports += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            source = "." * node.level + (node.module or "")
            inner = f"{source}." if node.module else source
            imports += [source, *(inner + alias.name for alias in node.names)]
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        typing_only = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        # words are gathered up to the next part that is a tree, because each turn of the loop takes time
        parts: list[ast.AST | str] = []
        words = [type(node).__name__]
        for name in node._fields:
            value = getattr(node, name, None)
            if value is None or value == []:
                continue
            items = value if isinstance(value, list) else [value]
            if documented and name == "body" and _is_text(items[0]):
                items = items[1:]
            words.append(name)
            for item in items:
                if not isinstance(item, ast.AST):
                    words.append(repr(item))
                elif not item._fields:
                    words += [type(item).__name__, ")"]
                else:
                    parts += ["\0".join(words), item] if words else [item]
                    words = []
        words.append(")")
        parts.append("\0".join(words))
        noted = [] if typing_only else imports
        waiting += [(part, noted) for part in reversed(parts)]


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
