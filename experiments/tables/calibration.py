"""What a cell will cost on this machine: a few of its steps are really trained, once, and remembered.

A deep model is trained at two small depths and continued in a line, as its time is linear in the layers; a big batch at
as many tokens as keep a step short. The steps are those of `attn train`, on text that needs no network.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from experiments.configuration import compose, override
from experiments.data.store import Cache
from experiments.material import material
from experiments.record.folder import PLACES
from experiments.settings import Settings, Translation
from experiments.tables.source import Prediction
from experiments.training.planned import planned_steps

STEPS = 8  # the clock leaves out the first five
DEEPEST, SHALLOW = 4, 2  # layers: a model up to the first is trained whole, a deeper one at both
TOKENS = {"cpu": 1024, "cuda": 32768}  # at once
EVALUATION = 3  # times as fast as training: no backward pass
START_SECONDS = 5.0  # of a cell's process


def predict(settings: Settings, console: Console, roughly: bool = False) -> Prediction:
    """Of a run like this; None for what the calibration could not find out. roughly: by FLOPs, from one small model."""
    steps = planned_steps(settings)
    tokens = steps and steps * settings.batch_size * settings.length
    peak = _remembered(settings, ["memory", _deciding(settings)], lambda: _peak_bytes(settings))
    memory = None if peak is None else int(peak)
    if isinstance(settings.objective, Translation):
        # how long its sentences are only the text says, and other text has no pairs
        return Prediction(None, None, memory)
    rate = _by_flops(settings, console) if roughly else _seconds_per_token(settings, console)
    if tokens is None or rate is None:
        minutes = settings.trainer.max_minutes
        return Prediction(minutes and 60 * minutes, tokens, memory)
    seconds = START_SECONDS + rate * (tokens + _evaluated_tokens(settings, steps or 0) / EVALUATION)
    return Prediction(seconds, tokens, memory)


def _evaluated_tokens(settings: Settings, steps: int) -> int:
    """Of all evaluations, where their number of sequences is set: how long a whole split is only the text says."""
    sequences = settings.trainer.evaluation_sequences or 0
    return -(-steps // settings.trainer.evaluate_every) * sequences * settings.length


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

    from experiments.measure.memory import Ids

    source = material(settings)
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
    sequences = max(1, min(at_once, TOKENS[device] // settings.length))
    words = [
        f"layers={layers}", f"batch_size={sequences}", f"max_steps={STEPS}", "seed=0", "data=python_docs",
        "trainer.micro_batch=null", "trainer.max_tokens=null", "trainer.max_minutes=null",
        f"trainer.log_every={STEPS}", f"trainer.evaluate_every={STEPS}", "trainer.evaluation_sequences=1",
        f"trainer.checkpoint_every={STEPS}", "logger.wandb=off",
    ]  # fmt: skip
    return override(settings.model_dump(), words)


def _measured(settings: Settings, console: Console) -> float | None:
    """Seconds a token of the shortened run, from the cache or from training it now."""

    def train() -> float | None:
        from experiments.record.folder import run_name
        from experiments.sweep.runner import run_cell

        name = run_name(settings.model_dump())
        console.print(f"calibrating: {STEPS} steps of {name}", markup=False, highlight=False, soft_wrap=True)
        with tempfile.TemporaryDirectory() as scratch:
            outcome = run_cell(settings.model_copy(update={"runs": scratch}))
        if outcome.result is None or not outcome.result.tokens_per_second:
            console.print(f"not calibrated: {outcome.reason}", markup=False, highlight=False, soft_wrap=True)
            return None
        return 1 / outcome.result.tokens_per_second

    return _remembered(settings, ["time", _deciding(settings)], train)


def _peak_bytes(settings: Settings) -> float:
    from experiments.measure.memory import predict_peak_bytes

    return float(predict_peak_bytes(settings, material(settings).vocabulary_size()))


def _deciding(settings: Settings) -> dict[str, object]:
    """What time and memory depend on: not the text, the seed, or where things are kept."""
    return settings.model_copy(update={"seed": 0}).model_dump(exclude={*PLACES, "data"})


def _remembered(settings: Settings, key: list[object], make: Callable[[], float | None]) -> float | None:
    """A number kept in the cache folder for this machine; one that could not be found is tried again next time."""
    import torch

    from experiments.measure.hardware import device_name, resolve_device

    machine = device_name(resolve_device(settings.trainer.device))
    cache, whole_key = Cache(Path(settings.cache), None), ["calibration", machine, torch.__version__, *key]
    known = cache.recall(whole_key)
    if known is not None:
        return float(known)
    made = make()
    if made is not None:
        cache.remember(whole_key, repr(made))
    return made
