from __future__ import annotations

from pathlib import Path

import pytest

from experiments.failures.failure import Mistake
from experiments.results.find import find_each, find_run, find_runs, folders_in, is_name


@pytest.fixture
def runs(tmp_path) -> Path:
    for name in "abcd":
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").touch()
    return tmp_path


def test_a_run_is_named_by_its_name_or_the_start_of_it(runs):
    assert find_run("a", runs) == runs / "a"
    for name in ("ab", "ac"):
        (runs / name).mkdir()
        (runs / name / "config.yaml").touch()
    assert find_run("a", runs) == runs / "a", "whole, though others begin with it"
    assert find_run("ab", runs) == find_run(str(runs / "ab"), Path("elsewhere")) == runs / "ab"
    (runs / "a" / "config.yaml").unlink()
    with pytest.raises(Mistake, match="'a' is the start of 2 runs"):
        find_run("a", runs)


def test_a_run_that_is_named_twice_is_one(runs, monkeypatch):
    monkeypatch.chdir(runs.parent)
    (runs.parent / "link").symlink_to(runs / "b")
    again = ["b", "a", "b", str(runs / "a"), f"{runs.name}/b", "link", "[ab]"]
    assert find_each(again, runs) == [runs / "b", runs / "a"]


def test_a_word_with_an_equals_sign_is_a_run_only_where_there_is_one(runs, monkeypatch):
    (runs / "heads=4").mkdir()
    (runs / "heads=4" / "config.yaml").touch()
    assert is_name("heads=4", runs) and is_name(str(runs / "heads=4"), Path("elsewhere"))
    assert is_name("a", runs) and is_name("missing", runs)
    assert not is_name("heads=6", runs) and not is_name("heads=4", Path("elsewhere"))


def test_a_word_may_be_longer_than_the_name_of_a_file(runs):
    long = ",".join(map(str, range(100)))
    assert not is_name(f"seed={long}", runs)
    with pytest.raises(Mistake, match="there is no run '0,1,2,"):
        find_runs(long, runs)


def test_a_pattern_that_no_shell_has_read_is_looked_for_in_its_own_folder(runs, monkeypatch):
    monkeypatch.chdir(runs.parent)
    assert find_runs("[ab]*", runs) == find_runs(f"{runs}/[ab]*", Path("elsewhere")) == [runs / "a", runs / "b"]
    assert find_runs("a**", runs) == [runs / "a"]
    for name in ("b**a", ".", "/"):
        with pytest.raises(Mistake, match="there is no run"):
            find_runs(name, runs)
    with pytest.raises(Mistake, match="'elsewhere/a' in elsewhere/, which does not exist\n  attn train makes one"):
        find_runs("elsewhere/a", runs)
    (runs / "talking_heads-l2-post").mkdir()
    (runs / "talking_heads-l2-post" / "config.yaml").touch()
    with pytest.raises(Mistake, match=r"did you mean talking_heads\?"):
        find_run("talkin_heads", runs)
    with pytest.raises(Mistake, match=r"did you mean talking_heads-l2-post\?"):
        find_run("talking_heads-l2-pst", runs)
    (runs / "talking_heads-l3").mkdir()
    for name in ("talking_heads-l3", f"{runs}/talking_heads-l3"):
        with pytest.raises(Mistake, match=r"talking_heads-l3: is not a run, because it has no config\.yaml\n"):
            find_run(name, runs)
    # a folder that is no run hides none
    (runs.parent / "d").mkdir(exist_ok=True)
    assert find_runs("d", runs) == [runs / "d"]


def test_a_model_without_some_of_its_heads_is_no_run(runs):
    smaller = runs / "a" / "heads" / "pruned-6"
    smaller.mkdir(parents=True)
    for name in ("config.yaml", "heads.json"):
        (smaller / name).touch()
    for name in (str(smaller), "a/heads/pruned-6"):
        with pytest.raises(Mistake, match=r"pruned-6: is a model .* not a run; only `load_pruned` .* reads it"):
            find_run(name, runs)
    with pytest.raises(Mistake, match="there is no run"):
        find_run(f"{smaller}"[:-1], runs)


def test_runs_are_listed_as_people_sort_their_names(tmp_path):
    names = ["multi_head-h6-s2", "multi_head-h6-s10", "multi_head-h12-s0", "talking_heads-h6-s0", "wandb"]
    for name in sorted(names):
        (tmp_path / name).mkdir()
    assert [folder.name for folder in folders_in(tmp_path)] == names
