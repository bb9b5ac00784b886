"""What a cell will cost on this machine: a few of its steps are really trained, once, and remembered.

A deep model is trained at two small depths and continued in a line, as its time is linear in the layers; a big batch at
as many tokens as keep a step short. The steps are those of `attn train`, on text that needs no network; a translation's
sentences are about as long as is allowed, so real ones take less.
"""

from __future__ import annotations

import functools
import itertools
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.config.compose import compose, override
from experiments.data.python_docs import documents
from experiments.data.store import Cache
from experiments.record.folder import PLACES
from experiments.settings.data import PairFiles
from experiments.settings.objective import Translation
from experiments.settings.run import Settings
from experiments.tables.sources.source import Prediction
from experiments.tasks.choose import task_of
from experiments.training.run_length import planned_steps

STEPS = 8  # the clock leaves out the first five
DEEPEST, SHALLOW = 4, 2  # layers: a model up to the first is trained whole, a deeper one at both
TOKENS = {"cpu": 1024, "cuda": 32768}  # at once
PAIRS = 4096  # to translate, where that is what is calibrated
EVALUATION = 3  # times as fast as training: no backward pass
START_SECONDS = 5.0  # of a cell's process


def predict(settings: Settings, console: Console, roughly: bool = False) -> Prediction:
    """Of a run like this; None for what the calibration could not find out. roughly: by FLOPs, from one small model."""
    steps = planned_steps(settings)
    read = steps and steps * settings.batch_size * _row(settings)
    # how much of a row is no padding only the sentences say
    tokens = None if isinstance(settings.objective, Translation) else read
    peak = remembered(settings, ["memory", _deciding(settings)], lambda: _peak_bytes(settings))
    memory = None if peak is None else int(peak)
    rate = _by_flops(settings, console) if roughly else _seconds_per_token(settings, console)
    if read is None or rate is None:
        minutes = settings.trainer.max_minutes
        return Prediction(minutes and 60 * minutes, tokens, memory)
    seconds = START_SECONDS + rate * (read + _evaluated_tokens(settings, steps or 0) / EVALUATION)
    return Prediction(seconds, tokens, memory)


def _evaluated_tokens(settings: Settings, steps: int) -> int:
    """Of all evaluations, where their number of sequences is set: how long a whole split is only the text says."""
    sequences = settings.trainer.evaluation_sequences or 0
    return -(-steps // settings.trainer.evaluate_every) * sequences * _row(settings)


def _row(settings: Settings) -> int:
    """Tokens of a sequence; of a pair at most so many, both sides together."""
    return settings.length * (2 if isinstance(settings.objective, Translation) else 1)


def _by_flops(settings: Settings, console: Console) -> float | None:
    """Seconds a token, if its FLOPs take as long as those of a small model, the same for every table."""
    small, flops = _small_model(settings.trainer.device, settings.cache)
    measured = _measured(small, console)
    return measured and measured * _flops(settings) / flops


@functools.cache
def _small_model(device: str, cache: str) -> tuple[Settings, float]:
    """A few steps of it, and its FLOPs a token."""
    import torch

    preset = "small" if device != "cpu" and torch.cuda.is_available() else "nano"
    small = compose([f"model={preset}", f"trainer.device={device}", f"cache={cache}"])
    small = _shortened(small, min(small.layers, DEEPEST))
    return small, _flops(small)


def _flops(settings: Settings) -> float:
    """Of training on a token; nothing is allocated."""
    import torch

    from experiments.training.predicted_memory import Ids

    source = task_of(settings)
    size = source.vocabulary_size()
    with torch.device("meta"):
        model = source.assemble(size)
    return model.flops_per_token(settings.length, source.objective(Ids(size)).predicted_share)


def _seconds_per_token(settings: Settings, console: Console) -> float | None:
    layers = settings.layers
    if layers <= DEEPEST:
        return _measured(_shortened(settings, layers), console)
    shallow, deep = (_measured(_shortened(settings, depth), console) for depth in (SHALLOW, DEEPEST))
    if shallow is None or deep is None:
        return None
    # noise must not let a deeper model be quicker
    return deep + max(deep - shallow, 0.0) / (DEEPEST - SHALLOW) * (layers - DEEPEST)


def _shortened(settings: Settings, layers: int) -> Settings:
    """The same model and step, on text that every machine has, for a few steps and without a trace."""
    import torch

    device = "cuda" if settings.trainer.device != "cpu" and torch.cuda.is_available() else "cpu"
    at_once = min(settings.trainer.micro_batch or settings.batch_size, settings.batch_size)
    sequences = max(1, min(at_once, TOKENS[device] // _row(settings)))
    translates = isinstance(settings.objective, Translation)
    words = [
        *(["data=pairs", "data.train=made", "objective.bleu_pairs=0"] if translates else ["data=python_docs"]),
        f"layers={layers}", f"batch_size={sequences}", f"max_steps={STEPS}", "seed=0",
        "trainer.micro_batch=null", "trainer.max_tokens=null", "trainer.max_minutes=null",
        f"trainer.log_every={STEPS}", f"trainer.evaluate_every={STEPS}", "trainer.evaluation_sequences=1",
        f"trainer.checkpoint_every={STEPS}", "logger.wandb=off",
    ]  # fmt: skip
    return override(settings.model_dump(), words)


def _measured(settings: Settings, console: Console) -> float | None:
    """Seconds a token of a row, padding counted, of the shortened run; from the cache or from training it now."""

    def train() -> float | None:
        from experiments.launch.worker import run_cell
        from experiments.record.folder import run_name

        name = run_name(settings.model_dump())
        console.print(f"calibrating: {STEPS} steps of {name}", markup=False, highlight=False, soft_wrap=True)
        with tempfile.TemporaryDirectory() as scratch:
            made = settings.data
            if isinstance(made, PairFiles):
                made = made.model_copy(update={"train": str(_made_pairs(Path(scratch) / "pairs.tsv", settings.length))})
            outcome = run_cell(settings.model_copy(update={"runs": scratch, "data": made}))
        result = outcome.result
        if result is None or not result.tokens_per_second:
            console.print(f"not calibrated: {outcome.reason}", markup=False, highlight=False, soft_wrap=True)
            return None
        share = result.tokens / (result.steps * settings.batch_size * _row(settings))  # that is no padding
        return share / result.tokens_per_second

    return remembered(settings, ["time", _deciding(settings)], train)


def _made_pairs(path: Path, length: int) -> Path:
    """A side has half as many words as it may have tokens: the longest of a batch is then about as long as allowed."""
    size = max(1, length // 2)
    words = list(itertools.islice((word for text in documents() for word in text.split()), 2 * PAIRS * size))
    sides = [" ".join(words[start : start + size]) for start in range(0, len(words), size)]
    lines = (f"{source}\t{target}\n" for source, target in zip(sides[::2], sides[1::2], strict=False))
    path.write_text("".join(lines), encoding="utf-8")
    return path


def _peak_bytes(settings: Settings) -> float:
    from experiments.training.predicted_memory import predict_peak_bytes

    return float(predict_peak_bytes(settings, task_of(settings).vocabulary_size()))


def _deciding(settings: Settings) -> dict[str, object]:
    """What time and memory depend on: not the text, the seed, or where things are kept."""
    return settings.model_copy(update={"seed": 0}).model_dump(exclude={*PLACES, "data"})


def remembered(settings: Settings, key: Sequence[object], make: Callable[[], Any]) -> Any:
    """JSON kept in the cache folder for this machine; what could not be found, None, is tried again next time."""
    import torch

    from experiments.measure.hardware import device_name, resolve_device

    machine = device_name(resolve_device(settings.trainer.device))
    cache, whole_key = Cache(Path(settings.cache), None), ["calibration", machine, torch.__version__, *key]
    known = cache.recall(whole_key)
    if known is not None:
        return json.loads(known)
    made = make()
    if made is not None:
        cache.remember(whole_key, json.dumps(made))
    return made
