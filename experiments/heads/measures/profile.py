"""The attention of each softmax head in numbers: entropy, confidence, special tokens, positions, rare tokens.

Clark et al. 2019 (1906.04341) and Voita et al. 2019 (1905.09418). All are means over the queries that are not special
tokens.
"""

# B batch, N queries, M memory, H heads

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from experiments.heads.hooks import read_stages
from experiments.heads.parts import Part
from experiments.heads.trained_run import TrainedRun

MAX_OFFSET = 8  # largest offset of a positional head, in either direction
POSITIONAL_SHARE = 0.9  # share of the tokens (Voita et al.)
RARE_TOKEN_SHARE = 0.5  # share of the sequences' tokens (Voita et al.)
SPECIAL_WEIGHT_SHARE = 0.5  # share of the weight on special tokens
BROAD_ENTROPY_SHARE = 0.8  # share of the largest entropy that a query can have


def entropy(weights: Tensor) -> Tensor:
    """[..., M] -> [...], nats, between 0 and ln M (Clark et al., section 3.3)."""
    return -torch.xlogy(weights, weights).sum(-1)


def entropy_share(weights_BHNM: Tensor) -> tuple[Tensor, Tensor]:
    """[B, H, N]: the entropy divided by ln of the number of positions that the query may attend to; and bool [B, 1, N]:
    whether these are several. A query that may attend to one position has the share 0.

    A position to which no head of the layer attends is taken as masked.
    """
    allowed_BN = (weights_BHNM > 0).any(1).sum(-1)
    several = (allowed_BN > 1)[:, None]
    return torch.where(several, entropy(weights_BHNM) / allowed_BN[:, None].clamp(min=2).log(), 0.0), several


def confidence(weights_BHNM: Tensor, special_BM: Tensor) -> Tensor:
    """[B, H, N]: the largest weight on a token that is not special (Voita et al., section 4)."""
    return weights_BHNM.masked_fill(special_BM[:, None, None], 0.0).amax(-1)


def weight_on(weights_BHNM: Tensor, positions_BM: Tensor) -> Tensor:
    """[B, H, N]: the total weight on the chosen memory positions."""
    return (weights_BHNM * positions_BM[:, None, None]).sum(-1)


def weight_at(weights_BHNM: Tensor, offset: int) -> Tensor:
    """[B, H, N]: the weight on the position `offset` after the query's own; 0 if there is none."""
    N, M = weights_BHNM.shape[-2:]
    position = torch.arange(N) + offset
    inside = (position >= 0) & (position < M)
    index = position.clamp(0, M - 1)[:, None].expand(*weights_BHNM.shape[:-1], 1)
    return weights_BHNM.gather(-1, index).squeeze(-1) * inside


def offset_pointed_to(weights_BHNM: Tensor) -> Tensor:
    """int64 [B, H, N]: the position of the largest weight minus the query's position."""
    return weights_BHNM.argmax(-1) - torch.arange(weights_BHNM.shape[-2])


def is_rarest(tokens_BM: Tensor, special_BM: Tensor, counts: Tensor) -> Tensor:
    """Bool [B, M]: the rarest token of each row that is not special, by `counts` [vocabulary], wherever it stands."""
    count = torch.where(special_BM, torch.iinfo(torch.int64).max, counts[tokens_BM])
    return (count == count.amin(1, keepdim=True)) & ~special_BM


def profile_heads(run: TrainedRun, part: Part) -> list[dict[str, Any]]:
    """A row for each softmax head of a part, with its quantities and its role. Layers and heads count from 1."""
    sums: list[dict[str, Tensor]] = [{} for _ in part.places]
    queries = 0
    for inputs in run.text_batches():
        stages = read_stages(run.model, inputs, "weights")
        content = ~run.is_special(inputs[part.queries])
        queries += int(content.sum())
        for totals, place in zip(sums, part.places, strict=True):
            for name, values in _quantities(run, part, stages[place]["weights"], inputs[part.memory]).items():
                totals[name] = totals.get(name, 0) + (values * content[:, None]).double().sum((0, 2))
    return [
        row
        for layer, totals in enumerate(sums, 1)
        for row in _rows(part, layer, {name: (total / queries).tolist() for name, total in totals.items()})
    ]


def _rows(part: Part, layer: int, means: dict[str, list[float]]) -> Iterator[dict[str, Any]]:
    """A row for each head of a layer."""
    for head in range(len(means["entropy"])):
        row: dict[str, Any] = {
            name: each[head] for name, each in means.items() if not name.startswith(("points_to_", "several"))
        }
        row["entropy_share"] /= means["several"][0] or 1.0
        row |= {"layer": layer, "head": head + 1}
        if part.queries == part.memory:
            share_by_offset = {
                offset: means[f"points_to_{offset}"][head] for offset in range(-MAX_OFFSET, MAX_OFFSET + 1)
            }
            best_offset = max(share_by_offset, key=lambda offset: share_by_offset[offset])
            row |= {"offset": best_offset, "offset_share": share_by_offset[best_offset]}
        yield row | {"role": role_of(row)}


def _quantities(run: TrainedRun, part: Part, weights: Tensor, memory_BM: Tensor) -> dict[str, Tensor]:
    """Each [B, H, N], or [B, 1, N] for all heads. Offsets are those of positions of one text."""
    special = run.is_special(memory_BM)
    rare = is_rarest(memory_BM, special, run.token_counts[part.memory])
    share, several = entropy_share(weights)
    quantities = {
        "entropy": entropy(weights),
        "entropy_share": share,
        "several": several,
        "confidence": confidence(weights, special),
        "special": weight_on(weights, special),
        "rarest": rare[:, None].expand(-1, weights.shape[1], -1).gather(-1, weights.argmax(-1)),
    }
    if part.queries == part.memory:
        offsets = offset_pointed_to(weights)
        quantities |= {
            "previous": weight_at(weights, -1),
            "current": weight_at(weights, 0),
            "next": weight_at(weights, 1),
            **{f"points_to_{offset}": offsets == offset for offset in range(-MAX_OFFSET, MAX_OFFSET + 1)},
        }
    return quantities


def role_of(row: dict[str, Any]) -> str:
    """The main role of a head: the first that fits of positional, rare tokens, special tokens, broad, mixed."""
    if row.get("offset_share", 0.0) >= POSITIONAL_SHARE:
        return "positional"
    if row["rarest"] > RARE_TOKEN_SHARE:
        return "rare tokens"
    if row["special"] > SPECIAL_WEIGHT_SHARE:
        return "special tokens"
    if row["entropy_share"] > BROAD_ENTROPY_SHARE:
        return "broad"
    return "mixed"
