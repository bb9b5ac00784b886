"""The base of every group of settings, which is closed, immutable and strictly typed; and the ranges of settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from experiments.failures.failure import Mistake
from experiments.failures.unread import Idle
from experiments.failures.wording import did_you_mean

LARGEST_SIZE = 2**20
SEEDS = 2**32  # number of seeds, from 0 on


def _without_home(path: str) -> str:
    if path.startswith("~"):
        raise ValueError(f"{path}: only a shell replaces ~, outside of quotes; write $HOME, or ./~ to mean the name")
    return path


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError(f"{text!r}: has the character NUL, which no path and no name may have")
    return text


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
Seed = Annotated[int, Field(ge=0, lt=SEEDS)]
Text = Annotated[str, Field(min_length=1), AfterValidator(_without_nul)]
Folder = Annotated[Text, AfterValidator(_without_home)]  # one that is made if it is missing

WhichCheckpoint = Literal["best", "newest"]  # of the lowest validation loss, or the last


class Group(BaseModel):
    """Immutable, strictly typed, and closed: a key nobody reads is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def idle(self) -> Iterator[Idle]:
        """Yield the settings that nothing reads because of the value of another; keys are those of this group."""
        yield from ()


def known_checkpoint(word: object, setting: str) -> WhichCheckpoint:
    """The kind of checkpoint that a word names. setting: the user's way of giving it. Raises Mistake."""
    kinds: tuple[WhichCheckpoint, ...] = get_args(WhichCheckpoint)
    for kind in kinds:
        if word == kind:
            return kind
    hint = "best has the lowest validation loss, newest is the last one"
    raise Mistake(f"{setting}: must be one of {', '.join(kinds)}" + did_you_mean(str(word), kinds), hint)
