"""JSON and YAML from untrusted sources give plain values, or a ValueError within a short time."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from experiments.config.check import from_tree
from experiments.config.compose import compose
from experiments.failures.failure import Mistake
from experiments.files.digest import bytes_digest, sealed, unsealed
from experiments.files.disk import read_bytes
from experiments.files.plain import LARGEST_YAML, from_json, from_yaml
from experiments.record.folder import config_text, parse_config

BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]" for n in range(1, 12))]
)
MERGES = "\n".join(
    ["a0: &a0 {x: 1}", *(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 8)}]}}" for n in range(1, 12))]
)
HOSTILE = {
    "aliases": BOMB, "merges": MERGES, "a ring": "a: &a [*a]", "deep": "[" * 100_000, "deep keys": "? " * 50_000,
    "large": "a: " + "x" * 10**6, "a call": "!!python/object/apply:os.mkdir [/tmp/trapped]", "a date": "a: 2020-01-01",
    "bytes": "a: !!binary aGk=", "a set": "!!set {a, b}", "no text": "1: a", "nan": "a: .nan",
    "a tag": "a: !!timestamp x", "a tag of lines": "a: !<b%0Ac> x", "base 60": "a: 1" + ":0" * 300 + ".0",
    "digits": "a: " + "9" * 9000, "tabs": "\t\ta", "zero": "\x00", "two": "a: 1\n---\nb: 2",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_yaml_is_refused_soon_in_one_line(name):
    began = time.process_time()
    with pytest.raises(ValueError) as refused:
        from_yaml(HOSTILE[name].encode())
    assert time.process_time() - began < 2 and "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "{", "NaN", '{"a": Infinity}', "[" * 100_000, "9" * 9000, "\ufeff{", "{}{}"])
def test_hostile_json_is_refused_in_one_line(text):
    with pytest.raises(ValueError) as refused:
        from_json(text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"{", b"{}{}", b"\xff"])
def test_what_is_no_json_is_refused_as_such(content):
    with pytest.raises(ValueError, match=r"^not JSON: "):
        from_json(content)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_a_value_error(content):
    for read in (from_json, from_yaml, parse_config, lambda content: unsealed(from_json(content))):
        try:
            json.dumps(read(content), allow_nan=False)
        except ValueError as error:
            assert "\n" not in str(error)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def tree():
    return compose([]).model_dump()


@given(data=st.data())
def test_settings_with_any_value_at_any_key_are_settings_or_a_mistake(tree, data):
    """The settings of a file with a right digest, which somebody may have written on purpose."""
    changed = json.loads(json.dumps(tree))
    node = changed
    while True:
        key = data.draw(st.sampled_from(sorted(node)))
        if not isinstance(node[key], dict) or not node[key] or data.draw(st.booleans()):
            break
        node = node[key]
    node[key] = data.draw(VALUES)
    try:
        read = parse_config(config_text(changed).encode())
    except ValueError:
        return
    with suppress(Mistake):
        from_tree(read)


@pytest.mark.parametrize("module", ["../x", "/tmp/x", "layers.attend", "a b", "", "os", "__init__"])
def test_a_variant_is_a_file_of_the_attention_folder(tree, tmp_path, module):
    (tmp_path / "x.py").write_text("class Attention: pass")
    foreign = tree | {"variant": tree["variant"] | {"module": module.replace("/tmp", str(tmp_path))}}
    with pytest.raises(Mistake, match=r"variant: there is no (file|class Attention in) attention/"):
        from_tree(foreign)


def test_what_was_sealed_is_known_again_in_any_order_and_nothing_else_is():
    content = {"a": 1, "b": {"c": [1.5, None, "x"]}}
    whole = sealed(content)
    assert unsealed(dict(reversed(whole.items()))) == content
    for other in (content, whole | {"a": 2}, whole | {"new": 0}, [whole], None, {}, {"digest": []}):
        with pytest.raises(ValueError, match=r"digest|mapping"):
            unsealed(other)


def test_a_config_is_as_it_was_written_or_refused(tree):
    text = config_text(tree).encode()
    assert parse_config(text) == tree == yaml.safe_load(text)
    body = text[: text.index(b"# sha256")]
    for changed in (body, text.replace(b"seed: 0", b"seed: 1"), text[:-1], text + b"a: 1\n", b"\n" + text):
        with pytest.raises(ValueError, match="digest"):
            parse_config(changed)
    expression = body.replace(b"seed: 0", b"seed: ${oc.env:HOME}")
    with pytest.raises(ValueError, match="an expression"):
        parse_config(expression + f"# sha256 of the lines above: {bytes_digest([expression])}\n".encode())


def test_settings_are_written_up_to_the_length_that_is_read(tree):
    def with_tag(length):
        return tree | {"logger": tree["logger"] | {"tags": ["x" * length]}}

    room = LARGEST_YAML - config_text(with_tag(1)).index("# sha256") + 1
    longest = with_tag(room)
    assert parse_config(config_text(longest).encode()) == longest
    with pytest.raises(Mistake, match=r"^logger\.tags: is too long; .* have 262,145 bytes, and may have 262,144\n"):
        config_text(with_tag(room + 1))


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    for name in ("pipe", "folder", "loop", "nothing"):
        with pytest.raises(OSError):
            read_bytes(tmp_path / name)
