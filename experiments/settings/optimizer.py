"""The optimizers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from experiments.settings.group import Fraction, Group, NonNegative, Positive, Rate


class Stepping(Group):
    """The settings of all optimizers; weight decay applies to matrices, not to biases and norms."""

    learning_rate: Rate  # peak learning rate
    head_mixing_rate_factor: Rate  # factor on learning_rate for the parameters that mix heads (P_l, P_w)
    position_rate_factor: Rate  # factor on learning_rate for learned positions and the relative bias
    weight_decay: NonNegative  # weight decay of matrices
    clip: Positive | None  # largest gradient norm; null: no clipping


class AdamW(Stepping):
    """AdamW with decoupled decay (Loshchilov and Hutter 2019)."""

    kind: Literal["adamw"]
    beta1: Fraction  # decay of the first moment
    beta2: Fraction  # decay of the second moment
    epsilon: Positive  # added to the root of the second moment


class Adafactor(Stepping):
    """Adafactor (Shazeer and Stern 2018): the learning rate is relative to the scale of each parameter."""

    kind: Literal["adafactor"]
    beta2_decay: Annotated[float, Field(lt=0)]  # the decay of the second moment at step t is 1 - t^beta2_decay
    least_scale: Positive  # lower bound on the root mean square of a parameter, which scales its update
    update_clip: Annotated[float, Field(ge=1, allow_inf_nan=False)]  # largest root mean square of an update at rate 1


class Muon(Stepping):
    """Muon (Jordan et al. 2024) for the hidden matrices; AdamW, with its betas and epsilon, for the rest."""

    kind: Literal["muon"]
    momentum: Fraction  # momentum of the hidden matrices
    nesterov: bool  # look ahead by one step of momentum
    newton_schulz_steps: Annotated[int, Field(ge=1, le=99)]  # iterations that make an update orthogonal
    beta1: Fraction  # decay of the first moment
    beta2: Fraction  # decay of the second moment
    epsilon: Positive  # added to the root of the second moment


class Lamb(Stepping):
    """LAMB (You et al. 2020), for large batches."""

    kind: Literal["lamb"]
    beta1: Fraction  # decay of the first moment
    beta2: Fraction  # decay of the second moment
    epsilon: Positive  # added to the root of the second moment


Optimizer = Annotated[AdamW | Adafactor | Muon | Lamb, Field(discriminator="kind")]
