"""Exit codes agree in code, documentation and help, and only a mistake of the user is reported as one."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import cli
from attention import talking_heads
from experiments.config.compose import compose
from experiments.data.errors import DataError
from experiments.failures.exit_code import ExitCode
from experiments.failures.failure import Failure, Mistake
from experiments.model.layers.build_attention import build_attention
from experiments.processes.bug_report import extension_of
from experiments.record.errors import RunFolderError
from experiments.settings import plugins

ROOT = Path(__file__).resolve().parents[3]
HALVED = """
from attention import multi_head

class Attention(multi_head.Attention):
    def project(self, x, memory):
        query, key, value = super().project(x, memory)
        return query[:, :, :1], key, value
"""


@pytest.fixture
def attn(monkeypatch, capsys):
    """attn(*words): run `main` in this process; returns its exit code and its stderr."""
    monkeypatch.setenv("ATTN_TUNED", "")
    monkeypatch.delenv("ATTN_TRACEBACK", raising=False)

    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["attn", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, capsys.readouterr().err

    return run


def test_the_codes_stand_alike_in_the_enum_the_documentation_and_the_help(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["attn", "--help"])
    monkeypatch.setenv("ATTN_TUNED", "")
    with pytest.raises(SystemExit):
        cli.main()
    help_text = capsys.readouterr().out.partition("Exit codes:\n")[2].partition("Options:")[0]
    text = (ROOT / "docs" / "exit_codes.md").read_text(encoding="utf-8")
    expected = [(str(int(code)), code.meaning) for code in ExitCode]
    assert re.findall(r"^\| (\d+) \| (.*) \|$", text, re.MULTILINE) == expected
    assert re.findall(r"^ +(\d+) +(.*)$", help_text, re.MULTILINE) == expected


def broken_zip(*columns, strict=False):
    raise ValueError("zip() argument 2 is shorter than argument 1")


def test_an_internal_value_error_is_a_bug(attn, monkeypatch):
    import experiments.config.command_line as command_line

    monkeypatch.setattr(command_line, "zip", broken_zip, raising=False)
    code, said = attn("train", "heads=6", "--dry-run")
    assert code == ExitCode.FAILED
    *trace, last, report = said.strip().splitlines()
    assert trace[0].startswith("Traceback") and last == "ValueError: zip() argument 2 is shorter than argument 1"
    assert report.startswith("this is a bug in attn: please report it") and "attn --version" in report


def test_an_internal_value_error_of_a_variant_is_a_bug(attn, monkeypatch):
    def broken(self, *arguments, **options):
        broken_zip()

    monkeypatch.setattr(talking_heads.Attention, "__init__", broken)
    code, said = attn("train", "-m", "variant=talking_heads", "heads=6", "--dry-run")
    assert code == ExitCode.FAILED and "Traceback" in said and "this is a bug" in said
    assert "the error is in attention/talking_heads.py: if you wrote this file, correct it there" in said


def test_a_method_that_does_not_fit_its_call_is_an_error_in_its_file(monkeypatch):
    monkeypatch.setattr(talking_heads.Attention, "project", lambda self, x: x)
    layer = build_attention(compose(["variant=talking_heads"]).variant)
    with pytest.raises(TypeError) as caught:
        layer(torch.zeros(1, 2, 192))
    assert extension_of(caught.value) == "attention/talking_heads.py"


def test_an_object_of_an_added_file_that_a_call_does_not_fit_names_the_file(tmp_path, monkeypatch):
    file = tmp_path / "skipping.py"
    file.write_text("class Skipping:\n    def batch(self, tokens):\n        pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    objective = import_module("skipping").Skipping()

    def call(given: object) -> None:
        given.batch(1, 2)

    def read(run: SimpleNamespace) -> None:
        assert run.objective.lengths_vary

    for misfit, given in ((call, objective), (read, SimpleNamespace(objective=objective))):
        with pytest.raises((TypeError, AttributeError)) as caught:
            misfit(given)
        assert extension_of(caught.value) is None
        with monkeypatch.context() as patched:
            patched.setattr(plugins, "_code", [tmp_path])
            assert extension_of(caught.value) == str(file)


def test_an_added_file_is_named_before_the_check_of_ours_that_found_its_error(tmp_path, monkeypatch):
    (tmp_path / "halved.py").write_text(HALVED)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plugins, "_code", [tmp_path])
    halved = import_module("halved")
    with pytest.raises(ValueError, match="key: has shape") as caught:
        halved.Attention(8, 2)(torch.zeros(1, 2, 8))
    assert extension_of(caught.value) == str(tmp_path / "halved.py")
    with pytest.raises(AttributeError) as caught:
        construct_from(halved)
    assert extension_of(caught.value) == str(tmp_path / "halved.py")


def construct_from(module: object) -> None:
    module.Architecture()


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["train", "heads=abc"], ["heads", "'abc'"]),
        (["train", "variant=talkin", "--dry-run"], ["'talkin'", "did you mean talking_heads?"]),
        (
            ["train", "-m", "variant=differential", "variant.lambda_init=1", "--dry-run"],
            ["differential", "lambda_init"],
        ),
        (["compare", "--runs", "nowhere"], ["nowhere"]),
        (["table", "shazeer2020/haeds"], ["haeds", "did you mean shazeer2020/heads?"]),
        (["evaluate", "absent", "--runs", "nowhere"], ["absent"]),
        (["export", "absent", "folder", "--runs", "nowhere"], ["absent"]),
        (["import", "./nowhere"], ["./nowhere", "no such folder"]),
    ],
)
def test_a_mistake_is_said_in_a_line_or_two(attn, tmp_path, monkeypatch, words, names):
    monkeypatch.chdir(tmp_path)
    code, said = attn(*words)
    assert code == ExitCode.MISTAKE, said
    assert "Traceback" not in said and len(said.strip().splitlines()) <= 3
    assert said.startswith(f"attn {words[0]}: ") and all(name in said for name in names)
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_before_the_name_of_a_command_names_none(attn):
    code, said = attn("--version=3")
    first, hint = said.splitlines()
    assert code == ExitCode.MISTAKE and first.startswith("attn: ") and hint == "  attn --help shows how to write it"


@pytest.mark.parametrize("words", [["train", "heads=abc"], ["compare", "--format", "xml"]])
def test_attn_traceback_shows_where_a_mistake_was_raised_and_keeps_its_code(attn, monkeypatch, words):
    monkeypatch.setenv("ATTN_TRACEBACK", "1")
    code, said = attn(*words)
    assert code == ExitCode.MISTAKE and "Traceback" in said and "this is a bug" not in said


def test_only_failures_are_said_without_a_traceback():
    assert not issubclass(Failure, ValueError)
    assert issubclass(DataError, Mistake) and not issubclass(RunFolderError, Mistake)
    assert (Mistake("a").exit_code, RunFolderError("a").exit_code) == (ExitCode.MISTAKE, ExitCode.FAILED)


def test_the_version_names_what_a_report_needs(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["attn", "--version"])
    monkeypatch.setenv("ATTN_TUNED", "")
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    assert re.match(r"attn \S+.*, Python 3\.\d+\.\d+, torch \S+, ", capsys.readouterr().out)
