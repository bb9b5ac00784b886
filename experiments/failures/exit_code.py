"""The exit codes of `attn`, and what each means."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of `attn`, and of the processes that it starts."""

    DONE = 0
    FAILED = 1
    MISTAKE = 2
    SWEEP_FAILED = 3
    NOT_FINITE = 4
    OUT_OF_MEMORY = 5
    HUNG_UP = 129
    INTERRUPTED = 130
    CLOSED_PIPE = 141
    TERMINATED = 143

    @property
    def meaning(self) -> str:
        """The code in a line, as `attn --help` and docs/exit_codes.md say it."""
        return MEANINGS[self]


MEANINGS = {
    ExitCode.DONE: "done, by this command or by an earlier one",
    ExitCode.FAILED: "failed, for example because of a full disk or a wrong kernel; or a bug in attn, with a traceback",
    ExitCode.MISTAKE: "a mistake in the command line, the settings or the data",
    ExitCode.SWEEP_FAILED: "a cell (one run) of a sweep or a table failed; the same command tries it again",
    ExitCode.NOT_FINITE: "the loss is not finite (status nan)",
    ExitCode.OUT_OF_MEMORY: "too little memory; for a run (status oom), too little for one sequence",
    ExitCode.HUNG_UP: "ended by SIGHUP, as when a terminal is closed; the same command continues",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C; the same command continues",
    ExitCode.CLOSED_PIPE: "the program that read the output has closed it, such as `head`; nothing is said",
    ExitCode.TERMINATED: "terminated by SIGTERM; the same command continues",
}
