"""The base of every group of settings, which is closed, immutable and strictly typed; and the ranges of settings."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

LARGEST_SIZE = 2**20


def _without_home(path: str) -> str:
    if path.startswith("~"):
        raise ValueError(f"{path}: only a shell replaces ~, outside of quotes; write $HOME, or ./~ to mean the name")
    return path


# of a dimension: the bytes of a tensor with three of the largest still fit 64 bits
Size = Annotated[int, Field(ge=1, le=LARGEST_SIZE)]
Depth = Annotated[int, Field(ge=1, le=1_000)]  # each layer takes time, even where nothing is computed
Threads = Annotated[int, Field(ge=1, le=1_024)]  # more than any machine has cores
Number = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Rate = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]  # times another rate, it fits 32 bits
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Text = Annotated[str, Field(min_length=1)]
Folder = Annotated[Text, AfterValidator(_without_home)]  # one that is made if it is missing

WhichCheckpoint = Literal["best", "newest"]  # of the lowest validation loss, or the last


class Group(BaseModel):
    """Immutable, strictly typed, and closed: a key nobody reads is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
