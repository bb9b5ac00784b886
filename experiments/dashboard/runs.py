"""The runs on the page: results of those that have ended, and the present numbers of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from experiments.dashboard.curves import curve_of
from experiments.display.lines import warn
from experiments.failures.failure import Mistake
from experiments.measure.quality import perplexity
from experiments.record.folder import CONFIG, RunFolder, parse_config
from experiments.record.result import UNKNOWN, Fields
from experiments.results.checked import first_lines, marked_result
from experiments.results.columns import by_task
from experiments.results.find import NO_RUNS, where
from experiments.results.index import Index
from experiments.results.selection import matching, named_folders, settings_in, without_match


def chosen_runs(selection: list[str], runs: Path, index: Index, say: Callable[[str], None] = warn) -> list[Fields]:
    """A result for each run that `selection` names or matches, with its name under `run` and its folder under `folder`.

    A page is about pretraining or about one task, so fine-tuned runs are left out beside pretrained ones. A run that is
    still training, or was interrupted, has its present numbers. What cannot be read is told to `say`. Raises Mistake if
    no run is left, or if there are several tasks.
    """
    results = list(_readable(named_folders(selection, runs) or index.folders(), index, say))
    tasks = by_task(matching(settings_in(selection, runs), results))
    if not tasks:
        hint = "" if results else NO_RUNS
        raise Mistake(f"no run {where(runs)}{without_match(selection, results)}", hint)
    if len(tasks) > 1 and None not in tasks:
        raise Mistake(
            f"these runs belong to several tasks: {', '.join(sorted(map(str, tasks)))}", "choose one with task=NAME"
        )
    return tasks.get(None) or next(iter(tasks.values()))


def _readable(folders: list[Path], index: Index, say: Callable[[str], None]) -> Iterator[Fields]:
    with first_lines(say) as say_first:
        for folder in folders:
            try:
                result = marked_result(folder, index, say_first) or _unfinished(folder, index)
            except (OSError, ValueError) as error:
                say_first(f"left out: {folder}: {' '.join(str(error).split())}")
                continue
            if result is not None:
                yield result


def _unfinished(folder: Path, index: Index) -> Fields | None:
    """The present numbers of a run; None if the folder is not that of a run. Raises ValueError, OSError."""
    config = index.read(folder / CONFIG, parse_config)
    if config is None:
        return None
    curve = curve_of(folder, index)
    losses = curve["validation"].get("loss")
    loss = losses[-1] if losses else None
    return UNKNOWN | {
        "run": folder.name,
        "folder": folder,
        "config": config,
        "seed": config.get("seed"),
        "status": "running" if RunFolder(folder).holder() else "unfinished",
        "validation_loss": loss,
        "perplexity": None if loss is None or "task" in config else perplexity(loss),
        **curve["last"],
    }
