"""The progress of a run while it trains, live on a terminal and in plain lines elsewhere.

Progress goes to stderr and the summary to stdout, so `attn train > result.txt` stores the summary and shows the
progress.
"""

from __future__ import annotations

import math
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from experiments.display.lines import say
from experiments.display.numbers import duration, megabytes, number, significant, words

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_SECONDS = 5.0


class Display:
    """Progress of one run on `stream` (stderr). `stop` releases the terminal and must be called, so use `with`."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._live: _Live | None = None
        if self._stream.isatty():
            from rich.console import Console

            console = Console(file=self._stream, highlight=False)
            if not console.is_dumb_terminal:
                self._live = _Live(console)
        self._total: int | None = None
        self._first_step = 0
        self._started = time.monotonic()
        self._shown = -math.inf
        self._stage = self._stage_line = ""

    def __enter__(self) -> Display:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stage(self, name: str, done: int, total: int | None) -> None:
        """The progress of a preparation, such as tokenizing. total: None if it is unknown."""
        if self._live:
            self._live.show(name, done, total, "", "")
            return
        if name != self._stage:
            self._stage, self._shown = name, -math.inf
        amount = f": {done:,}" if done or total else ""
        line = name + amount + (f" of {total:,}" if total else "")
        if (self._due() or done == total) and line != self._stage_line:
            self._stage_line = line
            self._print(line)

    def start(self, total_steps: int | None, resumed_step: int = 0) -> None:
        """Training begins after `resumed_step`. total_steps: None if a time or a number of tokens ends it."""
        self._total, self._first_step = total_steps, resumed_step
        self._started = time.monotonic()
        self._shown = -math.inf
        if self._live:
            self._live.show("training", resumed_step, total_steps, "", "")

    def update(self, metrics: dict[str, Any]) -> None:
        """Show the metrics of one logged step: `step`, and of the known names those that are there."""
        step = metrics["step"]
        left = self._time_left(step)
        if self._live:
            self._live.show("training", step, self._total, left, "  ".join(_columns(metrics)))
        elif self._due() or step == self._total:
            columns = [self._step(step), *_columns(metrics, aligned=True), f"{left:>12}"]
            self._print("  ".join(columns).rstrip())

    def evaluation(
        self,
        step: int,
        loss: float,
        bits_per_byte: float | None = None,
        unigram_loss: float | None = None,
        perplexity: float | None = None,
        unknown_share: float | None = None,
        **scores: float,
    ) -> None:
        """Show an evaluation on the validation split; losses in nats per predicted token."""
        parts = [f"validation loss {loss:.4f}"]
        if perplexity is not None:
            parts.append(f"ppl {significant(perplexity)}")
        parts += [f"{words(name)} {value:.4g}" for name, value in scores.items()]
        if bits_per_byte is not None:
            parts.append(f"{bits_per_byte:.3f} bits/byte")
        if unknown_share:
            parts.append(f"{unknown_share:.2%} [UNK]")
        if unigram_loss is not None:
            parts.append(f"(unigram {unigram_loss:.2f})")
        self.message(f"{self._step(step)}  {'  '.join(parts)}")

    def message(self, text: str) -> None:
        """Show a line that stays."""
        if self._live:
            say(self._live.console, text)
        else:
            self._print(text)

    def hint(self, text: str) -> None:
        """Show a line that stays and is optional reading."""
        if self._live:
            self._live.console.print(text, style="dim", markup=False, soft_wrap=True)
        else:
            self._print(text)

    def stop(self) -> None:
        """End the live display; does nothing if there is none."""
        if self._live:
            self._live.stop()

    def _due(self) -> bool:
        if time.monotonic() - self._shown < PLAIN_SECONDS:
            return False
        self._shown = time.monotonic()
        return True

    def _print(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def _step(self, step: int) -> str:
        if self._total is None:
            return f"step {step:>6}"
        return f"step {step:>{len(str(self._total))}}/{self._total}"

    def _time_left(self, step: int) -> str:
        if self._total is None or step <= self._first_step:
            return ""
        seconds = (time.monotonic() - self._started) / (step - self._first_step) * (self._total - step)
        return f"{duration(seconds)} left"


class _Live:
    """A bar and a line of numbers at the foot of a terminal; messages scroll by above."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
        from rich.text import Text

        self.console = console
        self._bar = Progress(
            TextColumn("{task.description}"),
            TextColumn("{task.fields[count]}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
        )
        self._text = Text
        self._live = Live(console=console, refresh_per_second=4, transient=True, redirect_stdout=sys.stdout.isatty())
        self._name = ""

    def show(self, name: str, done: int, total: int | None, left: str, numbers: str) -> None:
        from rich.console import Group

        if name != self._name:
            for task in self._bar.task_ids:
                self._bar.remove_task(task)
            self._bar.add_task(name, total=total, count="", left="")
            self._name = name
        count = f"{done:,}/{total:,}" if total else f"{done:,}"
        self._bar.update(self._bar.task_ids[0], completed=done, total=total, count=count, left=left)
        line = self._text(numbers, no_wrap=True, overflow="ellipsis")
        self._live.update(Group(self._bar, line) if numbers else self._bar)
        self._live.start()

    def stop(self) -> None:
        self._live.stop()


def _columns(metrics: dict[str, Any], aligned: bool = False) -> list[str]:
    """The known numbers of a logged step, each with its unit; aligned: of equal width in every line."""
    loss = metrics.get("loss")
    cells = [
        ("loss ", 7, number(loss, ".4f"), ""),
        ("ppl ", 7, "" if "perplexity" not in metrics else significant(metrics["perplexity"]), ""),
        ("lr ", 7, number(metrics.get("learning_rate"), ".1e"), ""),
        ("", 9, number(metrics.get("tokens_per_second"), ",.0f"), " tok/s"),
        ("", 9, megabytes(metrics.get("peak_memory_bytes")), ""),
    ]
    width = [size if aligned else 0 for _, size, _, _ in cells]
    return [f"{head}{text:>{size}}{unit}" for (head, _, text, unit), size in zip(cells, width, strict=True) if text]
