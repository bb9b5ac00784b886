"""How commands end after a signal, when their output is closed, and when the system ends them."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import cli
from experiments.commands.frame import ending
from experiments.commands.frame.ending import explained, message_and_exit_code, silent_on_ctrl_c
from experiments.config.compose import compose
from experiments.failures.exit_code import ExitCode
from experiments.failures.failure import Failure
from experiments.processes.interruption import Interrupted
from tests.fixtures.command import ROOT
from tests.fixtures.terminal import code_without_terminal

WRITER = """
import signal, sys, time
signal.signal(signal.SIGHUP, signal.SIG_IGN)
from experiments.commands.frame.ending import outlive_terminal
outlive_terminal()
print("begun")
while sys.stdout.isatty():
    print("step", flush=True)
    print("step", file=sys.stderr)
    time.sleep(0.01)
print("done", flush=True)
"""


def of_path(number: int) -> OSError:
    return OSError(number, os.strerror(number), "a" * 5000)


def test_what_the_system_refuses_is_said_in_a_line_and_the_rest_is_a_bug():
    line, code = message_and_exit_code(of_path(errno.ENAMETOOLONG))
    assert code is ExitCode.MISTAKE and line.endswith("aaa: File name too long") and len(line) < 250
    for number in (errno.EACCES, errno.ESTALE, errno.ENOTCONN):
        assert message_and_exit_code(of_path(number))[1] is ExitCode.FAILED
    assert message_and_exit_code(KeyboardInterrupt()) == ("interrupted by SIGINT", ExitCode.INTERRUPTED)
    assert message_and_exit_code(Interrupted(signal.SIGTERM)) == ("interrupted by SIGTERM", ExitCode.TERMINATED)
    for during in (Failure("the disk is full"), of_path(errno.ENOSPC), ValueError("shapes")):
        during.__context__ = Interrupted(signal.SIGTERM)
        assert message_and_exit_code(during) == ("interrupted by SIGTERM", ExitCode.TERMINATED)
    assert message_and_exit_code(of_path(errno.ENOENT)) is message_and_exit_code(ValueError("shapes")) is None


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)), "ulimit -u"),
        (RuntimeError("can't start new thread"), "ulimit -u"),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE), "some file"), "ulimit -n"),
        (OSError(errno.EAGAIN, "write could not complete without blocking"), "the output can't be written"),
        (FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']"), "TMPDIR"),
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), "libtorch_cpu.so"),
        (OSError("/some/libgomp.so.1: cannot allocate memory"), "libgomp.so.1"),
    ],
)
def test_what_a_process_has_too_little_of_is_named(error, said, monkeypatch):
    monkeypatch.setattr(ending, "_give_up_output", lambda: None)
    line, code = message_and_exit_code(error)
    assert said in line and "\n" not in line and code is ExitCode.FAILED


def test_too_little_memory_has_its_exit_code_and_a_module_that_is_missing_is_a_bug():
    for error in (MemoryError(), OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))):
        line, code = message_and_exit_code(error)
        assert "not enough memory" in line and code is ExitCode.OUT_OF_MEMORY
    assert message_and_exit_code(ModuleNotFoundError("No module named 'nope'")) is None


def test_a_folder_that_is_gone_and_a_missing_home_are_named(attn, tmp_path, monkeypatch):
    monkeypatch.delenv("ATTN_CACHE")
    monkeypatch.delenv("HOME")
    done = attn("train", "--dry-run")
    assert done.returncode == 2 and "the environment has no HOME" in done.stderr and "cache=FOLDER" in done.stderr
    monkeypatch.setenv("HOME", "")
    assert attn("train", "--dry-run").stderr == done.stderr
    monkeypatch.setenv("ATTN_CACHE", "elsewhere")
    assert compose([]).cache == "elsewhere"
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(FileNotFoundError) as caught:
        Path.cwd()
    assert message_and_exit_code(caught.value)[0] == "the current folder has been removed; change to another"


def test_ctrl_c_before_a_command_begins_is_said_in_a_line(monkeypatch, capsys):
    monkeypatch.setattr(cli, "app", lambda: os.kill(os.getpid(), signal.SIGINT))
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(cli, "set_performance_variables", dict)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 130 and capsys.readouterr().err == "attn: interrupted by SIGINT\n"


def test_ctrl_c_in_an_import_ends_the_process_without_a_word():
    for own, said in (("", ""), ("signal.signal(signal.SIGINT, lambda *_: print('own'))", "own\n")):
        imported = "import signal\nfrom experiments.commands.frame.ending import silent_on_ctrl_c"
        code = f"{imported}\n{own}\nwith silent_on_ctrl_c(): signal.raise_signal(2)"
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0 if said else -signal.SIGINT, said, "")
    before = signal.getsignal(signal.SIGINT)
    with silent_on_ctrl_c():
        assert signal.getsignal(signal.SIGINT) is (signal.SIG_DFL if before is signal.default_int_handler else before)
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_while_the_process_exits_ends_it_without_a_word():
    code = "import atexit, signal\natexit.register(signal.raise_signal, signal.SIGINT)\nimport cli\ncli.main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "--version"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "") and done.stdout.startswith("attn ")


@pytest.mark.parametrize("option", ["--runs", "--out"])
def test_a_path_that_no_file_system_takes_is_a_mistake(attn, option):
    done = attn("dashboard", option, "a" * 300)
    # to newer versions of Python, such a folder is one that does not exist
    assert done.returncode == 2 and ("File name too long" in done.stderr or "no run in" in done.stderr)


@pytest.mark.parametrize("command", [["evaluate", "a"], ["heads", "a"], ["export", "a", "b"]])
def test_a_checkpoint_that_there_is_not_is_refused_with_what_there_is(attn, command):
    done = attn(*command, "--checkpoint", "last")
    line = f"attn {command[0]}: --checkpoint last: must be one of best, newest"
    assert done.returncode == 2 and done.stderr.splitlines()[0] == line and "newest is the last one" in done.stderr
    assert "did you mean newest?" in attn(*command, "--checkpoint", "newst").stderr


def test_a_refused_run_leaves_no_folder_of_runs(attn, tmp_path):
    done = attn("train", "data=text", "data.train=missing", "logger.wandb=off")
    assert done.returncode == 2 and "data.train=missing: there is no such file" in done.stderr
    assert not list(tmp_path.iterdir())


def test_streams_that_are_missing_are_the_null_device(tmp_path):
    code = (
        "import os, sys\nfrom experiments.commands.frame.ending import open_missing_streams\nopen_missing_streams()\n"
        "file = open(sys.argv[1], 'w')\nprint('lost', file=sys.stderr, flush=True)\nos.system('echo lost >&2')\n"
        "file.write(f'{file.fileno() > 2} {sys.stdin.read()!r} {sys.stdout.isatty()}')"
    )
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    subprocess.run([*closed, sys.executable, "-c", code, tmp_path / "file"], cwd=ROOT, check=True, timeout=60)
    assert (tmp_path / "file").read_text() == "True '' False"


def test_a_letter_that_the_encoding_of_the_output_lacks_is_an_escape(environment):
    code = "import cli\ncli.app = lambda: print('l\\u00e4ufe')\ncli.main()"
    ascii_only = environment | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=ascii_only, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, "l\\xe4ufe\n"), done.stderr


COMMANDS = (["--help"], ["--version"], ["table"], ["train", "--cfg", "job"], ["compare", "--help"])


@pytest.mark.campaign
@pytest.mark.parametrize("words", COMMANDS)
def test_an_output_that_takes_nothing_is_said_in_a_line(environment, words):
    def end(stdout: int) -> tuple[int, list[str]]:
        command = [sys.executable, str(ROOT / "cli.py"), *words]
        done = subprocess.run(command, env=environment, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=120)
        return done.returncode, done.stderr.splitlines()

    code, lines = end(os.open("/dev/full", os.O_WRONLY))
    assert code == 1 and len(lines) == 1 and "the output can't be written: No space left" in lines[0]
    assert end(pipe_without_reader()) == (ExitCode.CLOSED_PIPE, [])


def pipe_without_reader() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def test_a_reader_that_has_gone_ends_a_command_without_a_word(monkeypatch, capfd):
    def broken(stdout: int) -> tuple[ExitCode | None, str]:
        with os.fdopen(stdout, "w") as stream, monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", stream)
            code = explained(BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)), "attn compare")
        return code, capfd.readouterr().err

    assert broken(pipe_without_reader()) == (ExitCode.CLOSED_PIPE, "")
    # it was another pipe that broke
    assert broken(os.open(os.devnull, os.O_WRONLY)) == (
        ExitCode.FAILED, "attn compare: the output can't be written: Broken pipe\n"
    )  # fmt: skip


def test_an_error_that_an_interruption_caused_is_the_interruption():
    try:
        try:
            raise Interrupted(signal.SIGTERM)
        finally:
            None.cleaned_up()
    except AttributeError as error:
        assert message_and_exit_code(error) == ("interrupted by SIGTERM", 128 + signal.SIGTERM)
    assert message_and_exit_code(AttributeError("alone")) is None


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("words", "number"),
    [(["variants"], signal.SIGINT), (["bench", "--rounds", "99"], signal.SIGTERM), (["table"], signal.SIGINT)],
)
def test_a_signal_ends_a_command_in_a_line_and_leaves_nothing(environment, tmp_path, chance, scale, words, number):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    interrupted, longest = 0, 8.0
    for attempt in range(10 * scale):
        if interrupted == 2 * scale:
            break
        command = [sys.executable, str(ROOT / "cli.py"), *words]
        own = environment | {"TMPDIR": str(temporary), "ATTN_CACHE": str(tmp_path / f"cache{attempt}")}
        with subprocess.Popen(
            command, cwd=tmp_path, env=own, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process:
            with suppress(subprocess.TimeoutExpired):
                process.wait(chance.uniform(longest / 8, longest))
            process.send_signal(number)
            _, said = process.communicate(timeout=120)
        if process.returncode == 0:
            # it had ended before the signal
            longest /= 2
        # a process without its handlers ends by the signal
        elif process.returncode != -number:
            assert process.returncode == 128 + number and "Traceback" not in said, said
            assert said.splitlines()[-1].endswith(f"interrupted by {number.name}"), said
            # torch keeps its compiler's files for the next time
            left = [path.name for path in temporary.iterdir() if not path.name.startswith("torchinductor")]
            assert not left
            interrupted += 1
    assert interrupted, "no signal came while the command ran"


def test_a_process_without_sighup_goes_on_when_its_terminal_is_closed():
    """as one that was disowned"""
    assert code_without_terminal(WRITER) == 0
