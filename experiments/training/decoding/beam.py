"""Beam search with a length penalty (Wu et al. 2016, 1609.08144, 7), as used by Vaswani et al. 2017, 6.1."""

# B sentences, K hypotheses of each, T tokens so far, V vocabulary

from __future__ import annotations

import torch
from torch import Tensor

from experiments.model.architectures import encoder_decoder

EXTRA = 50  # a target may have this many tokens more than its source (Vaswani et al. 2017, 6.1)


def beam_search(
    model: encoder_decoder.Architecture,
    tokens_BN: Tensor,
    mask_BN: Tensor,
    *,
    beam: int,
    length_penalty: float,
    longest: int,
    start_id: int,
    end_id: int,
) -> list[list[int]]:
    """The tokens of the best target that is found for each source [N], without start and end tokens.

    The score of a hypothesis is its log likelihood, including that of the end token, divided by
    ((5 + tokens) / 6)^length_penalty. A finished hypothesis counts if it is among the `beam` best continuations. The
    search for a sentence stops when no unfinished hypothesis can become better, or when they have EXTRA tokens more
    than the source, and at the latest at `longest` tokens. beam=1 with length_penalty=0 is greedy decoding.
    """
    device = tokens_BN.device
    memory = model.encode(tokens_BN, mask_BN)
    limits = (mask_BN.sum(1) + EXTRA).clamp(max=longest)
    best_of = [_Best() for _ in tokens_BN]
    open_ = torch.arange(len(tokens_BN), device=device)  # sentences that are still searched
    live = torch.full((len(tokens_BN), 1, 1), start_id, device=device)
    scores = torch.zeros(len(tokens_BN), 1, dtype=torch.float64, device=device)
    for count in range(1, int(limits.max()) + 1):
        log_likelihood = scores[..., None] + _next(model, live, memory[open_], mask_BN[open_])
        best, index = log_likelihood.flatten(1).topk(min(2 * beam, log_likelihood[0].numel()))
        hypothesis, token = index // log_likelihood.shape[-1], index % log_likelihood.shape[-1]
        ends = token == end_id
        for sentence, rank in ends[:, :beam].nonzero().tolist():
            score = float(best[sentence, rank]) / penalty(count, length_penalty)
            best_of[open_[sentence]].offer(score, live[sentence, hypothesis[sentence, rank], 1:])
        scores, rank = best.masked_fill(ends, float("-inf")).topk(min(beam, best.shape[1]))
        token, hypothesis = token.gather(1, rank), hypothesis.gather(1, rank)
        continued = live.gather(1, hypothesis[..., None].expand(-1, -1, live.shape[-1]))
        live = torch.cat([continued, token[..., None]], dim=-1)
        going = [
            count < limit and score / penalty(limit, length_penalty) > best_of[sentence].score
            for sentence, limit, score in zip(
                open_.tolist(), limits[open_].tolist(), scores[:, 0].tolist(), strict=True
            )
        ]
        for sentence in (row for row, goes in enumerate(going) if not goes):
            # if no hypothesis has ended, the likeliest unfinished one counts
            best_of[open_[sentence]].offer(float("-inf"), live[sentence, 0, 1:])
        chosen = torch.tensor(going, dtype=torch.bool, device=device)
        open_, live, scores = open_[chosen], live[chosen], scores[chosen]
        if not len(open_):
            break
    return [best.tokens or [] for best in best_of]


def penalty(tokens: int, alpha: float) -> float:
    """The divisor of the log likelihood of `tokens` tokens: ((5 + tokens) / 6)^alpha (Wu et al., equation 14)."""
    return float(((5 + tokens) / 6) ** alpha)


def _next(model: encoder_decoder.Architecture, live_BKT: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
    """Log probabilities [B, K, V] of the token after each hypothesis. The model reads the whole hypothesis again."""
    B, K, T = live_BKT.shape
    positions = torch.arange(B * K, device=live_BKT.device) * T + T - 1
    memory, mask = (each.repeat_interleave(K, dim=0) for each in (memory, mask))
    logits = model.decode(live_BKT.flatten(0, 1), memory, positions, mask=mask)
    return logits.double().log_softmax(-1).unflatten(0, (B, K))


class _Best:
    """The best finished hypothesis of a sentence so far."""

    def __init__(self) -> None:
        self.score = float("-inf")
        self.tokens: list[int] | None = None

    def offer(self, score: float, tokens: Tensor) -> None:
        if self.tokens is None or score > self.score:
            self.score, self.tokens = score, tokens.tolist()
