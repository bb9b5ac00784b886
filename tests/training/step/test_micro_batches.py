from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from experiments.objectives.loss import loss
from experiments.objectives.objective import Batch
from experiments.training.step.micro_batches import (
    Forward,
    OutOfMemoryError,
    dropout_seed,
    fitting,
    is_out_of_memory,
    padded,
    seed_device,
    split,
)


@st.composite
def batches(draw):
    sequences, length = draw(st.integers(1, 9)), draw(st.integers(1, 7))
    positions = sorted(draw(st.sets(st.integers(0, sequences * length - 1), min_size=1)))
    tokens = torch.arange(sequences * length).view(sequences, length)
    return Batch({"tokens": tokens}, torch.tensor(positions), torch.tensor(positions) + 1000, length)


@given(batch=batches(), size=st.integers(1, 10))
def test_the_parts_make_the_whole(batch, size):
    parts = list(split(batch, size))
    assert all(len(part.tokens) <= size and len(part.positions) for part in parts)
    assert torch.cat([part.targets for part in parts]).equal(batch.targets)
    # each position still points at its own token
    assert torch.cat([part.tokens.flatten()[part.positions] for part in parts]).equal(batch.positions)


@given(count=st.integers(1, 5000))
def test_padding_leaves_few_shapes_and_the_same_loss(count):
    batch = Batch({}, torch.arange(count), torch.arange(count) % 3, count)
    more = padded(batch)
    assert len(more.positions) == len(more.targets) and count <= len(more.positions) <= max(count + 1, count * 9 / 8)
    logits = torch.linspace(-1, 1, 3).expand(len(more.positions), 3)
    assert float(loss(logits, more.targets)) == pytest.approx(float(loss(logits[:count], batch.targets)), rel=1e-5)


def test_few_shapes():
    sizes = {len(padded(Batch({}, torch.arange(n), torch.arange(n), n)).positions) for n in range(512, 1024)}
    assert len(sizes) == 9


def test_half_as_often_as_needed():
    tried = []

    def attempt(size):
        tried.append(size)
        if size > 2:
            raise MemoryError
        return size

    assert fitting(attempt, 11, lambda size: None) == (2, 2)
    assert tried == [11, 6, 3, 2]


def test_one_sequence_is_the_end():
    def attempt(size):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    with pytest.raises(OutOfMemoryError, match="even a single sequence"):
        fitting(attempt, 4, lambda size: None)


def test_real_shortages_are_told_from_mistakes():
    with pytest.raises(RuntimeError) as shortage:
        torch.empty(1 << 50)
    assert is_out_of_memory(shortage.value)
    assert is_out_of_memory(MemoryError()) and is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    with pytest.raises(RuntimeError) as mistake:
        torch.ones(2, 3) @ torch.ones(2, 3)
    assert not is_out_of_memory(mistake.value)
    with pytest.raises(RuntimeError, match="mat1"):
        fitting(lambda size: torch.ones(2, 3) @ torch.ones(2, 3), 4, lambda size: None)


class Dropping(nn.Module):
    """Drops some of 64 equal logits, and keeps note of them."""

    def __init__(self):
        super().__init__()
        self.kept = []

    def forward(self, tokens, positions):
        logits = nn.functional.dropout(torch.ones(len(positions), 64))
        self.kept.append(tuple(logits[0].tolist()))
        return logits


def test_each_part_of_each_step_of_each_run_drops_others():
    batch, model = (
        Batch({"tokens": torch.zeros(3, 1)}, torch.arange(3), torch.zeros(3, dtype=torch.int64), 1),
        Dropping(),
    )

    def drop():
        for seed in (0, 1):
            for step in (0, 1):
                assert len(list(Forward(model, torch.device("cpu"), "fp32", seed).losses(batch, step, 1))) == 3

    drop()
    assert len({*model.kept}) == len(model.kept) == 2 * 2 * 3
    drop()
    assert model.kept[12:] == model.kept[:12]


def test_dropout_seeds_differ():
    seeds = {dropout_seed(seed, step, index) for seed in range(4) for step in range(4) for index in range(4)}
    assert len(seeds) == 64 and all(0 <= seed < 2**63 for seed in seeds)


def test_only_the_generator_of_the_device_is_seeded(monkeypatch):
    seeds = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    state = torch.get_rng_state()
    seed_device(3, torch.device("cuda"))
    assert seeds == [3] and torch.equal(torch.get_rng_state(), state)
    seed_device(4, torch.device("cpu"))
    assert seeds == [3] and torch.equal(torch.rand(5), torch.rand(5, generator=torch.Generator().manual_seed(4)))
