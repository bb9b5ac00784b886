"""Folders of the user's own that add files to the project, each at the place where the project would have it.

`plugins=FOLDER` adds modules, FOLDER/attention/NAME.py, and YAML, FOLDER/conf/variant/NAME.yaml. `--config-dir FOLDER`
adds YAML alone, FOLDER/variant/NAME.yaml. Only what the user has named in a command is ever looked at: no run folder
names one. A file adds and never replaces.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from experiments.failures.failure import Mistake, once
from experiments.failures.wording import as_yaml, did_you_mean
from experiments.files.project import ROOT
from experiments.settings.conf_files import CONF, add_conf_folders, conf_folders, read_conf

# the packages whose files are the list of what there is
REGISTRIES = (
    "attention",
    "attention/kernels",
    "experiments/data/kinds",
    "experiments/formats",
    "experiments/model/architectures",
    "experiments/objectives/kinds",
    "experiments/tables/measured",
    "experiments/tables/numerical",
)
# the packages to which a user adds files; those that are not registries take them in the project alone
EXTENDED = (
    *REGISTRIES,
    "experiments/heads/sections",
    "experiments/model/layers",
    "experiments/tasks/finetuning/kinds",
    "experiments/training/step/optimizers/kinds",
)
# registries that are listed when the settings are imported
LISTED = ("attention/kernels", "experiments/data/kinds", "experiments/objectives/kinds")
T = TypeVar("T")
TOPS = {registry.partition("/")[0] for registry in REGISTRIES}  # the packages around them
FLAGS = {"plugins": "plugins", "--config-dir": "--config-dir", "-cd": "--config-dir"}

_code: list[Path] = []


def code_folders() -> tuple[Path, ...]:
    """The folders that add modules."""
    return tuple(_code)


def module_file(module: str) -> Path | None:
    """The file of an added module; None for a module of the project, and for one that does not exist."""
    paths = (folder.joinpath(*module.split(".")).with_suffix(".py") for folder in _code)
    return next((path for path in paths if path.is_file()), None)


def modules() -> dict[str, Path]:
    """The modules that are added, by their path below the folder, `attention/NAME.py`."""
    return {path.relative_to(folder).as_posix(): path for folder in _code for path in _modules_below(folder)}


def take(arguments: list[str]) -> list[str]:
    """The arguments of a command without `plugins=FOLDER` and `--config-dir FOLDER`, which are used from here on.

    Raises Mistake.
    """
    left, rest = [*arguments], []
    named: list[tuple[str, str]] = []
    while left:
        argument = left.pop(0)
        flag, equals, name = argument.partition("=")
        if flag not in FLAGS or (flag == "plugins" and not equals):
            rest.append(argument)
            continue
        named.append((FLAGS[flag], name if equals else left.pop(0) if left else ""))
    add([f"{key}={name}" for key, name in once(named).items()])
    return rest


def use_plugins(folder: str | Path) -> None:
    """Use what a folder adds, as `plugins=FOLDER` of a command does. A program calls it before anything else.

    Raises Mistake, also if the kinds have been listed already.
    """
    add([f"plugins={folder}"])


def arguments() -> list[str]:
    """The arguments that bring another process what this one has in use."""
    conf_alone = (folder for folder in conf_folders() if folder != CONF and folder.parent not in _code)
    return [f"plugins={folder}" for folder in _code] + [f"--config-dir={folder}" for folder in conf_alone]


def with_plugins(function: Callable[..., T]) -> Callable[..., T]:
    """The function for another process, which first uses the folders that this one uses.

    It is pickled by value, so that nothing is imported before: the kinds are listed when the settings are imported.
    """
    added = arguments()
    if not added:
        return function
    module, name = function.__module__, function.__qualname__

    def call(*arguments: Any) -> Any:
        from importlib import import_module

        from experiments.settings.plugins import add

        add(added)
        return getattr(import_module(module), name)(*arguments)

    return call


def add(arguments: list[str]) -> None:
    """Use the folders that arguments name, as `plugins=FOLDER` and `--config-dir=FOLDER`; one in use already stays.

    Raises Mistake, before anything is used, that names the file.
    """
    code, conf = [], []
    for argument in arguments:
        key, _, name = argument.partition("=")
        # a user that does not exist stays as it is
        folder = Path(os.path.expanduser(name)).resolve()  # noqa: PTH111
        if not name or not folder.is_dir():
            raise Mistake(f"{argument}: there is no folder {name!r}", f"{key}=FOLDER names one of yours")
        if key == "plugins":
            _check_plugins(folder)
            code.append(folder)
            conf += [folder / "conf"] * (folder / "conf").is_dir()
        else:
            conf.append(folder)
    for folder in conf:
        _check_conf(folder)
    for folder in code:
        late = [each for each in LISTED if folder not in _code and any((folder / each).glob("*.py"))]
        if late and "experiments.settings.run" in sys.modules:
            raise Mistake(
                f"plugins={folder}: {late[0]}/ has been listed already",
                "call experiments.use_plugins before anything else of experiments",
            )
        for registry in REGISTRIES:
            if (place := folder / registry).is_dir():
                _extend(registry.replace("/", "."), str(place))
    _code.extend(folder for folder in code if folder not in _code)
    add_conf_folders(conf)


def _extend(package: str, folder: str) -> None:
    """Have a package of ours find its modules in another folder too."""
    path = import_module(package).__path__
    if folder not in path:
        path.append(folder)


def _modules_below(folder: Path) -> Iterator[Path]:
    for top in sorted(TOPS):
        yield from sorted((folder / top).rglob("*.py"))


def _check_plugins(folder: Path) -> None:
    """Raises Mistake for a module that has the name of another, that nothing would find, or that is not Python, and for
    a kernel without its function.
    """
    modules = list(_modules_below(folder))
    if not modules and not (folder / "conf").is_dir():
        raise Mistake(f"plugins={folder}: adds nothing", "it must contain conf/GROUP/NAME.yaml, attention/NAME.py, ...")
    for path in modules:
        registry = path.parent.relative_to(folder).as_posix()
        if registry not in REGISTRIES:
            raise Mistake(
                f"{path}: {registry}/ is not a folder to which files can be added",
                "in the project itself, it is" if registry in EXTENDED else f"there are: {', '.join(REGISTRIES)}",
            )
        if (ROOT / registry / path.name).exists() or (ROOT / registry / path.stem / "__init__.py").exists():
            raise Mistake(f"{path}: attn itself has {registry}/{path.stem}", "give the file another name")
        try:
            # more than a parse notices, such as an import from __future__ in the wrong place
            compile(text := path.read_text(encoding="utf-8"), path, "exec", dont_inherit=True)
        except SyntaxError as error:
            raise Mistake(f"{path}, line {error.lineno}: {error.msg}") from error
        except ValueError as error:
            raise Mistake(f"{path}: {error}") from error
        if registry == "attention/kernels":
            _check_kernel(path, ast.parse(text))


def _check_kernel(path: Path, tree: ast.Module) -> None:
    """Raises Mistake for a kernel that nothing would find, and for functions that can't be called as a kernel's are."""
    if path.stem == "auto":
        raise Mistake(f"{path}: backend=auto chooses a kernel", "give the file another name")
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if "attend" not in functions:
        raise Mistake(f"{path}: has no function attend(problem)", "a file that kernels import can be in attention/")
    for name in functions.keys() & {"attend", "refusal"}:
        of_function = functions[name].args
        if len(of_function.posonlyargs + of_function.args) - len(of_function.defaults) != 1:
            raise Mistake(f"{path}, line {functions[name].lineno}: {name} must take one argument, the problem")


def _check_conf(folder: Path) -> None:
    """Raises Mistake for YAML that has the name of another, that nothing would find, or that is no mapping."""
    groups = sorted(path.name for path in CONF.iterdir() if path.is_dir())
    if other := next(iter(sorted(folder.rglob("*.yml"))), None):
        raise Mistake(f"{other}: the name must end in .yaml")
    for path in sorted(folder.rglob("*.yaml")):
        name = path.relative_to(folder)
        if (CONF / name).exists():
            raise Mistake(f"{path}: attn itself has conf/{name}", "give the file another name")
        if len(name.parts) == 1 or name.parts[0] not in groups:
            meant = did_you_mean(name.parts[0], groups)
            raise Mistake(f"{path}: {name.parts[0]} is not a group{meant}", f"there are: {', '.join(groups)}")
        tree = read_conf(path)
        if tree is None:
            # an empty file
            tree = {}
        if not isinstance(tree, dict):
            raise Mistake(f"{path}: must be a mapping, KEY: VALUE")
        if not isinstance(tree.get("defaults", []), list):
            raise Mistake(f"{path}: defaults = {as_yaml(tree['defaults'])}: must be a list, such as [default]")
        # without it, Hydra puts the whole file below its group
        if (group := name.parts[0]) in tree and "# @package _global_" not in path.read_text(encoding="utf-8"):
            raise Mistake(f"{path}: a file with the key {group} must begin with the line # @package _global_")
        if group == "variant":
            _check_variant(path, tree)


def _check_variant(path: Path, tree: dict[Any, Any]) -> None:
    """Raises Mistake for a variant without a name, and where it goes under the name of another."""
    if "name" not in tree:
        raise Mistake(f"{path}: name is missing", f"the file must contain name: {path.stem}")
    if (named := tree["name"]) != path.stem:
        raise Mistake(f"{path}: name = {named!r}: must be {path.stem!r}, like the file")
