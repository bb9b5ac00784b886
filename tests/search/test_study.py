"""The study that processes share: which process has which trial, and what a killed process leaves behind."""

from __future__ import annotations

import errno
import itertools
import os

import pytest

pytest.importorskip("optuna", reason="needs attn[optuna]")

from experiments.record.errors import RunFolderError
from experiments.search import study as study_module
from experiments.search.space import space_of
from experiments.search.study import MedianPruner, Study, read_ended, read_findings
from experiments.settings.search import JOURNAL, Search

CONTINUOUS, FINITE = ["heads=1,2", "learning_rate=interval(0,1)"], ["heads=1,2", "layers=range(1,4)"]


def settings(**keys) -> Search:
    return Search(
        **{
            "trials": 8, "minimize": ["validation_loss"], "maximize": [], "sampler": "tpe", "random_trials": 2,
            "pruner": "auto", "prune_after_trials": 2, "prune_after_step": 0, "seed": 0, "params": None, **keys,
        }
    )  # fmt: skip


def opened(folder, overrides=CONTINUOUS, **keys) -> Study:
    return Study(folder, settings(**keys), space_of(overrides))


def loss(trial) -> list[float]:
    return [abs(float(trial.point.get("learning_rate", trial.point.get("layers"))) - 0.25)]


def finish(study: Study, limit: int = 100) -> list[dict[str, str]]:
    """Finish the trials that are available, and return their points in order."""
    points = []
    while len(points) < limit and (trial := study.claim()):
        study.tell(trial, f"run-{trial.number}", loss(trial))
        points.append(trial.point)
    return points


def test_the_same_seed_draws_the_same_points_however_often_it_was_cut(tmp_path):
    whole = finish(opened(tmp_path / "whole"))
    assert len(whole) == 8
    cut = finish(opened(tmp_path / "cut"), limit=3)
    # a process that is killed tells nothing of what it has begun
    killed = opened(tmp_path / "cut")
    begun = killed.claim()
    killed.release()
    rest = finish(opened(tmp_path / "cut"))
    assert [*cut, *rest] == whole and rest[0] == begun.point
    assert [each.number for each in opened(tmp_path / "cut").ended()] == list(range(8))
    assert finish(opened(tmp_path / "other", seed=1)) != whole


@pytest.mark.parametrize("overrides", [CONTINUOUS, FINITE])
def test_a_kill_between_two_draws_changes_no_trial(tmp_path, monkeypatch, overrides):
    whole = finish(opened(tmp_path / "whole", overrides))
    assert overrides is CONTINUOUS or opened(tmp_path / "whole").ended()[-1].number > 5, "no point was repeated"
    draw, points = study_module._draw, []

    def draw_until_killed(trial, parameter):
        value = draw(trial, parameter)
        draws.pop()
        if not draws:
            raise KeyboardInterrupt
        return value

    monkeypatch.setattr(study_module, "_draw", draw_until_killed)
    for after in itertools.cycle((1, 3, 99)):
        draws = [None] * after
        study = opened(tmp_path / "killed", overrides)
        try:
            if (trial := study.claim()) is None:
                break
        except KeyboardInterrupt:
            continue
        study.tell(trial, f"run-{trial.number}", loss(trial))
        points.append(trial.point)
    assert points == whole


def test_a_trial_belongs_to_one_process_until_it_ends(tmp_path):
    one, other = opened(tmp_path, trials=2), opened(tmp_path, trials=2)
    first, second = one.claim(), other.claim()
    assert {first.number, second.number} == {0, 1}
    assert one.claim() is None and other.claim() is None
    one.release()
    assert other.claim() == first
    other.tell(first, "run", [1.0])
    other.tell(second, "run", [2.0])
    assert one.claim() is None and [each.values for each in one.ended()] == [(1.0,), (2.0,)]


def test_every_point_of_a_finite_space_is_tried_once(tmp_path):
    studies = opened(tmp_path, FINITE, trials=50), opened(tmp_path, FINITE, trials=50)
    points = []
    while claimed := [trial for study in studies for trial in [study.claim()] if trial]:
        for study, trial in zip(studies, claimed, strict=False):
            study.tell(trial, "run", loss(trial))
            points.append(tuple(trial.point.items()))
    assert len(points) == len(set(points)) == 6


def test_the_next_command_makes_up_for_trials_that_were_cut_off_and_for_no_others(tmp_path):
    study = opened(tmp_path, trials=3)
    for cut_off in (True, False, True):
        study.tell(study.claim(), "run", None, cut_off=cut_off)
    assert study.claim() is None
    again = finish(opened(tmp_path, trials=3))
    assert len(again) == 2
    assert [each.state for each in read_ended(tmp_path)] == ["cut off", "failed", "cut off", "done", "done"]


def test_a_point_that_failed_is_not_drawn_again_but_one_that_was_cut_off_is(tmp_path):
    study, points = opened(tmp_path, FINITE, trials=50), []
    while trial := study.claim():
        points.append(tuple(trial.point.items()))
        study.tell(trial, "run", None, cut_off=len(points) == 6)
    assert len(points) == len(set(points)) == 6
    assert [tuple(point.items()) for point in finish(opened(tmp_path, FINITE, trials=50))] == points[-1:]


def test_a_line_that_was_cut_short_spoils_no_study(tmp_path):
    before = finish(opened(tmp_path), limit=2)
    with (tmp_path / JOURNAL).open("ab") as journal:
        journal.write(b'{"op_code": 4, "worker_id": "x"')
    assert len(before) + len(finish(opened(tmp_path))) == 8


def test_a_full_disk_is_said_with_its_folder_and_the_trial_is_continued_later(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    study = opened(tmp_path)
    trial = study.claim()
    with monkeypatch.context() as patched:
        patched.setattr("optuna.storages.journal.JournalFileBackend.append_logs", full)
        for write in (lambda: study.tell(trial, "run", [1.0]), study.claim, lambda: opened(tmp_path)):
            with pytest.raises(RunFolderError, match=rf"^{tmp_path}.*: the disk is full; free some space"):
                write()
    study.release()
    assert opened(tmp_path).claim() == trial


def test_a_run_above_the_median_of_the_finished_ones_is_hopeless(tmp_path):
    study = opened(tmp_path)

    def verdicts(curve: dict[int, float], **keys) -> list[bool]:
        trial = study.claim()
        pruner = MedianPruner(**{"study": tmp_path, "number": trial.number, "after_trials": 2, "after_step": 0, **keys})
        said = [pruner(step, value) is not None for step, value in curve.items()]
        study.tell(trial, "run", [min(curve.values())], pruned=any(said))
        return said

    bad, good = {2: 9.0, 4: 8.0}, {2: 5.0, 4: 4.0}
    assert verdicts(bad) == [False, False], "the first has nothing to be compared with"
    assert verdicts(good) == [False, False], "one before is fewer than two"
    # the median of 9 and 5 is 7, of 8 and 4 it is 6
    assert verdicts({2: 7.5, 4: 6.5}) == [True, True]
    assert verdicts({2: 7.5, 4: 6.5}, after_step=4) == [False, True]
    assert verdicts({2: 6.5, 4: 5.5}) == [False, False]
    assert verdicts({2: 9.0}, after_trials=9) == [False]


def test_the_best_of_several_objectives_are_those_that_no_other_beats(tmp_path):
    study = opened(tmp_path, trials=4, minimize=["validation_loss"], maximize=["mfu"])
    for values in ([1.0, 1.0], [2.0, 2.0], [2.0, 1.0], [3.0, 2.0]):
        study.tell(study.claim(), "run", values)
    assert study.findings().best == [0, 1]


@pytest.mark.parametrize(("direction", "sign"), [("minimize", 1), ("maximize", -1)])
def test_what_decides_is_what_the_best_values_of_an_objective_depend_on(tmp_path, direction, sign):
    keys = {"minimize": [], "maximize": [], direction: ["mfu"]}
    study = opened(tmp_path, trials=40, sampler="random", **keys)
    while trial := study.claim():
        rate, heads = float(trial.point["learning_rate"]), int(trial.point["heads"])
        # the best values follow from the rate, the worst from the heads
        study.tell(trial, "run", [sign * (rate - 1 if rate < 0.2 else float(heads))])
    (shares,) = study.findings().importances
    assert shares["learning_rate"] > 2 * shares["heads"] and sum(shares.values()) == pytest.approx(1)
    few = opened(tmp_path / "few", trials=2)
    finish(few)
    assert few.findings().importances == [{}]


def test_a_journal_is_read_without_a_change_and_while_a_line_is_written(tmp_path):
    study = opened(tmp_path, trials=6, minimize=["validation_loss"], maximize=["mfu"])
    for values in ([1.0, 1.0], [2.0, 2.0], [2.0, 1.0]):
        study.tell(study.claim(), "run", values)
    journal = (tmp_path / JOURNAL).read_bytes()
    found = read_findings(journal + b'{"op_code": 4, "worker')
    assert found == study.findings() and found.best == [0, 1]
    assert found.objectives == {"validation_loss": "minimize", "mfu": "maximize"}
    assert [each.values for each in read_ended(tmp_path)] == [(1.0, 1.0), (2.0, 2.0), (2.0, 1.0)]
    assert (tmp_path / JOURNAL).read_bytes() == journal
    assert read_findings(b"") is None and read_ended(tmp_path / "none") == []
    for other in (b"{}\n", b"[]\n", b"no JSON\n"):
        with pytest.raises(ValueError, match=r"not the journal of a study|Expecting"):
            read_findings(other)


@pytest.mark.parametrize("content", [b"{}\n", b"[]\n", b"no JSON\n", b"\xff\n", b"{}\nno JSON\n"])
def test_a_damaged_journal_is_named_with_a_remedy(tmp_path, content):
    path = tmp_path / JOURNAL
    for read in (read_ended, opened, lambda folder: MedianPruner(folder, 0, 1, 0)(1, 2.0)):
        path.write_bytes(content)
        with pytest.raises(
            RunFolderError, match=rf"^{path}: damaged \(.*\); remove it, or set runs= to another folder$"
        ):
            read(tmp_path)
