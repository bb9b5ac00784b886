"""A search: the trials of a study, trained side by side like the cells of a sweep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.cells.cell import check_unchanged, folder_of
from experiments.cells.outcome import Outcome, earlier_outcome
from experiments.cells.resources import Workers, pool_for
from experiments.cells.runner import Cell, run_drawn
from experiments.config.compose_many import Composer
from experiments.data.errors import DataError
from experiments.display.lines import say
from experiments.display.rows import show
from experiments.failures.exit_code import ExitCode
from experiments.failures.failure import Failure, Mistake
from experiments.launch.check_cells import check_cell
from experiments.launch.local import fork_server, prepare_corpora
from experiments.launch.output import SweepProgress, print_failed
from experiments.launch.plan import OptunaSearch, labelled_with_sweep
from experiments.record.folder import RunFolder
from experiments.record.result import Result
from experiments.record.result_numbers import value_of
from experiments.search.space import Space
from experiments.search.study import EndedTrial, MedianPruner, Study, Trial, read_ended
from experiments.settings.run import Settings
from experiments.settings.search import Search
from experiments.tasks.choose import task_of

SHOWN = 10  # trials
ANEW = "search in another folder, with runs=FOLDER"


def print_search(planned: OptunaSearch) -> None:
    """Print the space, the number of trials, and how many have ended."""
    search, space, folder = planned.search, planned.space, planned.folder
    console = Console()
    show([{"key": parameter.key, "values": str(parameter)} for parameter in space.parameters], "table", console=console)
    ended = read_ended(folder)
    points = "any number of" if space.points is None else f"{space.points:,}"
    directions = [f"{direction} {name}" for name, direction in search.objectives.items()]
    lines = [
        f"{points} points; {search.trials:,} trials by {search.sampler}",
        "; ".join([*directions, "hopeless trials are pruned" if search.prunes else "no trial is pruned"]),
        f"{folder}: {_counts(ended)}",
    ]
    say(console, "\n".join(lines))


def run_search(planned: OptunaSearch, workers: Workers, per_device: int, console: Console) -> ExitCode:
    """Run the remaining trials, print the findings of the study, and return the exit code. Raises Interrupted, and
    Mistake if an earlier trial had other settings, code or text than it would have now.

    workers: the number of trials that are trained side by side. per_device: the number that share a GPU.
    """
    search, space, folder = planned.search, planned.space, planned.folder
    study, composer = Study(folder, search, space), Composer(planned.command.primary)
    for line in changed_trials(study.ended(), planned, composer):
        say(console, line)
    left = max(0, study.wanted - sum(trial.state != "cut off" for trial in study.ended()))
    cells = planned.cells * left  # the expected number, with these sizes
    pool = pool_for(cells or planned.cells, workers, per_device)
    if left:
        prepare_corpora(planned.cells, to_train=False)
    with SweepProgress(left, console).shown() as progress, fork_server(cells, console) as server:
        trials = _Trials(study, planned, composer, progress)
        try:
            run_drawn(trials.cells(), pool, server, progress.watch, trials.end)
        finally:
            study.release()
    _print_study(study, search, console)
    replaced = f"draws new ones for the {trials.cut_off} that were cut off" if trials.cut_off else "leaves them out"
    print_failed(trials.outcomes, console, f"the same command {replaced}")
    return ExitCode.SWEEP_FAILED if any(outcome.failed for outcome in trials.outcomes) else ExitCode.DONE


class _Trials:
    """The trials of this process.

    Each is drawn when there is room for it, and its outcome is added to the study when it ends.
    """

    def __init__(self, study: Study, planned: OptunaSearch, composer: Composer, progress: SweepProgress) -> None:
        self.outcomes: list[Outcome] = []
        self.cut_off = 0  # of the outcomes
        self._study, self._search, self._space = study, planned.search, planned.space
        self._folder, self._composer, self._progress = planned.folder.absolute(), composer, progress
        self._trials: dict[Path, tuple[Trial, Settings]] = {}  # by run folder

    def cells(self) -> Iterator[Cell | None]:
        """Yield the runs to be trained, and None while there is none yet."""
        while True:
            if (trial := self._study.claim()) is None:
                if not self._study.busy:
                    return
                yield None
                continue
            try:
                settings = settings_of(trial.point, self._space, self._composer)
            except Mistake as mistake:
                self._study.tell(trial, "", None)
                self._add(Outcome(RunFolder(self._folder / f"trial-{trial.number}"), None, str(mistake)))
                continue
            folder = folder_of(settings)
            # another point may be the same run, and a process of a killed search may still be saving
            while folder.path in self._trials or folder.holder() is not None:
                yield None
            self._trials[folder.path] = trial, settings
            if outcome := earlier_outcome(settings):
                self.end(outcome)
                continue
            yield Cell(labelled_with_sweep(settings, self._folder.name), self._pruner(trial))

    def end(self, outcome: Outcome) -> None:
        """Add the outcome of a trial to the study."""
        trial, settings = self._trials.pop(outcome.folder.path)
        values: list[float] | None = None
        cut_off = outcome.failed and _is_cut_off(outcome, settings)
        if result := outcome.finished_result:
            values, missing = _values(result, self._search)
            if missing:
                values, outcome = None, Outcome(outcome.folder, None, f"its result has no {', '.join(missing)}")
        self._study.tell(trial, outcome.folder.name, values, pruned=outcome.pruned, cut_off=cut_off)
        self.cut_off += cut_off
        self._add(outcome)

    def _add(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self._progress.end(outcome)

    def _pruner(self, trial: Trial) -> MedianPruner | None:
        if not self._search.prunes:
            return None
        return MedianPruner(self._folder, trial.number, self._search.prune_after_trials, self._search.prune_after_step)


def settings_of(point: Mapping[str, str], space: Space, composer: Composer) -> Settings:
    """The checked settings of a point. Raises Mistake."""
    settings = composer.compose(space.overrides(point))
    check_cell(settings, runs_here=True)
    return settings


def changed_trials(ended: Iterable[EndedTrial], planned: OptunaSearch, composer: Composer) -> Iterator[str]:
    """Check the trials of a study, on whose values later ones depend; yields a line if the study alone has values.

    Raises Mistake if a trial had other settings, code or text than it would have now.
    """
    search, space, folder = planned.search, planned.space, planned.folder
    alone = []
    for trial in ended:
        if trial.state in ("failed", "cut off"):
            continue
        point = {each.key: each.written(trial.point[each.key]) for each in space.parameters}
        settings = settings_of(point, space, composer)
        run = folder_of(settings)
        anew = f"{folder}: trial {trial.number} cannot be compared with new ones"
        if run.name != trial.run:
            raise Mistake(f"{anew}: its settings have changed since (it was {trial.run})", ANEW)
        try:
            if (result := run.result()) is not None:
                check_unchanged(settings, run, result)
        except Failure as failure:
            raise Mistake(f"{anew}: {failure}", ANEW) from failure
        if result is None or (trial.values and _values(result, search)[0] != [*trial.values]):
            alone.append(trial.number)
    if alone:
        numbers = ", ".join(map(str, alone[:SHOWN])) + (", ..." if len(alone) > SHOWN else "")
        yield f"{folder} has values of trials whose runs were removed or made again: {numbers}"


def _is_cut_off(outcome: Outcome, settings: Settings) -> bool:
    """Whether a run that failed may succeed another time: it neither diverged, nor was refused although its text is
    there.
    """
    if outcome.result is not None and outcome.result.status == "nan":
        return False
    try:
        return not (outcome.refused and task_of(settings).is_ready())
    except DataError:
        return True


def _values(result: Result, search: Search) -> tuple[list[float], list[str]]:
    """The values of the objectives, and the names of the objectives that were not measured."""
    values = {name: value_of(result, name) for name in search.objectives}
    return [value for value in values.values() if value is not None], [
        name for name, value in values.items() if value is None
    ]


def _print_study(study: Study, search: Search, console: Console) -> None:
    """Print the best trials or the Pareto front, the importance of each setting, and the number of trials."""
    findings, names = study.findings(), list(search.objectives)
    done = [trial for trial in findings.ended if trial.values]
    if len(names) == 1:
        sign = 1 if search.minimize else -1
        best = sorted(done, key=lambda trial: sign * trial.values[0])[:SHOWN]
    else:
        best = sorted((trial for trial in done if trial.number in findings.best), key=lambda trial: trial.values)
    title = f"the best of {len(done)} trials" if len(names) == 1 else f"Pareto front of {len(done)} trials"
    rows: list[dict[str, Any]] = [
        {"trial": trial.number, **dict(zip(names, trial.values, strict=True)), **trial.point, "run": trial.run}
        for trial in best
    ]
    if rows:
        show(rows, "table", title, console)
    for name, parts in zip(names, findings.importances, strict=True):
        if parts:
            shares = ", ".join(f"{key} {share:.0%}" for key, share in parts.items())
            say(console, f"importance for {name}: {shares}")
    say(console, _counts(findings.ended))


def _counts(ended: list[EndedTrial]) -> str:
    """The number of trials by outcome."""
    states = [trial.state for trial in ended]
    shown = ("done", "pruned", "failed", "cut off")
    counts = [f"{count} {state}" for state in shown if (count := states.count(state))]
    left_out = "; the failed ones are not tried again" if "failed" in states else ""
    return f"{len(ended)} trials have ended" + (f": {', '.join(counts)}{left_out}" if counts else "")
