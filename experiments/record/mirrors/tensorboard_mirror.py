"""TensorBoard as a mirror of the run folder: `<runs>/tensorboard/<name>/`, for `tensorboard --logdir runs/tensorboard`.

If a run is interrupted and continued, its events are written again from metrics.jsonl, so steps that were not yet
written appear too.
"""

from __future__ import annotations

import time
from typing import Any

from experiments.files.durable import to_json
from experiments.record.folder import TENSORBOARD, RunFolder
from experiments.record.result import Result

FLUSH_SECONDS = 10


class TensorBoardMirror:
    """Every metric as a scalar over steps, and the settings as text.

    The result is added at the end, as `result/...` and as text.
    """

    name = "TensorBoard"

    def __init__(self, folder: RunFolder, settings: dict[str, Any]) -> None:
        """Write the lines of metrics.jsonl to a new event file, which replaces those of earlier starts."""
        from torch.utils.tensorboard import SummaryWriter

        place = folder.path.parent / TENSORBOARD / folder.name
        for earlier in place.glob("events.out.tfevents.*"):
            earlier.unlink()
        lines = folder.metrics.read()
        self._began = time.time() - (lines[-1].get("wall_seconds", 0.0) if lines else 0.0)
        # purge_step makes an open TensorBoard drop the data of the removed files
        self._writer = SummaryWriter(str(place), purge_step=0, flush_secs=FLUSH_SECONDS)
        try:
            self._text("settings", {key: value for key, value in settings.items() if key != "logger"})
            for metrics in lines:
                self.log(metrics["step"], metrics)
        except Exception:
            self.give_up()
            raise

    def log(self, step: int, metrics: dict[str, Any]) -> None:
        """Add the numbers of one step, with the time at which the run recorded them."""
        walltime = self._began + metrics["wall_seconds"] if "wall_seconds" in metrics else None
        for key, value in metrics.items():
            if key != "step" and _is_number(value):
                self._writer.add_scalar(key, value, step, walltime)

    def finish(self, result: Result) -> None:
        """Add the result and close the file."""
        tree = {key: value for key, value in result.to_dict().items() if key != "config"}
        for key, value in tree.items():
            if _is_number(value):
                self._writer.add_scalar(f"result/{key}", value, result.steps)
        self._text("result", tree)
        self._writer.close()

    def give_up(self) -> None:
        """Close the file without further data."""
        self._writer.close()

    def _text(self, tag: str, tree: dict[str, Any]) -> None:
        # four spaces make it code in Markdown
        self._writer.add_text(tag, "    " + to_json(tree, indent=2).replace("\n", "\n    "))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
