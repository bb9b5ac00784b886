"""trackio as a mirror of the run folder: a database on this machine under `<runs>/trackio/`, or in TRACKIO_DIR.

`TRACKIO_DIR=runs/trackio trackio show` shows all runs. Nothing is sent anywhere while a run trains, even if
TRACKIO_SPACE_ID or TRACKIO_SERVER_URL is set: a run that is continued replaces its earlier lines, and steps on a server
cannot be taken back. `trackio sync` uploads.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from types import ModuleType
from typing import Any

from experiments.record.folder import LOCATION_KEYS, TRACKIO, RunFolder
from experiments.record.result import Result

REMOTE = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")


class TrackioMirror:
    """Every line of metrics.jsonl, with the settings as the configuration.

    The result is added at the end, as `result/...`.
    """

    name = "trackio"

    def __init__(self, folder: RunFolder, settings: dict[str, Any]) -> None:
        """Begin the run again, and log the lines that metrics.jsonl has."""
        # the library reads it when it is imported
        os.environ.setdefault("TRACKIO_DIR", str(folder.path.parent / TRACKIO))
        import trackio

        self._trackio, logger = trackio, settings["logger"]
        with _local_and_silent():
            _remove(trackio, logger["project"], folder.name)
            self._run = trackio.init(
                project=logger["project"],
                name=folder.name,
                group=logger["group"],
                config={key: value for key, value in settings.items() if key not in LOCATION_KEYS},
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
        try:
            for metrics in folder.metrics.read():
                self.log(metrics["step"], metrics)
        except Exception:
            self.give_up()
            raise

    def log(self, step: int, metrics: dict[str, Any]) -> None:
        """Pass one step to the thread that writes."""
        self._run.log({key: value for key, value in metrics.items() if key != "step"}, step=step)

    def finish(self, result: Result) -> None:
        """Log the result at the last step, and wait until everything is written."""
        tree = {f"result/{key}": value for key, value in result.to_dict().items() if key != "config"}
        self._run.log(tree, step=result.steps)
        self.give_up()

    def give_up(self) -> None:
        """End the run without further data."""
        with _local_and_silent():
            self._trackio.finish()


def _remove(trackio: ModuleType, project: str, name: str) -> None:
    api = trackio.Api()
    try:
        runs = api.runs(project)
    except ValueError:  # no such project yet
        return
    for run in runs:
        if run.name == name:
            run.delete()


@contextmanager
def _local_and_silent() -> Iterator[None]:
    removed = {name: os.environ.pop(name) for name in REMOTE if name in os.environ}
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        os.environ.update(removed)
