"""Digests of the code that a run computes with, one for each file. With different code, a run is a different run.

They cover the file of the variant and every file of `attention/` that it imports, including base classes, layers and
the core, but only those kernels that ran. They cover the objective, the models, the order of the batches, the steps of
the training with the run's optimizer, and the evaluation in the same way, from the files in `ROOTS` and
`TRAINING_ROOTS`, so a change of a norm needs no new version number. Of the tables of norms and positions they cover the
lines that the model uses. A file that the user adds counts with all modules of the user's that it imports. They do not
cover how devices share a step, which changes rounding alone, and the loop that calls the steps, logs, and saves. The
packed text and the windows of a task's examples have their own version, `FORMAT`, because a run reads them from the
cache, where the version decides what it gets. Tests compare their bytes with those of the version.
"""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Iterable, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from attention.kernels import kernel_modules
from experiments.files.digest import digest
from experiments.files.project import ROOT
from experiments.record.code.imported_file import imported_file
from experiments.record.code.source import c_source_digest, format_version, module_source
from experiments.settings.norm import NORM_KINDS
from experiments.settings.objective import ARCHITECTURES, architecture_of
from experiments.settings.plugins import code_folders, module_file, modules
from experiments.settings.position import POSITION_KINDS
from experiments.settings.run import OBJECTIVE_KINDS
from experiments.settings.variant import module_of

ROOTS = (
    "experiments.objectives.loss",
    "experiments.model.build",
    "experiments.data.batches",
    "experiments.data.shuffle",
)
# of a run that is trained, not imported
TRAINING_ROOTS = (
    "experiments.training.step.learner",
    "experiments.training.step.schedule",
    "experiments.training.run_length",
    "experiments.training.evaluate",
)
FINETUNED_ROOTS = (
    "experiments.model.finetuned_encoder",
    "experiments.tasks.finetuning.objective",
    "experiments.tasks.finetuning.weights",
)
# modules whose imports are followed, with those that give a task its targets and scores; the others of a task make the
# windows of its examples, which have a FORMAT
SCORED = ("answers", "cmrc", "kind", "labelled", "scores", "squad")
FOLLOWED: tuple[str, ...] = (
    "attention.",
    "experiments.objectives.",
    "experiments.model.",
    "experiments.measure.quality",
)
FOLLOWED += ("experiments.training.step.", "experiments.training.decoding.")
FOLLOWED += tuple(f"experiments.tasks.finetuning.{name}" for name in SCORED)
# what scores an objective that imports a name, and is not imported by it
SCORED_BY = {"experiments.objectives.objective.Decoding": "experiments.training.decoding.texts"}
COVERED_ROOMS = (
    "attention", "experiments/objectives", "experiments/model", "experiments/data", "experiments/tasks",
    "experiments/measure", "experiments/training",
)  # fmt: skip
SHARING = "experiments/training/distributed"  # how devices share a step, which no digest covers
VERSIONED = ("experiments/data/packing.py", "experiments/tasks/finetuning/features.py")  # with a FORMAT
KERNELS = kernel_modules()
SOURCE_ENDINGS = (".cpp", ".cu", ".h")  # of what a kernel compiles, in the folder of its name
# the settings on which `code_digests` depends
DECIDING = (
    "variant.module", "variant.name", "objective.kind", "task.kind", "data.kind", "model.norm_kind", "model.position",
    "optimizer.kind",
)  # fmt: skip


def code_digests(
    settings: Mapping[str, Any], backend: str | None, root: Path | None = None, *, trained: bool = True
) -> dict[str, str]:
    """The digest of each file that a run computes with, by its path from the root of the project.

    A file that the user adds has its path below the folder that adds it.

    settings: those of the run, as in its config.yaml. backend: the kernels that ran, joined by `+`. root: the project's
    root. trained: False for an imported run, of which the training and the evaluation of `attn` are no part.

    Raises LookupError if a file, an objective, a norm or a position is missing that the settings name, and Mistake for
    an objective that names no architecture.
    """
    variant, objective = module_of(settings["variant"]), settings["objective"]["kind"]
    modules: tuple[str, ...] = (f"attention.{variant}", f"experiments.objectives.kinds.{objective}", *ROOTS)
    modules += (f"{ARCHITECTURES}.{architecture_of(OBJECTIVE_KINDS[objective])}",)
    if "task" in settings:
        modules += (*FINETUNED_ROOTS, f"experiments.tasks.finetuning.kinds.{settings['task']['kind']}")
    ran = frozenset((backend or "").split("+"))
    modules += (*_named_modules(settings["model"]), *(KERNELS[name] for name in sorted(ran & KERNELS.keys())))
    unused = {module for name, module in KERNELS.items() if name not in ran}
    if trained:
        modules += (*TRAINING_ROOTS, f"experiments.training.step.optimizers.kinds.{settings['optimizer']['kind']}")
    kind_of_data = f"experiments.data.kinds.{settings['data']['kind']}"
    # only for kinds that the user adds; for our own, the version of the packed text is enough
    modules += (kind_of_data,) * (module_file(kind_of_data) is not None)
    roots = (root or ROOT, *code_folders())
    versions = {place: format_version(roots[0] / place) for place in VERSIONED}
    digests = dict(_digests(roots, modules, frozenset(unused), FOLLOWED)) | versions | _table_lines(settings["model"])
    for kernel in sorted(ran & KERNELS.keys()):
        digests |= _compiled_sources(roots[0], kernel)
    return digests


def measure_digests(module: str) -> dict[str, str]:
    """The digest of each file that a measurement of trained models computes with, by its path."""
    roots = (ROOT, *code_folders())
    followed = ("experiments.heads.", "experiments.tasks.trained", *FOLLOWED)
    return dict(_digests(roots, (module,), frozenset(), followed))


def _named_modules(model: Mapping[str, Any]) -> tuple[str, ...]:
    """The modules of a model that no import names: those of its kinds of norm and position."""
    parts = (part for part in POSITION_KINDS[model["position"]] if isinstance(part, str))
    names = (NORM_KINDS[model["norm_kind"]].module, *(part.partition(":")[0] for part in parts))
    return tuple(name for name in names if name.startswith(FOLLOWED))


def _table_lines(model: Mapping[str, Any]) -> dict[str, str]:
    """The digests of the lines in the tables of norms and positions that a model uses."""
    norm, position = model["norm_kind"], model["position"]
    lines: dict[str, tuple[Any, ...]] = {
        f"experiments/settings/norm.py: {norm}": NORM_KINDS[norm],
        f"experiments/settings/position.py: {position}": POSITION_KINDS[position],
    }
    return {
        name: digest([dict(field) if isinstance(field, Mapping) else field for field in line])[:16]
        for name, line in lines.items()
    }


@functools.cache
def _digests(
    roots: tuple[Path, ...], modules: tuple[str, ...], unused: frozenset[str], followed: tuple[str, ...]
) -> Mapping[str, str]:
    """The digests of the modules and of everything that they import, without what is not used.

    followed: the beginnings of the names of those modules of ours whose imports count.
    """
    digests: dict[str, str] = {}
    waiting, seen = [*modules], {*modules}
    while waiting:
        path = Path(*waiting.pop().split(".")).with_suffix(".py")
        if (file := next(filter(None, (module_source(root / path) for root in roots)), None)) is None:
            if path.with_suffix("").as_posix().replace("/", ".") in modules:
                raise LookupError(f"there is no {path}")
            # a package, or a name in a module
            continue
        digests[path.as_posix()] = file.digest
        names = file.imported_names(".".join(path.parent.parts))
        if not (roots[0] / path).is_file():
            digests |= _users_digests(names)
        scoring = {SCORED_BY[name] for name in names & SCORED_BY.keys()}
        new = ({name for name in names if name.startswith(followed)} | scoring) - unused - seen
        seen |= new
        waiting += new
    return dict(sorted(digests.items()))


def _users_digests(names: Iterable[str]) -> dict[str, str]:
    """The digests of those modules that are the user's and in no folder of plugins, and of those that they import."""
    digests: dict[str, str] = {}
    waiting, seen = [*names], {*names}
    while waiting:
        name = waiting.pop()
        new = {name.rpartition(".")[0]} - {""}  # Python imports the packages around a module too
        path = imported_file(name)
        if path is not None and (file := module_source(path)) is not None:
            is_package = path.stem == "__init__"
            digests[name.replace(".", "/") + ("/__init__" if is_package else "") + path.suffix] = file.digest
            new |= file.imported_names(name if is_package else name.rpartition(".")[0])
        waiting += new - seen
        seen |= new
    return digests


@functools.cache
def _compiled_sources(root: Path, kernel: str) -> dict[str, str]:
    paths = (root / "attention" / "kernels" / kernel).glob("*")
    return {path.relative_to(root).as_posix(): c_source_digest(path) for path in paths if path.suffix in SOURCE_ENDINGS}


def added_digests() -> dict[str, str]:
    """The digest of each module that the user adds, by its path below the folder that adds it, and of those that it
    imports.
    """
    digests: dict[str, str] = {}
    for name, path in modules().items():
        if (file := module_source(path)) is not None:
            digests |= _users_digests(file.imported_names(".".join(Path(name).parent.parts))) | {name: file.digest}
    return digests


def import_code(settings: Mapping[str, Any]) -> None:
    """Import every module that a run computes with, and read its file for the digest.

    The process then computes to its end with the files that it began with. Without this, what scores the run would be
    imported at its end, which may be a day later, when a file was edited or another branch checked out.
    """
    for kernel in KERNELS:
        _compiled_sources(ROOT, kernel)
    for name in code_digests(settings, None):
        if name.endswith(".py"):
            # a module that cannot be imported, and is no part of the project, is left to the module that needs it
            with nullcontext() if name.startswith(("attention/", "experiments/")) else suppress(Exception):
                importlib.import_module(module_name(name))


def import_covered() -> None:
    """Import every module that a digest can cover, and read its file for the digest.

    This is for a process that forks others. They compute with the files that it began with, even if these are edited
    later, and record their digests. A module that cannot be imported is left to the run that needs it.
    """
    for root, room in itertools.product((ROOT, *code_folders()), COVERED_ROOMS):
        for path in sorted((root / room).rglob("*.py")):
            if path.is_relative_to(root / SHARING):
                continue
            with suppress(Exception):
                importlib.import_module(module_name(path.relative_to(root)))
                module_source(path)
    added_digests()
    for kernel in KERNELS:
        _compiled_sources(ROOT, kernel)
    for place in VERSIONED:
        format_version(ROOT / place)


def module_name(path: str | Path) -> str:
    """The dotted name of a module by its path below the folder that it is imported from."""
    return ".".join(Path(path).with_suffix("").parts).removesuffix(".__init__")


def code_digest(settings: Mapping[str, Any], backend: str | None, *, trained: bool = True) -> str:
    """Hex SHA-256 of all the code that a run computes with."""
    return digest(code_digests(settings, backend, trained=trained))


def differing(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """The files that differ, for a message: `the code (a.py, b.py)`, or `the code` if they are unknown."""
    files = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    shown = ", ".join(files[:4]) + (f" and {len(files) - 4} more" if len(files) > 4 else "")
    return f"the code ({shown})" if before and files else "the code"
