"""The cost of a cell on this machine, predicted from a few steps that are trained once and remembered.

A deep model is trained at two small depths and extrapolated along a line, because its time is linear in the number of
layers. A large batch is timed with a number of tokens that keeps a step short. The steps are those of `attn train`, on
a text that needs no network. The sentence pairs are about as long as allowed, so real ones take less time.
"""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.config.compose import compose
from experiments.config.recorded import override
from experiments.data.stand_in import stand_in
from experiments.data.store import Cache
from experiments.record.folder import LOCATION_KEYS
from experiments.settings.run import Settings
from experiments.tables.sources.source import Prediction
from experiments.tasks.choose import task_of
from experiments.training.run_length import planned_steps

STEPS = 8  # the first five are not timed
DEEPEST, SHALLOW = 4, 2  # layers: a model of up to the first depth is trained whole, a deeper one at both depths
TOKENS = {"cpu": 1024, "cuda": 32768}  # at once
EVALUATION = 3  # evaluation is this many times as fast as training, because it has no backward pass
START_SECONDS = 5.0  # of a cell's process


def predict(settings: Settings, console: Console, roughly: bool = False) -> Prediction:
    """Predict the cost of a run; None for a part that the calibration could not measure.

    roughly: from FLOPs and one small model, without training steps of the run itself.
    """
    steps = planned_steps(settings)
    sequences = steps and steps * settings.batch_size
    read = settings.objective.tokens_read(settings.length)
    tokens = None if sequences is None or read is None else sequences * read
    peak = remembered(settings, ["memory", _deciding(settings)], lambda: _peak_bytes(settings))
    memory = None if peak is None else int(peak)
    rate = _by_flops(settings, console) if roughly else _seconds_per_token(settings, console)
    if sequences is None or rate is None:
        minutes = settings.trainer.max_minutes
        return Prediction(minutes and 60 * minutes, tokens, memory)
    evaluated = _evaluated_sequences(settings, steps or 0) / EVALUATION
    return Prediction(START_SECONDS + rate * settings.row_length * (sequences + evaluated), tokens, memory)


def _evaluated_sequences(settings: Settings, steps: int) -> int:
    """The number of sequences of all evaluations, if the settings give it; the length of a whole split is not known
    here.
    """
    return -(-steps // settings.trainer.evaluate_every) * (settings.trainer.evaluation_sequences or 0)


def _by_flops(settings: Settings, console: Console) -> float | None:
    """Seconds per token, if FLOPs take as long as in a small model, which is the same for every table."""
    small, flops = _small_model(settings.trainer.device, settings.cache)
    measured = _measured(small, console)
    return measured and measured * _flops(settings) / flops


@functools.cache
def _small_model(device: str, cache: str) -> tuple[Settings, float]:
    """The settings of a few steps of a small model, and its FLOPs per token."""
    import torch

    preset = "small" if device != "cpu" and torch.cuda.is_available() else "nano"
    small = compose([f"model={preset}", f"trainer.device={device}", f"cache={cache}"])
    small = _shortened(small, min(small.layers, DEEPEST))
    return small, _flops(small)


def _flops(settings: Settings) -> float:
    """FLOPs of training per token; nothing is allocated."""
    import torch

    from experiments.training.predicted_memory import Ids

    task = task_of(settings)
    size = task.vocabulary_size()
    with torch.device("meta"):
        model = task.build_model(size)
    return model.flops_per_token(settings.length, task.objective(Ids(size)).predicted_share)


def _seconds_per_token(settings: Settings, console: Console) -> float | None:
    """Seconds per token of a row, from steps of the run's own model, at two depths if it is deep."""
    layers = settings.layers
    if layers <= DEEPEST:
        return _measured(_shortened(settings, layers), console)
    shallow, deep = (_measured(_shortened(settings, depth), console) for depth in (SHALLOW, DEEPEST))
    if shallow is None or deep is None:
        return None
    # noise must not make a deeper model faster
    return deep + max(deep - shallow, 0.0) / (DEEPEST - SHALLOW) * (layers - DEEPEST)


def _shortened(settings: Settings, layers: int) -> Settings:
    """The same model and step, for a few steps that leave no files and generate nothing."""
    import torch

    device = "cuda" if settings.trainer.device != "cpu" and torch.cuda.is_available() else "cpu"
    at_once = min(settings.trainer.micro_batch or settings.batch_size, settings.batch_size)
    sequences = max(1, min(at_once, TOKENS[device] // settings.row_length))
    overrides = [
        f"layers={layers}", f"batch_size={sequences}", f"max_steps={STEPS}", "seed=0",
        "trainer.micro_batch=null", "trainer.max_tokens=null", "trainer.max_minutes=null",
        f"trainer.log_every={STEPS}", f"trainer.evaluate_every={STEPS}", "trainer.evaluation_sequences=1",
        f"trainer.checkpoint_every={STEPS}", "logger.wandb=off",
    ]  # fmt: skip
    shortened = override(settings.model_dump(), overrides)
    return shortened.model_copy(update={"objective": shortened.objective.without_generation()})


def _measured(settings: Settings, console: Console) -> float | None:
    """Seconds per token of a row, padding included, in the shortened run; remembered, or from training it."""

    def train() -> float | None:
        from experiments.cells.resources import pool_for
        from experiments.cells.side_by_side import run_cell
        from experiments.record.folder import run_name

        name = run_name(settings.model_dump())
        console.print(f"calibrating: {STEPS} steps of {name}", markup=False, highlight=False, soft_wrap=True)
        with tempfile.TemporaryDirectory() as scratch:
            data = stand_in(settings.objective.reads_pairs, Path(scratch), settings.length)
            cell = settings.model_copy(update={"runs": scratch, "data": data})
            outcome = run_cell(cell, pool_for([cell], 1))
        result = outcome.result
        if result is None or not result.tokens_per_second:
            console.print(f"not calibrated: {outcome.reason}", markup=False, highlight=False, soft_wrap=True)
            return None
        unpadded_share = result.tokens / (result.steps * settings.batch_size * settings.row_length)
        return unpadded_share / result.tokens_per_second

    return remembered(settings, ["time", _deciding(settings)], train)


def _peak_bytes(settings: Settings) -> float:
    from experiments.training.predicted_memory import predict_peak_bytes

    return float(predict_peak_bytes(settings, task_of(settings).vocabulary_size()))


def _deciding(settings: Settings) -> dict[str, object]:
    """The settings that time and memory depend on, which exclude the text, the seed and the folders."""
    return settings.model_copy(update={"seed": 0}).model_dump(exclude={*LOCATION_KEYS, "data"})


def remembered(settings: Settings, key: Sequence[object], make: Callable[[], Any]) -> Any:
    """JSON that is kept in the cache folder for this machine.

    A value that could not be found, None, is tried again next time.
    """
    import torch

    from experiments.measure.hardware import device_name, resolve_device

    machine = device_name(resolve_device(settings.trainer.device))
    cache, whole_key = Cache(Path(settings.cache), None), ["calibration", machine, torch.__version__, *key]
    stored = cache.recall(whole_key)
    if stored is not None:
        return json.loads(stored)
    value = make()
    if value is not None:
        cache.remember(whole_key, json.dumps(value))
    return value
