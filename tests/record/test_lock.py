"""One process trains in a run folder, and writes nothing when it has lost it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal

import pytest

from experiments.record.errors import RunFolderError
from experiments.record.folder import RunFolder


def test_only_one_process_at_a_time(folder, settings, python):
    code = """if True:
        import json, sys
        from experiments.record.folder import RunFolder
        RunFolder(sys.argv[1]).create(json.loads(sys.argv[2]))
    """
    second = python(code, folder.path, json.dumps(settings))
    last = second.stderr.splitlines()[-1]
    assert second.returncode != 0
    assert f"process {os.getpid()} on " in last and "trains in it" in last
    assert f"process {os.getpid()} on " in RunFolder(folder.path).holder()
    with pytest.raises(RunFolderError, match="trains in it"):
        RunFolder(folder.path).create(settings)
    folder.close()
    assert folder.holder() is None
    assert python(code, folder.path, json.dumps(settings)).returncode == 0


def test_the_holder_is_seen_on_nfs(folder, monkeypatch):
    """Its flock asks for the right to write for an exclusive lock, and for the right to read for a shared one."""
    flock = fcntl.flock

    def of_nfs(descriptor, operation):
        needed = os.O_WRONLY if operation & fcntl.LOCK_EX else os.O_RDONLY
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE not in (needed, os.O_RDWR):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", of_nfs)
    assert f"process {os.getpid()} on " in RunFolder(folder.path).holder()
    folder.close()
    assert folder.holder() is None


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_on_a_file_system_without_locks_nobody_trains_and_everybody_reads(folder, settings, monkeypatch, number):
    folder.close()

    def refuse(descriptor, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(RunFolderError, match=r"lock: this file system has no file locks .*set runs="):
        folder.create(settings)
    assert folder.holder() is None and folder.config() == settings
    new = RunFolder(folder.path.parent / "new")
    with pytest.raises(RunFolderError, match="no file locks"):
        new.create(settings)
    assert not new.path.exists()


def test_of_two_hosts_with_locks_of_their_own_the_first_stops_before_it_writes(folder, settings, result, monkeypatch):
    folder.metrics.append({"step": 1, "loss": 2.0})
    # every host gets a lock that it does not share
    monkeypatch.setattr("experiments.record.lock.take_lock", lambda descriptor, **options: True)
    monkeypatch.setattr("platform.node", lambda: "elsewhere")
    with RunFolder(folder.path) as other:
        other.create(settings)
        for write_something in (
            lambda: folder.metrics.append({"step": 2, "loss": 1.0}),
            folder.metrics.persist,
            lambda: folder.write_result(result),
        ):
            with pytest.raises(RunFolderError, match=r"process [0-9]+ on elsewhere .* trains in it too"):
                write_something()
        other.metrics.append({"step": 2, "loss": 1.5})
        other.write_result(result)
    assert [line["loss"] for line in folder.metrics.read()] == [2.0, 1.5]
    RunFolder(folder.path).check_files()


@pytest.mark.parametrize("how", ["moved", "removed", "replaced", "replaced by a file"])
def test_nothing_is_written_for_a_folder_that_is_no_longer_in_its_place(folder, result, how):
    folder.metrics.append({"step": 1, "loss": 2.0})
    moved = folder.path.with_name("moved")
    folder.path.rename(moved)
    if how == "replaced":
        shutil.copytree(moved, folder.path)
    elif how == "replaced by a file":
        folder.path.touch()
    elif how == "removed":
        shutil.rmtree(moved)
    for write_something in (
        lambda: folder.metrics.append({"step": 2, "loss": 1.0}),
        folder.metrics.persist,
        folder.check_held,
        lambda: folder.write_result(result),
    ):
        with pytest.raises(RunFolderError, match=r"moved, removed or replaced .*; put it back, and the same command"):
            write_something()
    folder.log("a note")
    assert folder.path.exists() == how.startswith("replaced") and not (folder.path / "log.txt").exists()
    if how == "moved":
        moved.rename(folder.path)
        folder.metrics.append({"step": 2, "loss": 1.0})
        assert folder.metrics.last_step() == 2


def test_a_folder_that_another_process_has_taken_is_not_removed(folder, settings, monkeypatch):
    """This process made the folder, but the other was first to lock it."""
    monkeypatch.setattr("experiments.record.folder.made_folder", lambda path: True)
    monkeypatch.setattr("experiments.record.lock.WAIT_SECONDS", 0)
    other = RunFolder(folder.path)
    with pytest.raises(RunFolderError, match="trains in it"):
        other.create(settings)
    folder.close()
    other.discard()
    assert folder.path.exists() and folder.config() == settings


def test_no_other_process_can_take_a_folder_that_is_being_removed(folder, settings, monkeypatch):
    monkeypatch.setattr("experiments.record.lock.WAIT_SECONDS", 0)
    tried = []

    def remove(path, **options):
        tried.append(path)
        with pytest.raises(RunFolderError, match="trains in it"):
            RunFolder(path).create(settings)

    monkeypatch.setattr("experiments.record.folder.shutil.rmtree", remove)
    folder.close()
    folder.discard()
    assert tried == [folder.path] and folder.holder() is None


def test_a_lock_whose_folder_was_removed_meanwhile_is_none(folder, settings, monkeypatch):
    def take_when_removed(descriptor, *, wait=False):
        folder.discard()
        return True

    monkeypatch.setattr("experiments.record.lock.take_lock", take_when_removed)
    other = RunFolder(folder.path)
    with pytest.raises(RunFolderError, match="another process removed it in the meantime"):
        other.create(settings)
    assert not folder.path.exists()


def test_the_lock_goes_with_a_killed_process(settings, python, tmp_path):
    code = """if True:
        import json, os, sys
        from experiments.record.folder import RunFolder
        folder = RunFolder(sys.argv[1])
        folder.create(json.loads(sys.argv[2]))
        print(folder.holder(), flush=True)
        os.kill(os.getpid(), 9)
    """
    killed = python(code, tmp_path / "run", json.dumps(settings))
    assert killed.returncode == -signal.SIGKILL and killed.stdout.startswith("process "), killed.stderr
    folder = RunFolder(tmp_path / "run")
    assert folder.holder() is None
    folder.create(settings)
