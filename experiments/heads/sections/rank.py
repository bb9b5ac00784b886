"""The section on the low-rank bottleneck: the rank of the logits compared with key size and length."""

# N queries, M memory

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from attention.kernels.problem import Stage
from experiments.heads import figures
from experiments.heads.hooks import has_stages, read_stages
from experiments.heads.measures import rank
from experiments.heads.options import HeadsOptions
from experiments.heads.parts import Part, parts_of
from experiments.heads.section import Section
from experiments.heads.trained_run import TrainedRun

RANK_SEQUENCES = 8
BEFORE_AND_AFTER: tuple[Stage, Stage] = ("logits", "mixed_logits")


def make(run: TrainedRun, options: HeadsOptions) -> Section | None:
    """The section; None without a softmax of logits."""
    if not has_stages(run.model, "mixed_logits", "weights"):
        return None
    inputs, is_text = _read(run)
    model = run.model.double()
    stages = [stage for stage in BEFORE_AND_AFTER if has_stages(model, stage)]
    try:
        layers = read_stages(model, inputs, *stages, "weights")
    finally:
        model.float()
    sections = [
        _of_part(run, part, [layers[place] for place in part.places], is_text[part.queries]) for part in parts_of(model)
    ]
    tables = {name: [row for section in sections for row in section.tables[name]] for name in ("rank", "matching")}
    pictures = {name: figure for section in sections for name, figure in section.figures.items()}
    matrix, limit = ("N x M", "the smaller of N and M") if run.has_two_sides else ("N x N", "N")
    text = (
        f"The logits QK^T of a head are an {matrix} matrix of rank at most d_k. Mixed over h heads they can reach h "
        f"d_k, or {limit}. {' '.join(section.text for section in sections)} A second picture compares the weights of "
        "logits that are cut down to each rank with the true weights."
    )
    return Section("The bottleneck", text, pictures, tables)


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


def _of_part(run: TrainedRun, part: Part, layers: list[dict[str, Tensor]], is_text_BN: Tensor) -> Section:
    """The section's content for the layers of a part.

    layers: the stages of each, [B, H, N, M]; is_text_BN: the queries that are not padding.
    """
    # a mask forbids what has no weight in float64; a column to which only padding may attend is padding too
    allowed = [(stages["weights"] != 0) & is_text_BN[:, None, :, None] for stages in layers]
    length = max(int(maps.any(-1).sum(-1).minimum(maps.any(-2).sum(-1)).max()) for maps in allowed)
    ranks = [rank for rank in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512) if rank <= length]
    rows, curves = [], []
    effective_ranks: dict[str, list[npt.NDArray[np.float64]]] = {"logits": [], "mixed_logits": []}
    shown = {"logits": "before", "mixed_logits": "after"}
    is_product = "logits" in layers[0]
    if not is_product:
        del shown["logits"]
    for layer, (stages, allowed_BHNM) in enumerate(zip(layers, allowed, strict=True), 1):
        divergences = rank.divergence_by_rank(stages["mixed_logits"], ranks, allowed_BHNM).mean(1)
        curves.append(divergences.mean(1).numpy())
        for stage in shown:
            maps = rank.attended(stages[stage], allowed_BHNM.any(1, keepdim=True))
            numerical, effective = rank.numerical_rank(maps).double().mean(0), rank.effective_rank(maps).mean(0)
            effective_ranks[stage].append(effective.numpy())
            rows += [
                part.row | {"layer": layer, "stage": stage, "head": head, "numerical_rank": n, "effective_rank": e}
                for head, (n, e) in enumerate(zip(numerical.tolist(), effective.tolist(), strict=True), 1)
            ]
    divergence_rows = [
        part.row | {"layer": layer, "rank": r, "divergence": float(value)}
        for layer, values in enumerate(curves, 1)
        for r, value in zip(ranks, values, strict=True)
    ]
    sizes = run.model.attentions[part.places[0]].sizes
    heads, key_size = sizes.key_heads, sizes.key_size
    length_name = "N" if part.places_compare else "min(N, M)"
    means = [
        f"{np.mean([row['numerical_rank'] for row in rows if row['stage'] == stage]):.1f} {when} mixing"
        for stage, when in shown.items()
    ]
    text = (
        (f"{part.title}: " if part.title else "")
        + ("" if is_product else "The logits of this attention are not QK^T, so d_k does not bound their rank. ")
        + f"With d_k = {key_size}, h d_k = {heads * key_size} and {length_name} = {length}, the mean numerical rank is "
        f"{' and '.join(means)}."
    )
    lines = {f"key size d_k = {key_size}": key_size, f"length {length_name} = {length}": length}
    if key_size == length:
        lines = {f"key size d_k = length {length_name} = {length}": length}
    if heads * key_size < length:
        lines[f"h d_k = {heads * key_size}"] = heads * key_size
    by_rank = figures.effective_ranks(effective_ranks["logits"], effective_ranks["mixed_logits"], lines)
    pictures = {
        part.of("rank"): figures.titled(by_rank, part.title),
        part.of("matching"): figures.titled(figures.rank_divergences(ranks, curves, key_size), part.title),
    }
    return Section("", text, pictures, {"rank": rows, "matching": divergence_rows})
