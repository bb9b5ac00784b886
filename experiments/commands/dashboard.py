"""`attn dashboard`: write the comparison page, once or repeatedly while runs train, or save a workspace in W&B."""

from __future__ import annotations

import os
import time
import webbrowser
from contextlib import suppress
from itertools import count
from pathlib import Path

from experiments.dashboard.page import is_page, page, page_data
from experiments.display.lines import warn
from experiments.failures.exit_code import ExitCode
from experiments.failures.failure import Mistake
from experiments.failures.wording import plural
from experiments.files.disk import written_at
from experiments.files.durable import or_elsewhere, write
from experiments.processes.interruption import Interrupted
from experiments.record.folder import METRICS, PAGE, RENDERED, RESULT, SWEEPS
from experiments.settings.search import JOURNAL

WATCH_SECONDS = 5
WATCH_SHARE = 0.1  # of a core, at most, for the sake of the runs that train
FULL_SCAN_EVERY = 12  # as often: every minute


def dashboard(
    selection: list[str], runs: Path, *, out: Path | None = None, watch: bool = False, show: bool = False,
    wandb: bool = False, project: str | None = None,
) -> None:  # fmt: skip
    """Write the page, or save the workspace, which alone reads `project`. Raises Mistake, Failure."""
    if not wandb:
        write_dashboard(selection, runs, out, watch, show)
        return
    from experiments.dashboard.workspace import save_workspace

    save_workspace(selection, runs, project)


@or_elsewhere("choose another --out")
def write_dashboard(selection: list[str], runs: Path, out: Path | None, watch: bool, show: bool) -> None:
    """Write the page of the named or matching runs to `out` (by default in `runs`) and print its path.

    watch: until Ctrl-C, rewrite the page when a run has news; the page reloads itself meanwhile. show: open it in the
    browser. Raises Mistake, Failure.
    """
    if out is not None:
        _check_replaceable(out)
    out = out or runs / PAGE
    said: set[str] = set()

    def say_once(line: str) -> None:
        if line not in said:
            said.add(line)
            warn(line)

    # before the page is computed, which misses a change meanwhile
    last_change = newest(runs)
    data = page_data(selection, runs, WATCH_SECONDS if watch else 0, say_once)
    write(out, page(data))
    run_count = len(data["runs"])
    line = f"{out}: {run_count:,} {plural('run', run_count)}"
    print(line + (", rewritten while they train; Ctrl-C ends it" if watch else ""), flush=True)
    if show and not webbrowser.open(out.absolute().as_uri()):
        warn("--open: this machine has no browser; open the file in one")
    if not watch:
        return
    try:
        spent = 0.0
        for waited in count(1):
            time.sleep(max(WATCH_SECONDS, spent / WATCH_SHARE))
            began = time.process_time()
            # a run that was killed leaves its files as they are: look at all of them now and then
            if (last_change != (last_change := newest(runs))) or waited % FULL_SCAN_EVERY == 0:
                news = page_data(selection, runs, WATCH_SECONDS, say_once)
                if news != data:
                    data = news
                    write(out, page(data))
            spent = time.process_time() - began
    except Interrupted as end:
        if end.exit_code is not ExitCode.INTERRUPTED:
            raise
    finally:
        # the page that is open loads this one, and stops
        write(out, page(data | {"refresh": 0}))


def _check_replaceable(out: Path) -> None:
    """Raises Mistake for a place where no page can stand, and for a file that is not a page of this command."""
    if out.is_dir() or not out.parent.is_dir():
        raise Mistake(f"--out {out}: must be a file in an existing folder")
    if out.suffix != ".html":
        raise Mistake(f"--out {out}: must end in .html")
    if out.exists() and not is_page(out):
        raise Mistake(f"--out {out}: exists, and is not a page of attn dashboard", "name another file, or remove it")


def newest(runs: Path) -> tuple[int, int]:
    """The number of files of runs and the time of the newest one, which are cheap to get even for ten thousand runs."""
    times = []
    # what is removed at this moment has no time
    for folder in os.scandir(runs) if runs.is_dir() else ():
        for name in (METRICS, RESULT, "heads"):
            with suppress(OSError):
                times.append(os.stat(f"{folder.path}/{name}").st_mtime_ns)  # noqa: PTH116 - half the time of a Path
    others = [*(runs / RENDERED).glob("*.json"), *(runs / SWEEPS).glob(f"*/{JOURNAL}")]
    times += map(written_at, others)
    return len(times), max(times, default=0)
