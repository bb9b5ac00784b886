"""The section on the low-rank bottleneck: the rank of the logits compared with key size and length."""

# N queries, M memory

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from attention.kernels.problem import Stage
from attention.layers.mixed import MixedAttention
from experiments.failures.wording import joined
from experiments.heads import figures
from experiments.heads.hooks import has_stages, read_stages
from experiments.heads.measures import rank
from experiments.heads.options import HeadsOptions
from experiments.heads.parts import Part
from experiments.heads.section import Findings, Section, layer_head_matrix, over_parts
from experiments.heads.trained_run import TrainedRun
from experiments.settings.position import POSITION_KINDS

RANK_SEQUENCES = 8
NAMES: dict[Stage, str] = {"logits": "for QK^T", "mixed_logits": "before the softmax"}


def make(run: TrainedRun, options: HeadsOptions) -> Section | None:
    """The section; None without a softmax of logits."""
    if not has_stages(run.model, "mixed_logits", "weights"):
        return None
    inputs, is_text = _read(run)
    model = run.model.double()
    stages = [stage for stage in NAMES if has_stages(model, stage)]
    try:
        layers = read_stages(model, inputs, *stages, "weights")
    finally:
        model.float()
    found = over_parts(model, functools.partial(_ranks, run, layers, is_text))
    matrix, limit = ("N x M", "the smaller of N and M") if run.has_two_sides else ("N x N", "N")
    text = (
        f"The logits QK^T of a head are an {matrix} matrix of rank at most d_k. Mixed over h heads by P_l they can "
        f"reach h d_k, or {limit}; a bias of the positions can give them any rank. {found.text} A second picture "
        "compares the weights of logits that are cut down to each rank with the true weights."
    )
    return Section("The bottleneck", text, found.figures, found.tables)


def _read(run: TrainedRun) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The model's inputs for the first sequences, and which tokens of each side are not padding, bool [B, N]."""
    if not run.has_two_sides:
        tokens = next(run.token_batches())[:RANK_SEQUENCES]
        return {"tokens": tokens}, {"tokens": torch.ones_like(tokens, dtype=torch.bool)}
    batch = next(run.masked_batches())
    inputs = {name: tensor[:RANK_SEQUENCES] for name, tensor in batch.inputs.items()}
    # every target is predicted, so the other positions of the decoder are padding
    predicts = torch.zeros_like(batch.inputs["decoder_tokens"], dtype=torch.bool)
    predicts.view(-1)[batch.positions] = True
    is_source = inputs.get("mask", torch.ones_like(inputs["tokens"], dtype=torch.bool))
    return inputs, {"tokens": is_source, "decoder_tokens": predicts[:RANK_SEQUENCES]}


def _ranks(run: TrainedRun, attentions: list[dict[str, Tensor]], is_text: dict[str, Tensor], part: Part) -> Findings:
    """What is found in a part.

    attentions: the stages of each, [B, H, N, M]; is_text: by side, the tokens that are not padding, [B, N].
    """
    layers, is_text_BN = [attentions[place] for place in part.places], is_text[part.queries]
    # a mask forbids what has no weight in float64; a column to which only padding may attend is padding too
    allowed = [(stages["weights"] != 0) & is_text_BN[:, None, :, None] for stages in layers]
    length = max(int(maps.any(-1).sum(-1).minimum(maps.any(-2).sum(-1)).max()) for maps in allowed)
    ranks = [2**power for power in range(10) if 2**power <= length]
    shown = {stage: name for stage, name in NAMES.items() if stage in layers[0]}
    if "logits" in shown and all(torch.equal(stages["logits"], stages["mixed_logits"]) for stages in layers):
        del shown["mixed_logits"]
    rows = [
        {"layer": layer, "stage": stage, "head": head, "numerical_rank": numerical, "effective_rank": effective}
        for layer, (stages, allowed_BHNM) in enumerate(zip(layers, allowed, strict=True), 1)
        for stage in shown
        for head, (numerical, effective) in enumerate(_mean_ranks(stages[stage], allowed_BHNM), 1)
    ]
    divergences = [
        rank.divergence_by_rank(stages["mixed_logits"], ranks, allowed_BHNM).mean(1).mean(1).numpy()
        for stages, allowed_BHNM in zip(layers, allowed, strict=True)
    ]
    matching = [
        {"layer": layer, "rank": r, "divergence": float(value)}
        for layer, values in enumerate(divergences, 1)
        for r, value in zip(ranks, values, strict=True)
    ]
    by_name = {name: [row for row in rows if row["stage"] == stage] for stage, name in shown.items()}
    sizes = run.model.attentions[part.places[0]].sizes
    heads, key_size = sizes.key_heads, sizes.key_size
    length_name = "N" if part.queries == part.memory else "min(N, M)"
    means = [f"{np.mean([row['numerical_rank'] for row in of_stage]):.1f} {name}" for name, of_stage in by_name.items()]
    text = (
        f"With d_k = {key_size}, h d_k = {heads * key_size} and {length_name} = {length}, the mean numerical rank is "
        f"{' and '.join(means)}{_after(run, part) if 'mixed_logits' in shown else ''}."
    )
    if "logits" not in shown:
        text = f"The logits of this attention are not QK^T, so d_k does not bound their rank. {text}"
    lines = {f"key size d_k = {key_size}": key_size, f"length {length_name} = {length}": length}
    if key_size == length:
        lines = {f"key size d_k = length {length_name} = {length}": length}
    if heads * key_size < length:
        lines[f"h d_k = {heads * key_size}"] = heads * key_size
    effective = {name: layer_head_matrix(of_stage, "effective_rank") for name, of_stage in by_name.items()}
    pictures = {
        "rank": figures.effective_ranks(effective, lines),
        "matching": figures.rank_divergences(ranks, divergences, key_size),
    }
    return Findings(pictures, {"rank": rows, "matching": matching}, text)


def _after(run: TrainedRun, part: Part) -> str:
    """What is applied to QK^T before the softmax, as the end of a sentence."""
    attention = run.model.attentions[part.places[0]]
    mixes = isinstance(attention, MixedAttention) and attention.logits_projection.mixes
    # positions of two sequences have no bias
    biased = POSITION_KINDS[run.settings.model.position].bias is not None and part.queries == part.memory
    applied = [name for name, applies in (("P_l", mixes), ("the bias of the positions", biased)) if applies]
    return f", after {joined(applied)}" if applied else ""


def _mean_ranks(logits_BHNM: Tensor, allowed_BHNM: Tensor) -> Iterator[tuple[float, float]]:
    """The numerical and the effective rank of each head, averaged over the sequences."""
    maps = rank.attended(logits_BHNM, allowed_BHNM.any(1, keepdim=True))
    numerical, effective = rank.numerical_rank(maps).double().mean(0), rank.effective_rank(maps).mean(0)
    return zip(numerical.tolist(), effective.tolist(), strict=True)
