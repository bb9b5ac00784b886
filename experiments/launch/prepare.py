"""The corpus of a run, made in a process of its own: no memory that this takes is counted as the run's.

`python -m experiments.launch.prepare FOLDER` makes it for the run configured in FOLDER.
"""

from __future__ import annotations

import subprocess
import sys

from experiments.config.check import from_tree
from experiments.data.errors import DataError
from experiments.display.progress import Display
from experiments.launch.child import child, why_ended
from experiments.record.folder import RunFolder
from experiments.settings.exit_code import ExitCode
from experiments.settings.mistake import Failure
from experiments.settings.run import Settings
from experiments.tasks.choose import task_of


def prepare_apart(settings: Settings, folder: RunFolder) -> None:
    """See that the corpus is in the cache; progress goes to stderr. Raises DataError, Failure."""
    source = task_of(settings)
    if source.is_ready():
        return
    print(f"making the corpus, {source.name}, for the first time", file=sys.stderr)
    process = subprocess.run(
        **child("experiments.launch.prepare", folder.path), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    if process.returncode == ExitCode.MISTAKE:
        raise DataError(process.stdout.strip())
    if process.returncode < 0:
        raise Failure(f"making the corpus, {source.name}: {why_ended(process.returncode, '')}")
    if process.returncode:
        raise RuntimeError(f"making the corpus, {source.name}, ended with exit code {process.returncode}")


def main() -> ExitCode:
    """Make the corpus of the run folder in the first argument; a mistake is printed to stdout."""
    settings = from_tree(RunFolder(sys.argv[1]).config())
    try:
        with Display() as display:
            task_of(settings).prepare(display.stage)
    except DataError as mistake:
        print(mistake)
        return mistake.exit_code
    except KeyboardInterrupt:
        # the run says it
        return ExitCode.INTERRUPTED
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main())
