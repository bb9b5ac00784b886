"""The corpus of a run, made in a separate process, so that its memory is not counted as the run's.

`python -m experiments.cells.prepare FOLDER` makes it for the run configured in FOLDER.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import traceback
from contextlib import redirect_stdout, suppress
from pathlib import Path

from experiments.config.check import from_tree
from experiments.data.cache import Cache
from experiments.data.errors import DataError
from experiments.display.lines import warn
from experiments.display.progress import Display
from experiments.failures.exit_code import ExitCode
from experiments.failures.failure import Failure, refusal
from experiments.processes.bug_report import bug_report
from experiments.processes.child import end_with_parent, start_process, why_ended
from experiments.processes.environment_variables import ONE_THREAD
from experiments.record.folder import RunFolder
from experiments.settings.run import Settings
from experiments.tasks.choose import task_of

# what the process prints, whatever the locale
IN_UTF8 = {"PYTHONIOENCODING": "utf-8:backslashreplace"}


def prepare_in_child_process(settings: Settings, folder: RunFolder) -> None:
    """Make the corpus if the cache lacks it; progress goes to stderr. Raises DataError, Failure."""
    task = task_of(settings)
    if task.is_ready():
        return
    warn(f"preparing the corpus {task.name} for the first time")
    started = time.monotonic()
    try:
        with start_process(
            "experiments.cells.prepare", folder.path, os.environ | IN_UTF8 | ONE_THREAD,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8",
        ) as process:  # fmt: skip
            try:
                assert process.stdout
                # not communicate(), which closes the pipe that tells the process that this one is alive
                output = process.stdout.read().strip()
                process.wait()
            except BaseException:
                process.kill()
                raise
    finally:
        # a signal or a lack of memory has ended it
        with suppress(OSError):
            Cache(Path(settings.cache), None).sweep()
    if process.returncode < 0:
        raise Failure(f"preparing the corpus {task.name}: {why_ended(process.returncode, '')}")
    if process.returncode:
        if not output:
            raise RuntimeError(f"preparing the corpus {task.name} ended with exit code {process.returncode}")
        failure = DataError(output) if process.returncode == ExitCode.MISTAKE else Failure(output)
        failure.exit_code = ExitCode(process.returncode)
        raise failure
    warn(f"the corpus was prepared in {time.monotonic() - started:.0f} s")


def main() -> ExitCode:
    """Make the corpus of the run folder in the first argument; a failure is printed to stdout."""
    answer = sys.stdout
    # the next command removes what is left half made
    end_with_parent(signal.SIGKILL)
    try:
        # what a library prints must not be taken for an answer
        with redirect_stdout(sys.stderr), Display() as display:
            task_of(from_tree(RunFolder(sys.argv[1]).config())).prepare(display.stage)
    except KeyboardInterrupt:
        # the run says it
        return ExitCode.INTERRUPTED
    except Exception as error:
        failure = error if isinstance(error, Failure) else refusal(error)
        if failure is None:
            traceback.print_exc()
            failure = Failure(bug_report(error))
        print(failure, file=answer)
        return failure.exit_code
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main())
