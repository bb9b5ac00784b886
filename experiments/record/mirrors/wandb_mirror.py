"""W&B as a mirror of the run folder: offline unless the user is logged in, silent, and never fatal to a run.

W&B's own folders lie under `<runs>/wandb/`, so `wandb leet` shows all runs. The run folder remains the reference. A run
that is interrupted and continued is mirrored again from its metrics.jsonl, and always has one .wandb file.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from experiments.files.digest import digest
from experiments.files.disk import read_bytes
from experiments.files.durable import to_json, write
from experiments.files.plain import from_json
from experiments.record.errors import RunFolderError, or_other_runs
from experiments.record.folder import FINAL, LOCATION_KEYS, WANDB, RunFolder, configuration_digest
from experiments.record.mirrors.wandb_server import import_library, in_a_line, mode_of, quiet_settings, why_offline
from experiments.record.result import Result

# statistics of each curve in a run's table in W&B, besides its last value
LOWEST = ("loss", "perplexity", "validation_loss", "validation_perplexity", "bits_per_byte")
HIGHEST = ("tokens_per_second", "peak_memory_bytes")


class WandbMirror:
    """The mirror of one run in W&B. After a failure, `attn sync` can still upload everything from the run folder."""

    name = "W&B"

    def __init__(self, folder: RunFolder, settings: dict[str, Any]) -> None:
        """Begin the run, or continue it if it is online."""
        self._folder, self._logger = folder, settings["logger"]
        self._wandb = import_library()
        try:
            self._run, self._online = _begun(self._wandb, folder, settings)
            replay(self._run, folder.metrics.read())
            _remove_others(folder, keep=Path(self._run.dir).parent)
        except Exception:
            self.give_up()
            raise

    def log(self, step: int, metrics: dict[str, Any]) -> None:
        """Mirror the metrics of one step; a step that the server already has is left out."""
        if step >= self._run.starting_step:
            _log(self._run, step, metrics)

    def finish(self, result: Result) -> None:
        """Write the summary and end the mirror."""
        finish(self._run, result)
        if self._online:
            remember(self._folder, uploaded=uploadable(self._folder.metrics.read(), self._logger, result))

    def give_up(self) -> None:
        """End W&B's service, because a broken one prints its traceback when the process ends."""
        self._wandb.teardown()


def _begun(wandb: ModuleType, folder: RunFolder, settings: dict[str, Any]) -> tuple[Any, bool]:
    """The run in W&B, and whether it is online."""
    root = folder.path.parent
    obstacle = "it was asked for" if mode_of(settings["logger"]["wandb"]) == "offline" else why_offline(wandb)
    if obstacle is None:
        try:
            return begin(wandb, folder, settings, root, online=True), True
        except Exception as error:
            obstacle = f"the online start failed ({in_a_line(error)})"
            # the failed start occupies the run's id until the service ends
            wandb.teardown()
    folder.log(f"W&B is offline, because {obstacle}")
    return begin(wandb, folder, settings, root, online=False), False


def begin(wandb: ModuleType, folder: RunFolder, settings: dict[str, Any], root: Path, online: bool) -> Any:
    """Begin the run in W&B, or continue the one of its id where `online`. root: the folder of W&B's own files."""
    logger = settings["logger"]
    config = {key: value for key, value in settings.items() if key not in LOCATION_KEYS}
    run = wandb.init(
        project=logger["project"],
        entity=logger["entity"],
        group=logger["group"],
        tags=logger["tags"],
        id=_id(folder),
        name=folder.name,
        dir=str(root),
        config={**config, "digest": configuration_digest(settings), "environment": folder.environment()},
        resume="allow" if online else None,
        settings=quiet_settings(wandb, online),
    )
    run.define_metric("step", hidden=True)
    run.define_metric("*", step_metric="step")
    for names, extreme in ((LOWEST, "min"), (HIGHEST, "max")):
        for name in names:
            run.define_metric(name, step_metric="step", summary=f"{extreme},last")
    return run


def _id(folder: RunFolder) -> str:
    """The run's id in W&B: its name and a digest of its first start, which tells apart runs of a name."""
    facts = folder.environment() or {}
    earlier = facts.pop("earlier", [])
    return f"{folder.name}-{digest([*earlier, facts][0])[:6]}"


def replay(run: Any, lines: Sequence[dict[str, Any]]) -> int:
    """Log the lines of metrics.jsonl that the server lacks; returns their number."""
    # run.step is 0 in a resumed run (wandb 0.31)
    missing = [metrics for metrics in lines if metrics["step"] >= run.starting_step]
    for metrics in missing:
        _log(run, metrics["step"], metrics)
    return len(missing)


def _log(run: Any, step: int, metrics: dict[str, Any]) -> None:
    # committed at once, because an open row would be written after the summary and overwrite it
    run.log({**metrics, "step": step}, step=step, commit=True)


def finish(run: Any, result: Result | None) -> None:
    """Write the summary and end the run in W&B."""
    if result is not None:
        run.summary.update({key: value for key, value in result.to_dict().items() if key != "config"})
    run.finish(exit_code=0 if result is not None and result.status in (*FINAL, "pruned") else 1)


def files_of(folder: RunFolder) -> list[Path]:
    """The .wandb files of the run in W&B's folders beside the run folder."""
    files = folder.path.parent.glob(f"{WANDB}/*/run-{folder.name}-??????.wandb")
    return [file for file in files if not file.parent.is_symlink()]


def _remove_others(folder: RunFolder, keep: Path) -> None:
    for file in files_of(folder):
        if file.parent.resolve() != keep.resolve():
            shutil.rmtree(file.parent)


def uploadable(lines: Sequence[dict[str, Any]], place: dict[str, Any], result: Result | None) -> dict[str, Any]:
    """The data to upload and its destination. While both are unchanged, an upload would change nothing.

    lines: those of metrics.jsonl.
    """
    return {
        "project": place["project"],
        "entity": place["entity"],
        "step": lines[-1]["step"] if lines else None,
        "status": result.status if result else None,
    }


def memory_of(folder: RunFolder) -> dict[str, Any]:
    """`synced.json`: a record of the last upload."""
    path = folder.path / "synced.json"
    if not path.exists():
        return {}
    try:
        memory = from_json(read_bytes(path))
    except (OSError, ValueError):
        memory = None
    if not isinstance(memory, dict):
        raise RunFolderError(f"{path}: damaged; remove this file")
    return memory


@or_other_runs()
def remember(folder: RunFolder, **facts: Any) -> None:
    """Add facts to `synced.json`."""
    write(folder.path / "synced.json", to_json({**memory_of(folder), **facts}, indent=2) + "\n")
