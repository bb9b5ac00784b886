"""The optimizers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from experiments.settings.group import Fraction, Group, NonNegative, Positive, Size


class Stepping(Group):
    """What all optimizers have; matrices decay, biases and norms don't."""

    learning_rate: Positive  # its peak
    head_mixing_rate_factor: Positive  # of the parameters that mix heads (P_l, P_w): a factor of learning_rate
    position_rate_factor: Positive  # of learned positions and of relative ones' bias: a factor of learning_rate
    weight_decay: NonNegative  # of matrices
    clip: Positive | None  # largest gradient norm; null: no clipping


class AdamW(Stepping):
    """AdamW with decoupled decay (Loshchilov and Hutter 2019)."""

    kind: Literal["adamw"]
    beta1: Fraction  # decay of the first moment; in Muon, of the rest, which AdamW trains
    beta2: Fraction  # decay of the second moment; in Muon, of the rest
    epsilon: Positive  # added to the root of the second moment; in Muon, of the rest


class Adafactor(Stepping):
    """Adafactor (Shazeer and Stern 2018): its learning rate is relative to the scale of each parameter."""

    kind: Literal["adafactor"]
    beta2_decay: Annotated[float, Field(lt=0)]  # exponent of the step in 1 - beta2
    least_scale: Positive  # what a parameter counts as where its own root mean square is less
    update_clip: Positive  # largest root mean square of an update before the learning rate


class Muon(Stepping):
    """Muon (Jordan et al. 2024) for the hidden matrices; AdamW, with its betas and epsilon, for the rest."""

    kind: Literal["muon"]
    momentum: Fraction  # of the hidden matrices
    nesterov: bool  # look ahead by one step of momentum
    newton_schulz_steps: Size  # iterations that make an update orthogonal
    beta1: Fraction  # decay of the first moment; in Muon, of the rest, which AdamW trains
    beta2: Fraction  # decay of the second moment; in Muon, of the rest
    epsilon: Positive  # added to the root of the second moment; in Muon, of the rest


class Lamb(Stepping):
    """LAMB (You et al. 2020), for large batches."""

    kind: Literal["lamb"]
    beta1: Fraction  # decay of the first moment; in Muon, of the rest, which AdamW trains
    beta2: Fraction  # decay of the second moment; in Muon, of the rest
    epsilon: Positive  # added to the root of the second moment; in Muon, of the rest


Optimizer = Annotated[AdamW | Adafactor | Muon | Lamb, Field(discriminator="kind")]
