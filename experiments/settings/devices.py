"""The number of devices of a run, and the size of the parts of a batch that they take."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from experiments.failures.wording import as_yaml


def _device(value: Any) -> Any:
    kind, colon, number = str(value).partition(":")
    if value not in ("auto", "cpu", "cuda") and not (kind == "cuda" and colon and number.isdecimal()):
        why = "; losses are summed in float64, which Apple's GPUs don't have" if kind == "mps" else ""
        known = "auto, cpu, cuda, and cuda:0, cuda:1, ... for one GPU of several"
        raise ValueError(f"{as_yaml(value)} must be one of {known}{why}")
    return value


def _devices(value: Any) -> Any:
    if value != "auto" and (type(value) is not int or value < 1):
        raise ValueError(f"{as_yaml(value)} must be auto, or a whole number from 1 on")
    return value


Device = Annotated[str, BeforeValidator(_device)]
Devices = Annotated[int | Literal["auto"], BeforeValidator(_devices)]


def largest_part(sequences: int, devices: int) -> int:
    """The largest number of sequences in a part of a batch that leaves one part for every device; 0 if there are too
    few.
    """
    return sequences if devices == 1 else min(-(-sequences // devices), (sequences - 1) // (devices - 1))
