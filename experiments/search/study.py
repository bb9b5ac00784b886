"""The study of a search, in Optuna's journal. Processes of several machines share it, and any of them may be killed.

The values that a trial draws are a function of the seed, the trial's number, and the trials that ended before it. A
trial belongs to the process that holds its lock. A trial that nobody holds was interrupted, and goes to the next
process that asks. No point is tried twice, unless its trial was cut off: a trial that draws an earlier point is closed,
and the next one is drawn at random.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from experiments.failures.wording import first_line
from experiments.files.digest import digest
from experiments.files.disk import lock_file, read_bytes, take_lock
from experiments.files.durable import folder_for
from experiments.record.errors import RunFolderError, disk_errors_as_failures, or_other_runs
from experiments.record.lock import Lock
from experiments.search.space import Choice, NumberRange, Space
from experiments.settings.search import JOURNAL, Direction, Search

if TYPE_CHECKING:
    import optuna

NAME = "search"  # of the study in its journal
RUN = "run"  # attribute of a trial: the name of its run folder
CUT_OFF = "cut_off"  # attribute of a failed trial: whether its settings may succeed another time
OTHER_LINES = (LookupError, TypeError, AttributeError)  # what Optuna raises for lines that are no journal's


class Trial(NamedTuple):
    """A point that this process is to try."""

    number: int
    point: dict[str, str]  # the value of each key, as in an override


@dataclass(frozen=True)
class EndedTrial:
    """A trial that has ended, with its outcome."""

    number: int
    point: dict[str, Any]  # the value of each key
    values: tuple[float, ...]  # of the objectives; empty where it is not done
    state: str  # done | pruned | failed | cut off
    run: str  # name of its folder; empty where it has none


@dataclass(frozen=True)
class Findings:
    """The findings of the trials of a study."""

    objectives: dict[str, Direction]
    ended: list[EndedTrial]
    best: list[int]  # numbers of the trials that no other beats in one objective without being worse in another
    importances: list[dict[str, float]]  # for each objective, the shares of the keys, the largest first


class Study:
    """The trials of one search, as this process sees them. Methods raise RunFolderError for errors of the disk."""

    def __init__(self, folder: Path, search: Search, space: Space) -> None:
        with or_other_runs():
            folder_for(folder / "trials")
        self._folder, self._search, self._space = folder, search, space
        self._claimed: dict[int, Lock] = {}
        self.wanted = min(search.trials, space.points or search.trials)  # trials, of all processes
        self._cut_off = 0  # trials of this process that the same command replaces later
        self._journal = _Journal(folder, list(search.objectives.values()))
        self._study = self._journal.study
        with disk_errors_as_failures(folder), _quiet():
            self._study.set_metric_names(list(search.objectives))

    @property
    def busy(self) -> bool:
        """Whether this process has trials whose end it has not recorded."""
        return bool(self._claimed)

    def claim(self) -> Trial | None:
        """The next trial for this process: an interrupted one, else a new one; None if all have been drawn."""
        import optuna

        with self._alone():
            for frozen in self._study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
                if frozen.number not in self._claimed and (trial := self._take(frozen.number)):
                    return trial
            while self._left() > 0:
                if trial := self._take(self._study.ask().number):
                    return trial
        return None

    def tell(
        self, trial: Trial, run: str, values: list[float] | None, *, pruned: bool = False, cut_off: bool = False
    ) -> None:
        """End a trial with the values of the objectives, as pruned, or, without both, as failed.

        run: its folder's name. cut_off: whether a failed trial may succeed another time, such as one that was killed.
        """
        from optuna.trial import TrialState

        state = TrialState.PRUNED if pruned else TrialState.FAIL if values is None else TrialState.COMPLETE
        with disk_errors_as_failures(self._folder):
            for name, value in ((RUN, run), (CUT_OFF, cut_off)):
                self._journal.trial(trial.number).set_user_attr(name, value)
            self._study.tell(trial.number, values if state is TrialState.COMPLETE else None, state)
        self._cut_off += cut_off
        self._claimed.pop(trial.number).release()

    def release(self) -> None:
        """Release the trials whose end was not recorded; the next command continues them."""
        while self._claimed:
            self._claimed.popitem()[1].release()

    def ended(self) -> list[EndedTrial]:
        """The trials that have ended, in order."""
        return ended_trials(self._study)

    def findings(self) -> Findings:
        """The findings of the trials of all processes so far."""
        return _findings(self._study)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with disk_errors_as_failures(self._folder), lock_file(self._folder / "lock") as descriptor:
            take_lock(descriptor, wait=True)
            yield

    def _left(self) -> int:
        """The number of trials that are still to be drawn."""
        return self.wanted - self._cut_off - sum(map(_is_tried, self._study.get_trials(deepcopy=False)))

    def _take(self, number: int) -> Trial | None:
        """The trial, if no other process has it and no other trial has its point."""
        from optuna.trial import TrialState

        lock = Lock(self._folder / "trials" / str(number))
        if lock.holder() is not None:
            return None
        at_random, point = self._follows_repetition(number), {}
        with _quiet():
            self._study.sampler = _sampler(self._search, at_random, number)
            trial = self._journal.trial(number)
            for each in self._space.parameters:
                if each.key not in trial.relative_params:
                    # not drawn together with others: a value that a killed process has drawn must not shift the next
                    self._study.sampler = _sampler(self._search, at_random, number, each.key)
                point[each.key] = _draw(trial, each)
        for other in self._study.get_trials(deepcopy=False):
            earlier = other.number < number or other.state is not TrialState.RUNNING
            if earlier and other.number != number and _is_tried(other) and other.params == trial.params:
                self._study.tell(number, state=TrialState.FAIL)
                return None
        lock.acquire()
        self._claimed[number] = lock
        return Trial(number, point)

    def _follows_repetition(self, number: int) -> bool:
        """Whether the trial before was closed because it drew an earlier point."""
        from optuna.trial import TrialState

        before = self._study.get_trials(deepcopy=False)[:number][-1:]
        return any(trial.state is TrialState.FAIL and RUN not in trial.user_attrs for trial in before)


@dataclass(frozen=True)
class MedianPruner:
    """Tells the process of a run, after each evaluation, whether to continue."""

    study: Path  # its folder
    number: int  # of the trial
    after_trials: int
    after_step: int

    def __call__(self, step: int, loss: float) -> str | None:
        """Record the validation loss at a step; returns the reason to end the run, or None."""
        import optuna

        with disk_errors_as_failures(self.study), _quiet():
            journal = _Journal(self.study, ["minimize"])
            journal.study.pruner = optuna.pruners.MedianPruner(self.after_trials, self.after_step)
            trial = journal.trial(self.number)
            trial.report(loss, step)
            if not trial.should_prune():
                return None
        return f"step {step}: the lowest validation loss is above the median of the finished trials at this step"


def read_ended(folder: Path) -> list[EndedTrial]:
    """The ended trials of a study that may not have begun; changes nothing. Raises RunFolderError."""
    path = folder / JOURNAL
    with disk_errors_as_failures(path), _damage_as_failure(path):
        study = _study_in(read_bytes(path)) if path.exists() else None
    return ended_trials(study) if study else []


def read_findings(journal: bytes) -> Findings | None:
    """The findings in the content of a journal; None if its study has not begun. Raises ValueError."""
    study = _study_in(journal)
    return _findings(study) if study else None


def ended_trials(study: optuna.Study) -> list[EndedTrial]:
    """The trials of an Optuna study that have ended, in order, without those that were closed as repetitions."""
    from optuna.trial import TrialState

    states = {TrialState.COMPLETE: "done", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"}
    return [
        EndedTrial(
            trial.number,
            dict(trial.params),
            tuple(trial.values) if trial.state is TrialState.COMPLETE else (),
            states[trial.state] if _is_tried(trial) else "cut off",
            trial.user_attrs[RUN],
        )
        for trial in study.get_trials(deepcopy=False, states=tuple(states))
        if RUN in trial.user_attrs
    ]


def _is_tried(trial: optuna.trial.FrozenTrial) -> bool:
    """Whether a trial counts, and its point is not drawn again: it was neither cut off nor closed as a repetition."""
    from optuna.trial import TrialState

    return trial.state is not TrialState.FAIL or (RUN in trial.user_attrs and not trial.user_attrs.get(CUT_OFF))


def _findings(study: optuna.Study) -> Findings:
    if (names := study.metric_names) is None:
        raise ValueError("its objectives have no names")
    directions = [cast("Direction", direction.name.lower()) for direction in study.directions]
    return Findings(
        dict(zip(names, directions, strict=True)),
        ended_trials(study),
        [trial.number for trial in study.best_trials],
        [_importances(study, objective) for objective in range(len(directions))],
    )


def _importances(study: optuna.Study, objective: int) -> dict[str, float]:
    """The importance of each key for one objective, the largest first, by PED-ANOVA; empty if too few trials or keys
    differ.
    """
    import optuna

    done = [trial for trial in ended_trials(study) if trial.values]
    if len({trial.values[objective] for trial in done}) < 4 or len(done[0].point) < 2:
        return {}
    # the evaluator looks at the lowest values
    sign = -1 if study.directions[objective] is optuna.study.StudyDirection.MAXIMIZE else 1
    with _quiet():
        return optuna.importance.get_param_importances(
            study,
            evaluator=optuna.importance.PedAnovaImportanceEvaluator(),
            target=lambda trial: sign * trial.values[objective],
        )


def _study_in(journal: bytes) -> optuna.Study | None:
    """The study in the content of a journal, for reading; None if it has not begun. Raises ValueError."""
    import optuna
    from optuna.storages import JournalStorage

    # a process may be writing the last line
    lines = journal.split(b"\n")[:-1]
    if not lines:
        return None
    try:
        backend = cast("Any", _ReadLines([json.loads(line) for line in lines]))
        return optuna.load_study(study_name=NAME, storage=JournalStorage(backend))
    except OTHER_LINES as error:
        raise ValueError(f"it is not the journal of a study ({type(error).__name__}: {error})") from error


@contextmanager
def _damage_as_failure(path: Path) -> Iterator[None]:
    """Turn the error of a block that reads a journal of other content into a `RunFolderError`."""
    try:
        yield
    except (ValueError, *OTHER_LINES) as error:
        reason = first_line(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise RunFolderError(f"{path}: damaged ({reason}); remove it, or set runs= to another folder") from error


class _ReadLines:
    """The lines of a journal that is only read, as a backend of Optuna's storage."""

    def __init__(self, lines: list[dict[str, Any]]) -> None:
        self._lines = lines

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """The lines from a number on."""
        return self._lines[log_number_from:]


class _Journal:
    """The study in its journal, and the trials in it."""

    def __init__(self, folder: Path, directions: Sequence[Direction]) -> None:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        path = folder / JOURNAL
        with disk_errors_as_failures(path), _damage_as_failure(path):
            # Optuna does not export the base class of its locks
            lock = cast(Any, _FileLock(path))
            self._storage = JournalStorage(JournalFileBackend(str(path), lock))
            self.study = optuna.create_study(
                storage=self._storage, study_name=NAME, directions=directions, load_if_exists=True,
                sampler=optuna.samplers.RandomSampler(0),
            )  # fmt: skip
        self._id = self._storage.get_study_id_from_name(NAME)

    def trial(self, number: int) -> optuna.Trial:
        """A running trial, whichever process began it."""
        import optuna

        return optuna.Trial(self.study, self._storage.get_trial_id_from_study_id_trial_number(self._id, number))


class _FileLock:
    """The journal's lock, which the system releases when its process dies.

    Optuna's own lock would then block for half a minute.
    """

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._held = ExitStack()

    def acquire(self) -> bool:
        """Wait for the lock, and repair what a killed holder has left."""
        take_lock(self._held.enter_context(lock_file(self._journal.with_suffix(".lock"))), wait=True)
        _drop_torn_line(self._journal)
        return True

    def release(self) -> None:
        """Release the lock."""
        self._held.close()


def _drop_torn_line(path: Path) -> None:
    """Cut off an incomplete last line of a killed process, which would spoil the next one."""
    if path.exists() and (content := path.read_bytes()) and not content.endswith(b"\n"):
        os.truncate(path, content.rfind(b"\n") + 1)


def _sampler(search: Search, at_random: bool, *drawn: int | str) -> optuna.samplers.BaseSampler:
    """The sampler for the number of a trial, or for that and one of its keys."""
    import optuna

    seed = int(digest([search.seed, *drawn])[:8], 16)
    if at_random or search.sampler == "random":
        return optuna.samplers.RandomSampler(seed)
    # constant_liar: points of trials that run are not drawn again
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=search.random_trials, constant_liar=True)


def _draw(trial: optuna.Trial, parameter: Choice | NumberRange) -> str:
    if isinstance(parameter, Choice):
        return str(trial.suggest_categorical(parameter.key, parameter.values))
    if parameter.whole:
        low, high, step = int(parameter.low), int(parameter.high), int(parameter.step or 1)
        return parameter.written(trial.suggest_int(parameter.key, low, high, step=step, log=parameter.log))
    return parameter.written(
        trial.suggest_float(parameter.key, parameter.low, parameter.high, step=parameter.step, log=parameter.log)
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """A block without Optuna's warnings about experimental features and about a loss that is reported twice."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
