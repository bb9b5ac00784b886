from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
import torch

from experiments.failures.failure import Mistake
from experiments.record.checkpoint_file import load, restore, save, weights
from experiments.record.errors import RunFolderError
from tests.fixtures.permissions import as_another_user


def state(value):
    return {"weight": torch.full((3, 4), float(value))}


@pytest.fixture
def said():
    return []


def test_what_was_saved_comes_back(tmp_path, said):
    header = {"progress": {"loss": 0.1 + 0.2, "skipped": [3]}, "text": "\N{GREEK SMALL LETTER ALPHA}"}
    save(tmp_path / "checkpoint", "newest", 7, state(1.5), header)
    found = load(tmp_path / "checkpoint", "newest", said.append)
    assert found.header == header and torch.equal(found.tensors["weight"], state(1.5)["weight"])
    assert load(tmp_path / "checkpoint", "best", said.append) is None and said == []


def test_the_newest_two_and_one_best_are_kept(tmp_path):
    for step in (1, 2, 3, 4):
        save(tmp_path, "newest", step, state(step), {})
        save(tmp_path, "best", step, state(step), {})
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "best-000000004.safetensors", "best-000000004.sha256",
        "step-000000003.safetensors", "step-000000003.sha256",
        "step-000000004.safetensors", "step-000000004.sha256",
    ]  # fmt: skip


def test_what_a_killed_process_was_writing_is_removed_and_all_may_read_a_checkpoint(tmp_path):
    for name in (".tmp39cZp6", ".best-000000001.safetensors.partial"):
        (tmp_path / name).write_text("half")
    save(tmp_path, "newest", 2, state(2), {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000000002.safetensors", "step-000000002.sha256"]
    assert (tmp_path / "step-000000002.safetensors").stat().st_mode & 0o777 == 0o644


def test_a_file_of_a_checkpoint_has_the_rights_that_other_files_of_its_user_have(tmp_path):
    before = os.umask(0o077)
    try:
        save(tmp_path, "newest", 2, state(2), {})
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_a_checkpoint_is_good_until_another_one_of_its_step_has_its_name(tmp_path, said, monkeypatch):
    """A run that goes back to a step, because a later one was not finite, writes the checkpoint of this step again."""
    replace = Path.replace

    def killed(temporary, path):
        if path.suffix == ".safetensors":
            raise KeyboardInterrupt
        return replace(temporary, path)

    save(tmp_path, "newest", 1, state(1), {"skipped": []})
    for _ in range(2):
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(Path, "replace", killed)
            save(tmp_path, "newest", 1, state(1), {"skipped": [3]})
        assert load(tmp_path, "newest", said.append).header == {"skipped": []} and said == []
    save(tmp_path, "newest", 1, state(1), {"skipped": [3]})
    assert load(tmp_path, "newest", said.append).header == {"skipped": [3]} and said == []
    assert len((tmp_path / "step-000000001.sha256").read_text().split()) == 1


def test_going_back_drops_what_is_later(tmp_path, said):
    for step in (1, 5, 9, 2):
        save(tmp_path, "newest", step, state(step), {"step": step})
    assert load(tmp_path, "newest", said.append).header == {"step": 2}
    assert sorted(path.stem for path in tmp_path.glob("*.safetensors")) == ["step-000000002"]


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "no checksum", "other checksum"])
def test_a_damaged_one_gives_way_to_the_one_before(tmp_path, said, damage):
    for step in (1, 2):
        save(tmp_path, "newest", step, state(step), {"step": step})
    path = tmp_path / "step-000000002.safetensors"
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[-5] ^= 1
    if damage in ("cut", "empty", "flip"):
        path.write_bytes(content[:-1] if damage == "cut" else b"" if damage == "empty" else content)
    elif damage == "no checksum":
        path.with_suffix(".sha256").unlink()
    else:
        path.with_suffix(".sha256").write_text("0" * 64)
    assert load(tmp_path, "newest", said.append).header == {"step": 1}
    assert len(said) == 1 and "step-000000002.safetensors: damaged" in said[0] and "skipped" in said[0]


@pytest.mark.parametrize("unreadable", ["checkpoint", "checkpoint/step-000000002.safetensors"])
def test_one_that_may_not_be_read_is_not_taken_for_damaged(open_folder, said, unreadable):
    for step in (1, 2):
        save(open_folder / "checkpoint", "newest", step, state(step), {})
    (open_folder / unreadable).chmod(0)
    with as_another_user(), pytest.raises(RunFolderError, match=f"{unreadable}: it cannot be read"):
        load(open_folder / "checkpoint", "newest", said.append)
    assert said == []
    (open_folder / unreadable).chmod(0o755)


def test_nothing_good_left_is_said(tmp_path, said):
    save(tmp_path, "newest", 1, state(1), {})
    (tmp_path / "step-000000001.safetensors").write_bytes(b"")
    assert load(tmp_path, "newest", said.append) is None
    assert "no good checkpoint is left" in said[-1]


def test_a_pickle_is_not_read(tmp_path, said):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "trapped"),)

    torch.save(Trap(), tmp_path / "step-000000001.safetensors")
    assert load(tmp_path, "newest", said.append) is None
    assert not (tmp_path / "trapped").exists()


@pytest.fixture
def file_size_limit():
    """Files of this process are limited to 64 KiB, which is like a full disk for it."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_leaves_the_earlier_one_and_no_litter(tmp_path, said, file_size_limit):
    save(tmp_path, "newest", 1, state(1), {"step": 1})
    before = sorted(tmp_path.iterdir())
    with pytest.raises(RunFolderError, match="step-000000002") as error:
        save(tmp_path, "newest", 2, {"weight": torch.zeros(1 << 15)}, {"step": 2})
    assert "\n" not in str(error.value) and "raise the limit" in str(error.value)
    assert sorted(tmp_path.iterdir()) == before
    assert load(tmp_path, "newest", said.append).header == {"step": 1}


def test_a_run_on_a_full_disk_says_so_and_goes_on_when_there_is_room(settings, go, plain_run, outcome):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    try:
        with pytest.raises(RunFolderError, match="raise the limit"):
            go(settings(), "cut")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    result, folder = go(settings(), "cut")
    assert result.status == "done" and outcome(folder) == outcome(plain_run[1])


def test_a_folder_in_the_way_is_one_clear_line(tmp_path):
    (tmp_path / "checkpoint").write_text("a file")
    with pytest.raises(RunFolderError, match="a file stands where a folder should be"):
        save(tmp_path / "checkpoint", "newest", 1, state(1), {})


@pytest.mark.parametrize("damaged", [1, 2])
def test_a_run_goes_on_from_what_is_good(settings, go, plain_run, plain_copy, outcome, damaged):
    result, folder = plain_copy
    (folder.path / "result.json").unlink()
    for path in sorted(folder.checkpoint.glob("step-*.safetensors"), reverse=True)[:damaged]:
        path.write_bytes(path.read_bytes()[:-1])
    again, folder = go(settings())
    log = (folder.path / "log.txt").read_text()
    assert log.count(": damaged") == damaged and ("no good checkpoint is left" in log) == (damaged == 2)
    assert again.steps == 20 and again.validation_loss == result.validation_loss
    assert outcome(folder) == outcome(plain_run[1])


def test_a_tied_tensor_is_stored_once_and_strangers_are_named():
    model = torch.nn.ModuleDict({"one": torch.nn.Linear(2, 2), "two": torch.nn.Linear(2, 2)})
    model["two"].weight = model["one"].weight
    assert list(weights(model)) == ["model/one.weight", "model/one.bias", "model/two.bias"]
    stored = {name: torch.ones_like(tensor) for name, tensor in weights(model).items()}
    restore(weights(model), stored)
    assert model["two"].weight.eq(1).all()
    with pytest.raises(Mistake, match=r"lacks model/two\.bias"):
        restore(weights(model), {name: stored[name] for name in ("model/one.weight", "model/one.bias")})
    with pytest.raises(Mistake, match=r"one\.bias is \[3\], not \[2\]"):
        restore(weights(model), stored | {"model/one.bias": torch.ones(3)})
