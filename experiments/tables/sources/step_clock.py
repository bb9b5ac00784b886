"""The time of a training step, for one configuration after the other.

All of them are timed in one process, because a process of its own spends many times as long on its imports.
"""

from __future__ import annotations

import gc
import json
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console

from experiments.config.check import from_tree
from experiments.failures.failure import Failure
from experiments.failures.wording import first_line
from experiments.processes.child import process_arguments, why_ended
from experiments.settings.run import Settings

if TYPE_CHECKING:
    from experiments.training.predicted_memory import Ids

MODULE = "experiments.tables.sources.step_clock"
TIMED = 5  # steps at most, after one that allocates memory and chooses kernels
ENOUGH = 1.0  # seconds of timed steps, after which no other begins: a long step is less disturbed than a short one


class StepClock:
    """A process that times steps. It starts with the first one, and ends with the block.

    A configuration that ends it, usually for want of memory, has no time; the next one starts another process.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> StepClock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._errors.close()

    def seconds(self, settings: Settings) -> float | None:
        """Seconds of a training step of these settings, as `attn train` takes it, on random tokens.

        None if no step can be taken; the reason is printed.
        """
        answer = self._answer(json.dumps(settings.model_dump()))
        if "reason" in answer:
            said = f"not timed: {answer['reason']}"
            self._console.print(said, markup=False, highlight=False, soft_wrap=True)
            return None
        return float(answer["seconds"])

    def _answer(self, question: str) -> dict[str, str | float]:
        if self._process is None:
            self._process = subprocess.Popen(
                **process_arguments(MODULE, ""),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
            )
        process = self._process
        assert process.stdin and process.stdout
        try:
            print(question, file=process.stdin, flush=True)
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if line:
            answer: dict[str, str | float] = json.loads(line)
            return answer
        process.communicate()
        self._process = None
        self._errors.seek(0)
        return {"reason": why_ended(process.returncode, self._errors.read().decode(errors="replace"))}


def step_seconds(settings: Settings) -> float:
    """Seconds of a training step in this process: the median of one to five, depending on how long they take.

    Raises Failure for a model that cannot be built, OutOfMemoryError, RuntimeError of torch.
    """
    import torch

    from experiments.data.packing import Packed
    from experiments.measure.hardware import resolve_device, resolve_precision
    from experiments.measure.roofline import seconds
    from experiments.model.kernel_availability import keep_kernel
    from experiments.tasks.choose import task_of
    from experiments.training.predicted_memory import Ids
    from experiments.training.step.learner import learner_of

    keep_kernel(settings)
    torch.set_num_threads(settings.trainer.threads)
    device = resolve_device(settings.trainer.device)
    task = task_of(settings)
    vocabulary = Ids(task.vocabulary_size())
    learner = learner_of(
        settings,
        task.build_initialized_model(vocabulary.vocabulary_size).to(device),
        task.objective(vocabulary),
        Packed("train", _random_tokens(settings, vocabulary), 0, 0, 0),
        device=device,
        precision=resolve_precision(settings.trainer.precision, device),
    )
    times: list[float] = []
    for step in range(1, TIMED + 2):
        times.append(seconds(partial(learner.take, step, settings.learning_rate), device))
        if sum(times[1:]) > ENOUGH:
            break
    return statistics.median(times[1:])


def _random_tokens(settings: Settings, vocabulary: Ids) -> np.ndarray:
    """A batch of rows, int64 [sequences, N]. The time of a step does not depend on the tokens."""
    shape = (settings.batch_size, settings.row_length)
    return np.random.default_rng(0).integers(len(vocabulary.special), vocabulary.vocabulary_size, shape)


def main() -> None:
    """Answer each line of stdin, which has the settings of a run, with a line that has the seconds or the reason."""
    # what libraries print is no answer
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        answer: dict[str, str | float]
        try:
            answer = {"seconds": step_seconds(from_tree(json.loads(line)))}
        except (Failure, RuntimeError, MemoryError) as error:
            answer = {"reason": first_line(error)}
        gc.collect()
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
