"""The cost of a cell on this machine, predicted from a few steps that are timed once and remembered.

A deep model is timed at two small depths and extrapolated along a line, because its time is linear in the number of
layers. A large batch is timed with a number of tokens that keeps a step short. The steps are those of `attn train`, on
random tokens. No row is padded, so real sentence pairs take less time.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from experiments.config.compose import compose
from experiments.config.recorded import override
from experiments.data.cache import Cache
from experiments.record.folder import LOCATION_KEYS
from experiments.settings.run import Settings
from experiments.tables.sources.source import Prediction
from experiments.tables.sources.step_clock import StepClock
from experiments.tasks.choose import task_of
from experiments.training.run_length import planned_steps

DEEPEST, SHALLOW = 4, 2  # layers: a model of up to the first depth is trained whole, a deeper one at both depths
TOKENS = {"cpu": 1024, "cuda": 32768}  # at once
EVALUATION = 3  # evaluation is this many times as fast as training, because it has no backward pass
START_SECONDS = 5.0  # of a cell's process


def predict(settings: Settings, clock: StepClock, roughly: bool = False) -> Prediction:
    """Predict the cost of a run; None for a part that could not be measured.

    clock: times the steps that are not remembered. roughly: from FLOPs and one small model, without steps of the run
    itself.
    """
    steps = planned_steps(settings)
    sequences = steps and steps * settings.batch_size
    read = settings.objective.tokens_read(settings.length)
    tokens = None if sequences is None or read is None else sequences * read
    peak = remembered(settings, ["memory", _deciding(settings)], lambda: _peak_bytes(settings))
    memory = None if peak is None else int(peak)
    rate = _by_flops(settings, clock) if roughly else _seconds_per_token(settings, clock)
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


def _by_flops(settings: Settings, clock: StepClock) -> float | None:
    """Seconds per token, if FLOPs take as long as in a small model, which is the same for every table."""
    small, flops = _small_model(settings.trainer.device, settings.cache)
    measured = _measured(small, clock)
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
    from experiments.model.without_values import without_values
    from experiments.training.made_up import MadeUpVocabulary

    task = task_of(settings)
    size = task.vocabulary_size()
    with without_values():
        model = task.build_model(size)
    return model.flops_per_token(settings.length, task.objective(MadeUpVocabulary(size)).predicted_share)


def _seconds_per_token(settings: Settings, clock: StepClock) -> float | None:
    """Seconds per token of a row, from steps of the run's own model, at two depths if it is deep."""
    layers = settings.layers
    if layers <= DEEPEST:
        return _measured(_shortened(settings, layers), clock)
    shallow, deep = (_measured(_shortened(settings, depth), clock) for depth in (SHALLOW, DEEPEST))
    if shallow is None or deep is None:
        return None
    # noise must not make a deeper model faster
    return deep + max(deep - shallow, 0.0) / (DEEPEST - SHALLOW) * (layers - DEEPEST)


def _shortened(settings: Settings, layers: int) -> Settings:
    """The same step of a model of this depth; what a step does not depend on is the same for all rows."""
    import torch

    device = "cuda" if settings.trainer.device != "cpu" and torch.cuda.is_available() else "cpu"
    at_once = min(settings.trainer.micro_batch or settings.batch_size, settings.batch_size)
    sequences = max(1, min(at_once, TOKENS[device] // settings.row_length))
    overrides = [
        f"layers={layers}", f"batch_size={sequences}", "max_steps=1", "seed=0",
        "trainer.micro_batch=null", "trainer.max_tokens=null", "trainer.max_minutes=null",
        "trainer.log_every=1", "trainer.evaluate_every=1", "trainer.evaluation_sequences=1",
        "trainer.checkpoint_every=1", "logger.wandb=off",
    ]  # fmt: skip
    shortened = override(settings.model_dump(), overrides)
    return shortened.model_copy(update={"objective": shortened.objective.without_generation()})


def _measured(settings: Settings, clock: StepClock) -> float | None:
    """Seconds per token of a row, padding included, in a step of these settings; remembered, or timed."""

    def time() -> float | None:
        seconds = clock.seconds(settings)
        return seconds and seconds / (settings.batch_size * settings.row_length)

    return remembered(settings, ["step", _deciding(settings)], time)


def _peak_bytes(settings: Settings) -> float:
    from experiments.training.predicted_memory import predict_peak_bytes

    return float(predict_peak_bytes(settings, task_of(settings).vocabulary_size()))


def _deciding(settings: Settings) -> dict[str, object]:
    """The settings that time and memory depend on, which exclude the text, the seed, the folders and learning rates."""
    ignored = [*LOCATION_KEYS, "data", "learning_rate", "schedule"]
    of_seed = settings.model_copy(update={"seed": 0})
    return of_seed.model_dump(exclude=dict.fromkeys(ignored, True) | {"optimizer": {"learning_rate"}})


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
