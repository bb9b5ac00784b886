"""The files of a run folder: their content, what is damaged in them, and disks that take none."""

from __future__ import annotations

import copy
import ctypes
import json
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from experiments.failures.failure import Mistake
from experiments.files.durable import DiskError, write, write_sealed
from experiments.record import environment
from experiments.record.errors import RunFolderError
from experiments.record.folder import RunFolder, configuration_digest, run_name
from experiments.record.result import Result
from tests.fixtures.permissions import as_another_user

floats = st.floats(allow_nan=False, allow_infinity=False)


def test_the_name_says_variant_sizes_norm_seed_and_digest(settings):
    assert run_name(settings) == f"talking_heads-l4-d192-h24-k8-v8-pre-s0-{configuration_digest(settings)}"
    assert re.fullmatch("[0-9a-f]{8}", configuration_digest(settings))
    settings["variant"]["name"] = "../a b:c"
    assert re.fullmatch("[A-Za-z0-9._-]+", run_name(settings))


def test_the_digest_is_of_all_that_can_change_a_result(settings):
    for key in settings:
        other = {**settings, key: "changed"}
        assert (configuration_digest(other) == configuration_digest(settings)) == (key in {"runs", "cache", "logger"})
    deep = copy.deepcopy(settings)
    deep["model"]["norm_epsilon"] = 1e-6
    assert configuration_digest(deep) != configuration_digest(settings)
    assert configuration_digest(dict(reversed(settings.items()))) == configuration_digest(settings)


@given(st.dictionaries(st.text(), floats | st.text() | st.integers() | st.none() | st.booleans() | st.lists(floats)))
def test_the_digest_survives_the_file(values):
    assert configuration_digest(yaml.safe_load(yaml.safe_dump(values))) == configuration_digest(values)


def test_config_is_plain_yaml(folder, settings):
    assert folder.config() == settings
    assert yaml.safe_load((folder.path / "config.yaml").read_text()) == settings


def test_the_same_configuration_comes_back_and_another_is_refused(folder, settings):
    folder.close()
    folder.create({**settings, "logger": {**settings["logger"], "wandb": "off"}})
    assert folder.config()["logger"]["wandb"] == "off"
    folder.close()
    with pytest.raises(RunFolderError, match="another configuration"):
        folder.create({**settings, "seed": 1})
    assert folder.holder() is None


def test_settings_that_are_too_long_are_refused_before_anything_is_made(settings, tmp_path):
    settings["logger"]["tags"] = ["tag"] * 100_000
    with pytest.raises(Mistake, match=r"^logger\.tags: is too long"):
        RunFolder(tmp_path / "other" / "run").create(settings)
    assert not (tmp_path / "other").exists()


def test_environment_keeps_earlier_starts(folder):
    facts = environment.describe({"threads": 2}, seed=7, backend="sdpa")
    assert facts["packages"]["wandb"] and facts["cores"] >= 1 and facts["memory_bytes"] > 1e8
    assert folder.environment() is None
    folder.write_environment({**facts, "host": "first"})
    folder.write_environment({**facts, "host": "second"})
    folder.write_environment({**facts, "host": "third"})
    assert folder.environment()["host"] == "third"
    assert [start["host"] for start in folder.environment()["earlier"]] == ["first", "second"]
    json.loads((folder.path / "environment.json").read_text(), parse_constant=pytest.fail)


def test_environment_outside_a_checkout_has_no_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "environment.py"))
    monkeypatch.setattr(environment, "checkout", environment.checkout.__wrapped__)
    assert environment.describe({}, seed=0, backend=None)["git"] is None


def test_result_is_there_when_written_and_goes_when_the_run_goes_on(folder, settings, result):
    assert folder.result() is None
    folder.write_result(result)
    assert folder.result() == result
    folder.close()
    folder.create(settings)
    assert folder.result() == result
    known = {"steps": 7, "skipped_steps": 0, "tokens": 448, "epochs": 0.1, "wall_seconds": 1.5, "seed": 3}
    folder.write_result(Result.unfinished("interrupted", "SIGTERM", **known))
    folder.close()
    folder.create(settings)
    assert folder.result().status == "interrupted"
    folder.go_on()
    assert folder.result() is None


def test_log_lines_are_appended(folder):
    folder.log("one")
    folder.log("two")
    assert [line[20:] for line in (folder.path / "log.txt").read_text().splitlines()] == ["one", "two"]


def test_a_file_that_changed_after_the_result_is_named(folder, settings, result):
    folder.metrics.append({"step": 1, "loss": 2.0})
    folder.write_environment({"host": "here"})
    (folder.path / "tokenizer.json").write_text("{}")
    folder.write_result(result)
    folder.close()
    folder.check_files()
    for name in ("config.yaml", "environment.json", "metrics.jsonl", "tokenizer.json"):
        content = (folder.path / name).read_bytes()
        for changed in (content + b" ", None):
            (folder.path / name).unlink() if changed is None else (folder.path / name).write_bytes(changed)
            said = "is missing, but result.json rests on it; restore it, or remove result.json and repeat"
            if changed is not None:
                said = "has changed since result.json was written; restore it, or remove both files and repeat"
            with pytest.raises(RunFolderError, match=f"{name}: {said}"):
                RunFolder(folder.path).check_files()
            (folder.path / name).write_bytes(content)
    folder.check_files()
    # a start with other places leaves the file that the result covers as it is
    folder.create({**settings, "cache": "elsewhere"})
    folder.check_files()


def test_predictions_are_covered_where_a_result_knows_them(folder, settings, result):
    predictions = folder.path / "predictions.json"
    folder.write_result(result)
    predictions.write_text("{}")
    folder.check_files()
    folder.write_result(result)
    predictions.write_text("[]")
    with pytest.raises(RunFolderError, match=r"predictions\.json: has changed since"):
        folder.check_files()


def test_a_folder_that_cannot_be_begun_is_removed_and_one_that_was_there_is_not(settings, tmp_path, monkeypatch):
    def full(path, text):
        raise RunFolderError("full")

    monkeypatch.setattr("experiments.record.folder.write", full)
    for existing in (False, True):
        path = tmp_path / "runs" / "one"
        if existing:
            path.mkdir()
        with pytest.raises(RunFolderError, match="full"):
            RunFolder(path).create(settings)
        assert path.exists() == existing


@pytest.mark.parametrize(
    ("name", "read", "content"),
    [
        ("config.yaml", "config", b"a: [1"),
        ("config.yaml", "config", b"!!python/object/apply:os.getcwd []"),
        ("config.yaml", "config", b"- 1"),
        ("config.yaml", "config", b"\xff\xfe\x00"),
        ("result.json", "result", b'{"status": "done"'),
        ("result.json", "result", b"\x00\xff"),
        ("environment.json", "environment", b"[]"),
        ("environment.json", "environment", b"{"),
    ],
)
def test_a_damaged_file_is_named(folder, name, read, content):
    (folder.path / name).write_bytes(content)
    with pytest.raises(RunFolderError, match=f"{name}: damaged.*remove this file, and repeat") as caught:
        getattr(folder, read)()
    assert "\n" not in str(caught.value)
    # a result that stays refuses the run whose file was removed
    (folder.path / "result.json").write_bytes(content)
    files = "this file" if name == "result.json" else "this file and result.json"
    with pytest.raises(RunFolderError, match=f"remove {files}, and repeat"):
        getattr(folder, read)()


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("config.yaml", RunFolder.config), ("environment.json", RunFolder.environment),
        ("result.json", RunFolder.result), ("metrics.jsonl", lambda folder: folder.metrics.read()),
        ("tokenizer.json", RunFolder.tokenizer_file),
    ],
)  # fmt: skip
def test_a_folder_in_place_of_a_file_is_called_one(tmp_path, name, read):
    (tmp_path / name).mkdir()
    with pytest.raises((RunFolderError, DiskError), match=rf"{re.escape(name)}: .*a folder stands "):
        read(RunFolder(tmp_path))


def test_a_result_of_another_version_is_not_called_damaged(folder):
    write_sealed(folder.path / "result.json", {"status": "done", "energy": 1.0})
    with pytest.raises(
        RunFolderError, match=r"result\.json: was written by another version of attn \(.*energy"
    ) as said:
        folder.result()
    assert "remove" not in str(said.value)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(RunFolderError, match=r"config.yaml: No such file"):
        RunFolder(tmp_path / "nothing").config()


def test_a_file_where_the_folder_should_be(tmp_path, settings):
    (tmp_path / "runs").write_text("")
    for path in (tmp_path / "runs", tmp_path / "runs" / "name"):
        with pytest.raises(RunFolderError, match="a file stands where a folder should be"):
            RunFolder(path).create(settings)
    (tmp_path / "link").symlink_to("unmounted")
    for path in (tmp_path / "link", tmp_path / "link" / "name"):
        with pytest.raises(RunFolderError, match="it is a link to unmounted, where there is no folder"):
            RunFolder(path).create(settings)


def test_an_unwritable_folder(open_folder, settings):
    open_folder.chmod(0o555)
    with (
        as_another_user(),
        pytest.raises(RunFolderError, match="permission denied; set runs="),
    ):
        RunFolder(open_folder / "name").create(settings)


def test_an_unreadable_file(open_folder, settings):
    with RunFolder(open_folder / "name") as folder:
        folder.create(settings)
    (folder.path / "config.yaml").chmod(0)
    with as_another_user(), pytest.raises(RunFolderError, match=r"config.yaml: it cannot be read: permission denied"):
        folder.config()


def fill(folder):
    """Append until the disk is full, check that the existing lines are intact, and return the text of the error."""
    with pytest.raises(RunFolderError) as caught:
        for step in range(1, 10**6):
            folder.metrics.append({"step": step, "filler": "x" * 300})
    count = len(folder.metrics.read())
    assert count > 10
    assert (folder.path / "metrics.jsonl").read_bytes().endswith(b"}\n")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 256 KiB."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = ctypes.CDLL(None, use_errno=True)
    if mount.mount(b"tmpfs", str(path).encode(), b"tmpfs", 0, b"size=256k") != 0:
        pytest.skip("mounting is not permitted")
    yield path
    mount.umount2(str(path).encode(), 2)


def test_a_full_disk(small_disk, settings, result):
    with RunFolder(small_disk / "run") as folder:
        folder.create(settings)
        folder.write_environment({"host": "here"})
        (small_disk / "ballast").write_bytes(b"x" * 100_000)
        folder.metrics.append({"step": 0})
        held = folder.metrics.held()
        assert "the disk is full; free some space" in fill(folder)
        folder.log("dropped")
        with pytest.raises(RunFolderError, match=r"the disk is full; .* set runs="):
            folder.write_result(result)
        with pytest.raises(DiskError, match="the disk is full"):
            write(folder.path / "new", "x" * 50_000)
        assert folder.result() is None
        assert folder.environment()["host"] == "here"
        assert folder.config() == settings
        (small_disk / "ballast").unlink()
        folder.metrics.return_to(held, print)
        assert len(folder.metrics.read()) == 1


def test_a_limit_on_the_size_of_files(settings, tmp_path, python):
    code = """if True:
        import json, resource, sys
        from experiments.record.folder import RunFolder
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
        folder = RunFolder(sys.argv[1])
        folder.create(json.loads(sys.argv[2]))
        for step in range(1000):
            folder.metrics.append({"step": step, "filler": "x" * 300})
    """
    done = python(code, tmp_path / "run", json.dumps(settings))
    assert "larger than this process may write" in done.stderr.splitlines()[-1]
    folder = RunFolder(tmp_path / "run")
    assert len(folder.metrics.read()) == len((folder.path / "metrics.jsonl").read_bytes().splitlines()) > 10
