"""Data sets of the Hugging Face hub, through `datasets`, which only this file imports.

By itself, the library retries an unreachable hub for 23 s and prints a line each time. Here the hub is asked one
question with a time limit. If it does not answer, the library works offline, so data in its cache still loads.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from experiments.data.cache import Cache
from experiments.data.errors import OTHER_DATA, DataError, why_not_both
from experiments.failures.wording import closest, first_line
from experiments.files.digest import digest
from experiments.files.disk import read_text

PATIENCE = 3.0  # seconds for the hub to answer
ROWS_AT_ONCE = 256  # rows in memory at once
COMMIT = re.compile("[0-9a-f]{40}")
SLICE = re.compile(r"(?P<split>[\w.-]+)(\[(?P<from>(?P<start>-?\d+)?%?):(?P<to>(?P<stop>-?\d+)?%?)\])?(\(\w+\))?")


class HubKeys(NamedTuple):
    """The settings that name a data set of the hub, for messages."""

    path: str = "data.path"
    name: str = "data.name"
    revision: str = "data.revision"


class HubPlace(NamedTuple):
    """A data set of the hub, and how it is read."""

    path: str  # owner/name on the hub, or a folder with the downloaded data set
    name: str | None  # configuration of the data set
    revision: str  # branch, tag or commit
    streaming: bool = False  # read over the network as it is used, without downloading the set; whole splits only
    instead: str = OTHER_DATA  # what to use if the set is not available
    keys: HubKeys = HubKeys()

    @property
    def of_path(self) -> str:
        """The setting of its path, as a user writes it."""
        return f"{self.keys.path}={self.path}"

    @property
    def of_name(self) -> str:
        """The settings of its path and of its configuration, as a user writes them."""
        return f"{self.of_path} {self.keys.name}={self.name or 'null'}"

    @property
    def near_folder(self) -> str:
        """` (did you mean the folder x?)` if the path is almost the name of a folder; else empty."""
        path, folders = Path(self.path), []
        # one that cannot be listed has no names to suggest
        with contextlib.suppress(OSError):
            folders = [each.name for each in path.parent.iterdir() if each.is_dir()]
        close = closest(path.name, folders)
        return f" (did you mean the folder {path.parent / close}?)" if close else ""


class _Slice(NamedTuple):
    """A part of a split expression, such as train[:95%]."""

    split: str
    start: int  # negative, like `stop`: rows counted from the end
    stop: float  # infinity: to the end
    unit: str  # "%", or "" for rows

    @property
    def is_whole(self) -> bool:
        return self.start == 0 and self.stop == math.inf


class UnreachableError(Exception):
    """The hub did not answer."""


def source(data: HubPlace, cache: Cache) -> dict[str, str]:
    """The identity of `data`: {"commit": ...} for a set of the hub, {"sha256": ...} for a folder to which it was
    downloaded.

    A branch is resolved once and noted in the cache. A continued run therefore reads the same text even if the branch
    has moved, and needs no network if its text is packed. A newer commit is used if the settings name it. Raises
    DataError.
    """
    folder = Path(data.path)
    if folder.is_file():
        raise DataError(f"{data.of_path} is a file; give the folder that it is in, all of which is read")
    if folder.is_dir():
        inside = {path: path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()}
        files = {path: name for path, name in inside.items() if not name.parts[0].startswith(".")}
        return {"sha256": digest([(name.as_posix(), cache.file_digest(path)) for path, name in files.items()])}
    if COMMIT.fullmatch(data.revision):
        return {"commit": data.revision}
    key = ["hub", data.path, data.revision]
    if commit := cache.recall(key):
        return {"commit": commit}
    try:
        return {"commit": cache.remember(key, _ask(data, data.revision))}
    except UnreachableError as error:
        needed = f"{data.keys.revision}={data.revision}"
        return {"commit": _downloaded(data, needed, _downloaded_revision(data), error)}


def check_splits(splits: Mapping[str, str]) -> None:
    """Raises DataError for two splits that are certain to share rows. `splits`: their expressions by their settings."""
    for (key, expression), (other, evaluated) in itertools.combinations(splits.items(), 2):
        if share_rows(expression, evaluated):
            split = next(_slices(expression)).split
            # as the shell and Hydra take brackets
            example = f"""{key}="'{split}[:95%]'" {other}="'{split}[95%:]'\""""
            raise DataError(
                f"{key}={expression} and {other}={evaluated} have common rows; {why_not_both(key, other)}",
                f"write slices without a common row, such as {example}",
            )


def share_rows(first: str, second: str) -> bool:
    """Whether two split expressions certainly have a common row."""
    return any(_share_rows(*pair) for pair in itertools.product(_slices(first), _slices(second)))


def _slices(expression: str) -> Iterator[_Slice]:
    """The parts of a split expression. One that cannot be read is left to the library."""
    for part in expression.split("+"):
        if match := SLICE.fullmatch(part.strip()):
            start = int(match["start"] or 0)
            stop = math.inf if match["stop"] is None else int(match["stop"])
            unit = "%" if "%" in f"{match['from']}{match['to']}" else ""
            if unit:
                start += 100 * (start < 0)
                stop = math.inf if stop == 100 else stop + 100 * (stop < 0)
            yield _Slice(match["split"], start, stop, unit)


def _share_rows(first: _Slice, second: _Slice) -> bool:
    """Whether two slices certainly have a common row. How many rows there are is not known."""
    if first.split != second.split:
        return False
    starts, stops = (first.start, second.start), (first.stop, second.stop)
    if first.is_whole or second.is_whole or not any(starts) or min(stops) == math.inf:
        return True
    return first.unit == second.unit and min(starts + stops) >= 0 and max(starts) < min(stops)


def rows(
    data: HubPlace, expression: str, exact: dict[str, str], cache: Cache, check: Callable[[str, list[str]], list[str]]
) -> Iterator[dict[str, Any]]:
    """Rows of a split expression, whole, of the columns that `check(where, names)` picks. Raises DataError."""
    table = _load(data, expression, exact, cache)
    with _quiet(False), _hub_errors_as_data_errors(data, expression):
        columns = check(f"data set {data.path}", table.column_names or list(next(iter(table), {})))
        for batch in table.select_columns(columns).iter(batch_size=ROWS_AT_ONCE):
            yield from (dict(zip(columns, row, strict=True)) for row in zip(*map(batch.get, columns), strict=True))


def _load(data: HubPlace, expression: str, exact: dict[str, str], cache: Cache) -> Any:
    import datasets

    commit = exact.get("commit")
    offline = commit is not None and not _reaches(data, commit)
    # a folder is cached under its last name alone, where it could later pass for a set of the hub
    own_cache = cache.root / "datasets" / exact["sha256"][:32] if commit is None else None
    with _quiet(offline), _hub_errors_as_data_errors(data, expression):
        return datasets.load_dataset(
            data.path,
            data.name,
            revision=commit,
            split=expression,
            streaming=data.streaming and not offline,
            cache_dir=own_cache and str(own_cache),
        )


def _reaches(data: HubPlace, commit: str) -> bool:
    """Whether the hub has the commit; False if the hub cannot be reached and the commit is in the library's cache."""
    try:
        return bool(_ask(data, commit))
    except UnreachableError as error:
        _downloaded(data, f"commit {commit}", commit, error)
        return False


def _ask(data: HubPlace, revision: str) -> str:
    """The commit of a revision, from the hub; in a thread, because an unreachable name server can block for long."""
    import huggingface_hub

    answer: list[str | Exception] = []

    def ask() -> None:
        try:
            info = huggingface_hub.HfApi().dataset_info(data.path, revision=revision, timeout=PATIENCE)
            answer.append(str(info.sha))
        except Exception as error:
            answer.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PATIENCE + 1)
    if not answer:
        raise UnreachableError(f"no answer in {PATIENCE:.0f} s")
    if isinstance(answer[0], str):
        return answer[0]
    _refuse(data, revision, answer[0])
    raise UnreachableError(first_line(answer[0])) from answer[0]


def _refuse(data: HubPlace, revision: str, error: Exception) -> None:
    """Raise the hub's answer as an error; return if the hub did not answer."""
    from huggingface_hub import errors

    if isinstance(error, errors.RevisionNotFoundError):
        raise DataError(f"{data.keys.revision}={revision}: {data.of_path} has no such branch, tag or commit") from error
    if isinstance(error, errors.GatedRepoError):
        raise DataError(
            f"{data.of_path}: the data set requires an agreement on the hub; accept it and log in with `hf auth login`"
        ) from error
    if isinstance(error, errors.RepositoryNotFoundError):
        raise DataError(
            f"{data.of_path}{data.near_folder}: the hub has no such data set, or hides it from you; {data.instead}"
        ) from error
    if isinstance(error, errors.HFValidationError):
        raise DataError(
            f"{data.of_path}{data.near_folder} is neither a folder nor owner/name of the hub: {first_line(error)}"
        ) from error


def _downloaded(data: HubPlace, needed: str, commit: str | None, unreachable: UnreachableError) -> str:
    """The commit of the set from an earlier download, which the library reads without asking for a revision.

    Raises DataError, which says what is `needed`, unless it is `commit`.
    """
    import datasets

    try:
        with _quiet(offline=True):
            builder = datasets.load_dataset_builder(data.path, data.name)
    except Exception as error:
        raise DataError(
            f"{data.of_name}{data.near_folder}: the Hugging Face hub cannot be reached "
            f"({unreachable}), and the set has not been downloaded before; {data.instead}"
        ) from error
    downloaded = Path(builder.cache_dir).name
    if downloaded != commit:
        raise DataError(
            f"{data.of_path}: {needed} is needed, and the hub cannot be reached ({unreachable}); "
            f"the downloaded one is {data.keys.revision}={downloaded}; {data.instead}"
        ) from unreachable
    return downloaded


def _downloaded_revision(data: HubPlace) -> str | None:
    """The commit that the revision had when a file of it was downloaded, as `huggingface_hub` notes; None without."""
    from huggingface_hub import constants, file_download

    folder = Path(constants.HF_HUB_CACHE, file_download.repo_folder_name(repo_id=data.path, repo_type="dataset"))
    try:
        return read_text(folder / "refs" / data.revision)
    except OSError:
        return None


@contextlib.contextmanager
def _quiet(offline: bool) -> Iterator[None]:
    """The library without its bars and warnings; with `offline`, also without the network."""
    import datasets

    verbosity, bars = datasets.logging.get_verbosity(), not datasets.utils.are_progress_bars_disabled()
    was_offline = datasets.config.HF_HUB_OFFLINE
    datasets.logging.set_verbosity_error()
    datasets.disable_progress_bars()
    datasets.config.HF_HUB_OFFLINE = offline or was_offline
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = was_offline
        datasets.logging.set_verbosity(verbosity)
        if bars:
            datasets.enable_progress_bars()


@contextlib.contextmanager
def _hub_errors_as_data_errors(data: HubPlace, request: str) -> Iterator[None]:
    """Turn the library's errors into a DataError of one line that names the requested data."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        # the library's own error says only that the set could not be made
        reason = first_line(error.__cause__ or error)
        if data.streaming and "[" in request:
            reason = f"a streamed set has whole splits only; data.streaming=false reads {request}"
        raise DataError(f"{data.of_name}, {request}: {reason}") from error
