"""Searches on the page: the trials of each study, the best value so far, and the importance of each setting."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

from experiments.failures.missing_extra import MissingExtra, check_installed
from experiments.record.folder import SWEEPS
from experiments.results.index import Index
from experiments.settings.search import JOURNAL


def readable_searches(
    runs: Path, run_names: Collection[str], index: Index, leave_out: Callable[[str], None]
) -> Iterator[tuple[str, Any]]:
    """The name and the data of each study with a trial among the shown runs; for a journal that cannot be read, a line
    to `leave_out`.
    """
    for path in sorted((runs / SWEEPS).glob(f"*/{JOURNAL}")):
        try:
            search = index.read(path, parse_search)
        except (OSError, ValueError, MissingExtra) as error:
            leave_out(f"{path}: {'; '.join(map(str.strip, str(error).splitlines()))}.")
            continue
        if search and not {trial["run"] for trial in search["trials"]}.isdisjoint(run_names):
            yield path.parent.name, search


def parse_search(journal: bytes) -> dict[str, Any] | None:
    """The findings of a study in the form of the page; None if no trial has ended.

    `best_so_far`: for each objective, the best value after each trial that is done; `importances`: for each objective,
    the share of each key, the largest first. Raises ValueError, and MissingExtra without Optuna.
    """
    check_installed("optuna", "the panel of a search", "optuna")
    # these imports take seconds, which only pages with searches need
    from experiments.search.study import read_findings

    findings = read_findings(journal)
    if findings is None or not findings.ended:
        return None
    done = [trial for trial in findings.ended if trial.values]
    best_so_far = [
        list(accumulate((trial.values[place] for trial in done), min if direction == "minimize" else max))
        for place, direction in enumerate(findings.objectives.values())
    ]
    return {
        "objectives": [{"name": name, "direction": direction} for name, direction in findings.objectives.items()],
        "trials": [
            {
                "number": trial.number,
                "run": trial.run,
                "state": trial.state,
                "values": trial.values,
                "point": trial.point,
            }
            for trial in findings.ended
        ],
        "best": findings.best,
        "best_so_far": best_so_far,
        "importances": [list(parts.items()) for parts in findings.importances],
    }
