"""`attn dashboard`: write the comparison page, once or again and again while runs go on."""

from __future__ import annotations

import time
import webbrowser
from pathlib import Path

from experiments.dashboard.page import page, page_data
from experiments.record.durable import write
from experiments.settings.exit_code import ExitCode
from experiments.settings.mistake import Mistake
from experiments.training.interruption import Interrupted

WATCH_SECONDS = 5


def write_dashboard(selection: list[str], runs: Path, out: Path | None, watch: bool, show: bool) -> None:
    """Write the page of the named or matching runs to `out` (in `runs` by default) and print its path.

    watch: until Ctrl-C, rewrite it when a run has news; the page loads itself again meanwhile. show: open it in the
    browser. Raises Mistake, RunFolderError.
    """
    if out is not None and (out.is_dir() or not out.parent.is_dir()):
        raise Mistake(f"--out {out}: must be a file in a folder that there is")
    out = out or runs / "dashboard.html"
    data = page_data(selection, runs, WATCH_SECONDS if watch else 0)
    write(out, page(data))
    count = len(data["rows"])
    line = f"{out}: {count:,} run{'s' if count != 1 else ''}"
    print(line + (", rewritten while they go on: Ctrl-C ends it" if watch else ""), flush=True)
    if show:
        webbrowser.open(out.absolute().as_uri())
    if not watch:
        return
    try:
        while True:
            time.sleep(WATCH_SECONDS)
            news = page_data(selection, runs, WATCH_SECONDS)
            if news != data:
                data = news
                write(out, page(data))
    except Interrupted as end:
        if end.exit_code is not ExitCode.INTERRUPTED:
            raise
    finally:
        # the page that is open loads this one, and stops
        write(out, page(data | {"refresh": 0}))
