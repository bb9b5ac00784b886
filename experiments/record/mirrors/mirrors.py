"""The mirrors of a run, none of which can disturb it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from experiments.failures.missing_extra import check_installed
from experiments.failures.wording import first_line
from experiments.record.folder import RunFolder
from experiments.record.mirrors.mirror import Mirror
from experiments.record.mirrors.tensorboard_mirror import TensorBoardMirror
from experiments.record.mirrors.trackio_mirror import TrackioMirror
from experiments.record.mirrors.wandb_mirror import WandbMirror
from experiments.record.mirrors.wandb_server import mode_of
from experiments.record.result import Result
from experiments.settings.logger import Logger


def check_loggers(logger: Logger) -> None:
    """Raises Mistake, with the command to install it, if the library of a logger is missing. Imports none."""
    if logger.tensorboard:
        check_installed("tensorboard", "logger.tensorboard=true", "tensorboard")
    if logger.trackio:
        check_installed("trackio", "logger.trackio=true", "trackio")


class Mirrors:
    """The mirrors that a run's settings name. No method raises or prints.

    The first failure of a mirror ends this mirror, but not the run and not the other mirrors. The run's log.txt notes
    it.

    folder, settings: those of a `Mirror`.
    """

    def __init__(self, folder: RunFolder, settings: dict[str, Any]) -> None:
        self.started = False
        self._folder, self._settings = folder, settings
        self._mirrors: list[Mirror] = []

    def start(self) -> None:
        """Begin to mirror the folder, which may take seconds, as libraries are imported."""
        self.started = True
        for kind in _named(self._settings["logger"]):
            with self._failing_alone(kind.name):
                self._mirrors.append(kind(self._folder, self._settings))

    def start_again(self) -> None:
        """Give up what was mirrored, because the run has gone back to an earlier step; `start` mirrors it anew."""
        for mirror in self._mirrors:
            with suppress(Exception):
                mirror.give_up()
        self._mirrors, self.started = [], False

    def log(self, step: int, metrics: dict[str, Any]) -> None:
        """Mirror the metrics of one step."""
        for mirror in [*self._mirrors]:
            with self._failing_alone(mirror.name, mirror):
                mirror.log(step, metrics)

    def finish(self, result: Result) -> None:
        """Mirror the result and end."""
        if not self.started:
            self.start()
        for mirror in [*self._mirrors]:
            with self._failing_alone(mirror.name, mirror):
                mirror.finish(result)
        self._mirrors = []

    @contextmanager
    def _failing_alone(self, name: str, mirror: Mirror | None = None) -> Iterator[None]:
        """A block whose failure gives up the mirror, if it had begun, and is noted in the run's log."""
        try:
            yield
        except Exception as error:
            reason = f"{type(error).__name__}: {first_line(error)}"
            self._folder.log(f"{name} failed and is switched off; the run is not affected: {reason}")
            if mirror is not None:
                self._mirrors.remove(mirror)
                with suppress(Exception):
                    mirror.give_up()


def _named(logger: dict[str, Any]) -> Iterator[type[Mirror]]:
    if mode_of(logger["wandb"]) != "off":
        yield WandbMirror
    if logger["tensorboard"]:
        yield TensorBoardMirror
    if logger["trackio"]:
        yield TrackioMirror
