"""Files of a run folder with hostile contents and correct digests: a command takes them, or refuses in a line."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiments.files.durable import write_sealed
from experiments.record.folder import RunFolder, config_text

HOSTILE = st.sampled_from(
    [
        None, True, 0, -1, 1e308, 10**30, "", "nan", "inf", "a" * 5000, "../../etc", "/dev/zero", "\x00", "\u202e",
        "${oc.env:HOME}",
        "!!python/object/apply:os.system [id]", [], [[]], {}, {"_target_": "os.system"}, {"": 0}, "multi_head", "1,2",
    ]
)  # fmt: skip
COMMANDS = (("compare",), ("compare", "--format", "json"), ("dashboard",), ("evaluate",), ("sync",), ("export",))
SHOWN = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def places(tree: Any, here: tuple = ()) -> list[tuple]:
    """The path of every value in a tree of mappings and lists."""
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [*([here] if here else []), *(place for key, value in pairs for place in places(value, (*here, key)))]


def mutated(tree: dict[str, Any], draw: st.DataObject) -> dict[str, Any]:
    """The tree with a few values replaced, removed or added."""
    tree = copy.deepcopy(tree)
    for _ in range(draw.draw(st.integers(1, 3))):
        if not (known := places(tree)):
            break
        *path, key = draw.draw(st.sampled_from(known))
        parent: Any = tree
        for step in path:
            parent = parent[step]
        kind = draw.draw(st.sampled_from(["replace", "replace", "remove", "add"]))
        if kind == "remove":
            del parent[key]
        elif kind == "add" and isinstance(parent, dict):
            parent[draw.draw(st.sampled_from(["_target_", "", "more", "cache"]))] = draw.draw(HOSTILE)
        else:
            parent[key] = draw.draw(HOSTILE)
    return tree


@pytest.fixture
def run(uncut) -> Path:
    """The folder of a finished run."""
    (folder,) = (uncut / "runs").glob("multi_head-*")
    return folder


@SHOWN
@given(draw=st.data())
def test_every_command_takes_a_foreign_run_or_refuses_it(attn, run, tmp_path, draw):
    files = {name: (run / name).read_bytes() for name in ("config.yaml", "result.json", "environment.json")}
    name = draw.draw(st.sampled_from(sorted(files)))
    try:
        if name == "config.yaml":
            text = config_text(mutated(RunFolder(run).config(), draw))
            (run / name).write_text(text)
        else:
            content = json.loads(files[name])
            content.pop("digest")
            write_sealed(run / name, mutated(content, draw))
        check(attn, run, draw)
    finally:
        for each, content in files.items():
            (run / each).write_bytes(content)


@SHOWN
@given(draw=st.data())
def test_bytes_that_are_no_file_of_ours_are_refused(attn, run, tmp_path, draw):
    names = ["config.yaml", "result.json", "environment.json", "metrics.jsonl", "tokenizer.json"]
    name = draw.draw(st.sampled_from(names))
    content = (run / name).read_bytes()
    text = st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode), st.builds(as_yaml, TREES))
    try:
        (run / name).write_bytes(draw.draw(text))
        check(attn, run, draw)
    finally:
        (run / name).write_bytes(content)


TREES = st.recursive(HOSTILE, lambda inner: st.dictionaries(st.text(max_size=9), inner, max_size=4), max_leaves=9)


def as_yaml(tree: Any) -> bytes:
    """A tree in YAML, with characters beyond ASCII as they are."""
    return yaml.safe_dump(tree, allow_unicode=True).encode()


def check(attn, run: Path, draw: st.DataObject) -> None:
    """Run a command, which must end with a documented exit code and a line or two. A bug would raise here."""
    command = draw.draw(st.sampled_from(COMMANDS))
    more = {"evaluate": [run.name], "export": [run.name, "there"]}.get(command[0], [])
    done = attn(*command, *more, cwd=run.parents[1])
    assert done.returncode in (0, 1, 2), done.output
    assert "Traceback" not in done.stderr and (done.returncode == 0 or len(done.stderr) < 5000), done.stderr
    assert not (run.parents[1] / "there").exists() or done.returncode == 0
