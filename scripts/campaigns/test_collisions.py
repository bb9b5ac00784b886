"""Processes that do the same at the same time: one does the work, others wait or refuse, and no files are mixed up."""

from __future__ import annotations

import time

from experiments.record.folder import RunFolder
from scripts.campaigns.harness import Subject, ended, files_in, runs_in

AT_ONCE = 8  # processes that share a sweep


def test_two_trainings_of_one_run(nursery, training, undisturbed, tmp_path, chance, tries, say):
    whole, life = undisturbed
    expected = runs_in(whole)
    subject = Subject(lambda folder: nursery.start(*training, cwd=folder), runs_in)
    told = 0
    for number in range(count := tries(4, 150)):
        folder = tmp_path / f"try{number}"
        folder.mkdir()
        first = subject.start(folder)
        time.sleep(chance.uniform(0, life) * chance.randrange(2))
        second = subject.start(folder)
        if chance.randrange(4) == 0:
            time.sleep(chance.uniform(0, life))
            first.kill()
        codes = [first.wait(), second.wait()]
        for code, each in zip(codes, (first, second), strict=True):
            assert code in (0, -9) or (code == 1 and "trains in it" in each.output), (code, each.output)
        told += 1 in codes
        assert 0 in codes or -9 in codes, (first.output, second.output)
        ended(subject, folder)
        assert runs_in(folder) == expected, number
    say(f"{count} collisions, {told} told that the other trains")


def test_two_that_make_one_corpus(nursery, training, tmp_path, chance, tries, say):
    whole = tmp_path / "whole"
    whole.mkdir()

    def prepare(folder):
        entry, words = "scripts.campaigns.nursery:prepare_here", " ".join(training[1:])
        return nursery.start(str(folder), entry=entry, cwd=folder, ATTN_WORDS=words)

    assert prepare(whole).wait() == 0
    expected = files_in(whole / "cache")
    for number in range(count := tries(2, 50)):
        folder = tmp_path / f"try{number}"
        folder.mkdir()
        first = prepare(folder)
        time.sleep(chance.uniform(0, 0.3))
        second = prepare(folder)
        if chance.randrange(2):
            time.sleep(chance.uniform(0, 0.5))
            first.kill()
        codes = first.wait(), second.wait()
        assert codes[0] in (0, -9) and codes[1] == 0, (first.output, second.output)
        assert files_in(folder / "cache") == expected, number
    say(f"{count} collisions")


def test_many_workers_that_share_the_cells_of_a_sweep(nursery, training, tmp_path, tries, say):
    cells, count = tries(2, 30), tries(3, 100)
    words = ["train", "-m", *training[1:], f"seed=range(0,{cells})", "--workers", "1"]
    whole, shared = tmp_path / "whole", tmp_path / "shared"
    whole.mkdir()
    shared.mkdir()
    code, said = nursery.run(*words, cwd=whole)
    assert code == 0, said
    workers, codes = [], []
    for number in range(count + AT_ONCE):
        if number < count:
            workers.append(nursery.start(*words, cwd=shared))
        if number >= AT_ONCE:
            worker = workers[number - AT_ONCE]
            codes.append(code := worker.wait())
            # a worker does not wait for cells that another one trains at that moment
            assert code == 0 or (code == 3 and "trains in it" in worker.output), (code, worker.output)
    code, said = nursery.run(*words, cwd=shared)
    assert code == 0 and said.count("finished before") == cells, said
    assert runs_in(shared) == runs_in(whole)
    starts = [RunFolder(folder.parent).environment()["earlier"] for folder in shared.glob("runs/*/config.yaml")]
    assert starts == [[]] * cells
    say(f"{count} workers of {cells} cells, {codes.count(3)} told that others train")
