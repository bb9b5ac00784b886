"""The summary of a run at its end."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from pathlib import Path
from typing import TextIO

from experiments.display.numbers import duration, flops, megabytes, number, significant, words
from experiments.record.folder import RunFolder
from experiments.record.result import Result, advice_after_divergence


def print_summary(result: Result, folder: RunFolder, stream: TextIO | None = None) -> None:
    """Print the results of a run, in the form that a researcher wants to read, on `stream` (stdout)."""
    rows = [row for row in _rows(result, folder) if row[1]]
    labels = max(len(label) for label, _ in rows)
    width = min(shutil.get_terminal_size().columns, 110)
    wrap = textwrap.TextWrapper(
        width, break_long_words=False, break_on_hyphens=False, subsequent_indent=" " * (labels + 4)
    )
    lines = [wrap.fill(f"  {label:<{labels}}  {text}") for label, text in rows]
    print("", f"{folder.name}: {result.status}", *lines, sep="\n", file=stream or sys.stdout)


def _rows(result: Result, folder: RunFolder) -> list[tuple[str, str]]:
    beside = ""
    if result.validation_loss is not None and result.unigram_loss is not None:
        gap = result.unigram_loss - result.validation_loss
        beside = f", {abs(gap):.4f} {'above' if gap >= 0 else 'below'} the validation loss"
    unit = " nats per predicted token" if result.scores is None else " per target"
    total = (result.parameters or {}).get("total")
    parts = ", ".join(f"{name} {count:,}" for name, count in (result.parameters or {}).items() if name != "total")
    rate, several = result.tokens_per_second, result.devices > 1
    speed = number(rate, ",.0f", " tok/s")
    spread = number(result.tokens_per_second_spread, ",.0f", "", " +- ")
    meaning, memory = result.throughput_meaning, megabytes(result.peak_memory_bytes)
    if several and rate is not None:
        spread += f" on {result.devices} devices, {rate / result.devices:,.0f} each"
    if several and memory:
        memory += f" of the device that needed most, {megabytes(result.peak_memory_of_all_bytes)} of all"
    conditions = [
        f"{result.devices} times {result.device}" if several else result.device,
        result.precision,
        f"kernel {result.backend}" if result.backend else None,
        "weights, gradients and moments divided" if result.sharded else None,
        "layers by torch.compile" if result.compiled else None,
        f"{result.micro_batch} sequences at once" if result.micro_batch else None,
        f"seed {result.seed}",
    ]
    advice = advice_after_divergence(result.steps, result.skipped_steps) if result.status == "nan" else ""
    return [
        ("reason", result.reason or ""),
        ("what to do", advice),
        *((words(name), f"{value:.4g}") for name, value in (result.scores or {}).items()),
        ("validation loss", number(result.validation_loss, ".4f", unit)),
        ("unigram loss", number(result.unigram_loss, ".4f", beside)),
        ("training loss", number(result.training_loss, ".4f")),
        ("perplexity", "" if result.perplexity is None else significant(result.perplexity)),
        ("bits per byte", number(result.bits_per_byte, ".4f")),
        ("unknown", number(result.unknown_share or None, ".2%", " of the tokens are [UNK]")),
        *(
            (name.upper(), f"{value:.2f} ({result.scored_texts} texts, {result.text_scores_meaning})")
            for name, value in (result.text_scores or {}).items()
        ),
        ("sentence order", number(result.order_accuracy, ".1%", f" right, {number(result.order_loss, '.4f')} nats")),
        ("speed", speed and f"{speed}{spread}" + (f" ({meaning})" if meaning else "")),
        ("peak memory", memory and memory + (f" ({result.peak_memory_meaning})" if result.peak_memory_meaning else "")),
        ("parameters", "" if total is None else f"{total:,}" + (f" ({parts})" if parts else "")),
        ("training cost", "" if result.flops_per_token is None else f"{flops(result.flops_per_token)} per token"),
        ("FLOPs used", number(result.mfu, ".1%", " of the device's peak")),
        ("trained", f"{result.steps:,} steps, {result.tokens:,} tokens, {result.epochs:.2f} epochs"),
        ("skipped steps", f"{result.skipped_steps:,} (not finite)" if result.skipped_steps else ""),
        ("time", duration(result.wall_seconds)),
        ("on", ", ".join(condition for condition in conditions if condition)),
        ("folder", os.path.relpath(folder.path) if folder.path.is_relative_to(Path.cwd()) else str(folder.path)),
    ]
