"""The time of a training step, for one configuration after the other.

All of them are timed in one process, because a process of its own spends many times as long on its imports.
"""

from __future__ import annotations

import gc
import statistics
from contextlib import ExitStack
from functools import partial
from types import TracebackType

from rich.console import Console

from experiments.config.check import from_tree
from experiments.display.lines import say
from experiments.failures.failure import Failure
from experiments.failures.wording import first_line
from experiments.processes.answering import Answerer, AnswererEnded, questions
from experiments.settings.run import Settings

MODULE = "experiments.tables.sources.step_clock"
# steps at most, after one that allocates memory and chooses kernels; fewer than half of them prepare a CUDA graph
TIMED = 9
ENOUGH = 1.0  # seconds of timed steps, after which no other begins: a long step is less disturbed than a short one


class StepClock:
    """A process that times steps. It starts with the first one, and ends with the block.

    A configuration that ends it, usually for want of memory, has no time; the next one starts another process.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._block = ExitStack()
        self._answerer: Answerer | None = None

    def __enter__(self) -> StepClock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._block.close()

    def seconds(self, settings: Settings) -> float | None:
        """Seconds of a training step of these settings, as `attn train` takes it, on random tokens.

        None if no step can be taken; the reason is printed.
        """
        self._answerer = self._answerer or self._block.enter_context(Answerer(MODULE))
        try:
            answer = self._answerer.ask(settings.model_dump())
        except AnswererEnded as ended:
            self._answerer, answer = None, {"reason": str(ended)}
        if "reason" in answer:
            say(self._console, f"not timed: {answer['reason']}")
            return None
        return float(answer["seconds"])


def step_seconds(settings: Settings) -> float:
    """Seconds of a training step in this process: the median of one to nine, depending on how long they take.

    Raises Failure for a model that cannot be built, OutOfMemoryError, RuntimeError of torch.
    """
    import torch

    from experiments.data.packing import Packed
    from experiments.measure.hardware import resolve_device, resolve_precision
    from experiments.measure.timing import seconds
    from experiments.model.kernel_availability import set_kernel_cache
    from experiments.tasks.choose import task_of
    from experiments.training.made_up import MadeUpVocabulary
    from experiments.training.step.learner import learner_of

    set_kernel_cache(settings)
    torch.set_num_threads(settings.trainer.threads)
    device = resolve_device(settings.trainer.device)
    task = task_of(settings)
    vocabulary = MadeUpVocabulary(task.vocabulary_size())
    learner = learner_of(
        settings,
        task.build_initialized_model(vocabulary.vocabulary_size).to(device),
        task.objective(vocabulary),
        Packed("train", vocabulary.random_rows(settings), 0, 0, 0),
        device=device,
        precision=resolve_precision(settings.trainer.precision, device),
    )
    times: list[float] = []
    for step in range(1, TIMED + 2):
        times.append(seconds(partial(learner.take, step, settings.learning_rate), device))
        if sum(times[1:]) > ENOUGH:
            break
    return statistics.median(times[1:])


def main() -> None:
    """Answer the settings of a run with the seconds of its step, or the reason why there are none."""
    with questions() as (trees, answer):
        for tree in trees:
            try:
                answer({"seconds": step_seconds(from_tree(tree))})
            except (Failure, RuntimeError, MemoryError) as error:
                answer({"reason": first_line(error)})
            gc.collect()


if __name__ == "__main__":
    main()
