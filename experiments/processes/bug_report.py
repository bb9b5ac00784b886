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
    """The innermost file in a folder of EXTENDED whose code, or an object of whose class, was running; None if there is
    none.

    The object counts because a call that does not fit a method fails outside of its file. Where no method called, an
    object of the user's own folder counts that the innermost call had at hand, or whose attribute is missing.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        for path in (frame.f_code.co_filename, _class_file(frame.f_locals.get("self"))):
            if path is None:
                continue
            if Path(path).parent in (ROOT / folder for folder in EXTENDED):
                return Path(path).relative_to(ROOT).as_posix()
            if _is_added(path):
                return path
    at_hand = [getattr(error, "obj", None), *(frames[-1].f_locals.values() if frames else ())]
    return next((path for path in map(_class_file, at_hand) if path is not None and _is_added(path)), None)


def _is_added(path: str) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in code_folders())


def _class_file(value: object) -> str | None:
    module = inspect.getmodule(type(value))
    return getattr(module, "__file__", None)
