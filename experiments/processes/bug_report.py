"""The message about an exception that is not a user's mistake: a bug, and its file."""

from __future__ import annotations

import inspect
import traceback
from pathlib import Path

from experiments.files.project import ROOT
from experiments.settings.plugins import EXTENDED, code_folders

BUG = "this is a bug in attn: please report it, with the lines above and the output of `attn --version`"


def bug_report(error: BaseException) -> str:
    """The line after the traceback. It names the file of an extension that the error comes from, if there is one."""
    file = extension_of(error)
    return BUG if file is None else f"the error is in {file}: if you wrote this file, correct it there; otherwise {BUG}"


def extension_of(error: BaseException) -> str | None:
    """The innermost file of a folder of plugins whose code, or an object of whose class, was running; if there is none,
    that of a folder of EXTENDED. None if there is none either.

    An added file comes first because a check of ours may have found what is wrong with its result. The object counts
    because a call that does not fit a method fails outside of its file. So does an added object or module that the
    innermost call had at hand, or whose attribute is missing.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    running = [
        path
        for frame in reversed(frames)
        for path in (frame.f_code.co_filename, _file_of(frame.f_locals.get("self")))
        if path is not None
    ]
    at_hand = [getattr(error, "obj", None), *(frames[-1].f_locals.values() if frames else ())]
    if added := next((path for path in (*running, *map(_file_of, at_hand)) if path and _is_added(path)), None):
        return added
    ours = (Path(path) for path in running if Path(path).parent in [ROOT / folder for folder in EXTENDED])
    return next((path.relative_to(ROOT).as_posix() for path in ours), None)


def _is_added(path: str) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in code_folders())


def _file_of(value: object) -> str | None:
    """The file of a module, or of the class of an object."""
    module = value if inspect.ismodule(value) else inspect.getmodule(type(value))
    return getattr(module, "__file__", None)
