"""Segments with a memory, compared with one sequence under a mask by hand, and with one segment after the other."""

from __future__ import annotations

from functools import partial
from importlib import import_module

import pytest
import torch
from pydantic import ValidationError
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from attention import mechanisms
from experiments.config.groups import options
from experiments.failures.failure import Mistake
from experiments.objectives.loss import loss
from experiments.settings.position import POSITION_KINDS
from tests.model.conftest import small_model

POSITIONS = [name for name, kind in POSITION_KINDS.items() if kind.embedding is None]
PLACED = {name for name in mechanisms() if import_module(f"attention.{name}").Attention.positional}
VARIANTS = [name for name in options("variant") if name not in PLACED]
# their logits are no products of a query and a key: turned, they know places and not distances alone
OF_PLACES = {("additive", "rotary"), ("linear", "rotary")}
# each variant with one kind of position, and the plain one with all
PAIRS = {(variant, POSITIONS[index % len(POSITIONS)]) for index, variant in enumerate(VARIANTS)}
PAIRS |= {("multi_head", position) for position in POSITIONS} | {("additive", "alibi"), ("linear", "relative")}
PLACE = torch.arange(12)


@pytest.fixture
def text():
    """[2, 12]"""
    return torch.randint(23, (2, 12), generator=torch.Generator().manual_seed(3))


@pytest.fixture
def decoder_of(bert_of):
    """decoder_of(segment_length, variant="multi_head", **changes): of 12 tokens."""

    def make(segment_length, variant="multi_head", **changes):
        return bert_of(variant, architecture="causal_decoder", length=12, segment_length=segment_length, **changes)

    return make


def under_a_mask(model, tokens, segment_length):
    """The hidden states of one long sequence that may attend to what the recurrence can see."""
    segment = PLACE // segment_length
    may = (PLACE[:, None] >= PLACE) & (segment[:, None] - segment <= 1)
    bias = None if model.relative is None else model.relative(12)
    return model.encoder(model.embedding(tokens), mask=may[None, None], bias=bias, rotary=model.rotary)


def one_after_the_other(model, tokens, segment_length):
    """The paper's equations: a cache of each layer's inputs, which the next segment attends to and doesn't train."""
    cache = [None] * len(model.layers)
    outputs = []
    for start in range(0, 12, segment_length):
        x, earlier = model.embedding(tokens[:, start : start + segment_length]), {}
        for number, layer in enumerate(model.layers):
            read = layer.attention_residual.norm(x)
            memory = read if cache[number] is None else torch.cat([cache[number], read], dim=1)
            cache[number] = read.detach()
            N, M = read.size(1), memory.size(1)
            past = torch.ones(N, M, dtype=torch.bool).tril(M - N)[None, None]
            turn = None
            if model.rotary is not None:
                starts = segment_length, 2 * segment_length - M
                turn = tuple(partial(model.rotary, first=start) for start in starts)
            bias = None if model.relative is None else model.relative(M)[:, :, M - N :]
            x = x + layer.attention(read, memory, mask=past, bias=bias, rotary=turn, earlier=earlier)
            x = layer.feed_forward_residual(x, layer.feed_forward)
        outputs.append(model.encoder.norm(x))
    return torch.cat(outputs, dim=1)


@pytest.mark.parametrize("position", POSITIONS)
def test_one_segment_is_the_decoder_without_segments(decoder_of, text, position):
    plain, one = decoder_of(None, position=position), decoder_of(12, position=position)
    assert torch.equal(plain(text), one(text))
    # as is a text that doesn't fill a segment
    assert torch.equal(plain(text[:, :5]), one(text[:, :5]))


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize(("variant", "position"), sorted(PAIRS - OF_PLACES))
def test_the_loss_is_that_of_one_sequence_under_a_mask(decoder_of, text, variant, position, layers):
    model = decoder_of(4, variant, position=position, layers=layers)
    targets = text.roll(-1, 1)
    assert_close(model.encode(text), hidden := under_a_mask(model, text, 4))
    long = model.head(hidden, model.embedding.token.weight)
    assert_close(loss(model(text).flatten(0, 1), targets.flatten()), loss(long.flatten(0, 1), targets.flatten()))
    # with one before and one after the segments' border
    picked = torch.tensor([0, 3, 4, 11, 16, 23])
    assert_close(model(text, picked), long.flatten(0, 1)[picked])


@pytest.mark.parametrize(("variant", "position"), sorted(PAIRS | OF_PLACES))
def test_the_gradient_is_that_of_one_segment_after_the_other(decoder_of, text, variant, position):
    model = decoder_of(4, variant, position=position)
    weight = torch.randn(2, 12, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = []
    for hidden in (model.encode(text), one_after_the_other(model, text, 4)):
        parameters = dict(model.named_parameters())
        gradients = torch.autograd.grad((hidden * weight).sum(), list(parameters.values()), allow_unused=True)
        found.append(dict(zip(parameters, gradients, strict=True)))
    assert_close(found[0], found[1])


def test_no_gradient_flows_into_the_segment_before(decoder_of, text):
    """In one long sequence it would. The memory is used: a change of the segment before changes this one."""
    model = decoder_of(4)
    streams = []
    model.embedding.register_forward_hook(lambda _, __, x: streams.append(x) or x.retain_grad())
    model.encode(text)[:, 4:8].pow(2).sum().backward()
    under_a_mask(model, text, 4)[:, 4:8].pow(2).sum().backward()
    reached = [(stream.grad.abs().sum((0, 2)) > 0).tolist() for stream in streams]
    assert reached == [[False] * 4 + [True] * 4 + [False] * 4, [True] * 8 + [False] * 4]


@pytest.mark.parametrize("variant", ["multi_head", "talking_heads", "linear"])
def test_a_logit_knows_so_many_segments_back_as_there_are_layers(decoder_of, text, variant):
    for layers in (1, 2):
        model = decoder_of(3, variant, layers=layers)
        logits = model(text)
        for place in range(12):
            changed = text.clone()
            changed[:, place] = (changed[:, place] + 1) % 23
            differs = (model(changed) - logits).abs().amax(-1) > 1e-9
            knows = (place <= PLACE) & (PLACE // 3 - place // 3 <= layers)
            assert torch.equal(differs, knows.expand(2, 12))


def test_padding_is_not_attended_to(decoder_of, text):
    """A text may end within its second segment."""
    model = decoder_of(4)
    real = torch.arange(12) < torch.tensor([[12], [6]])
    logits = model(text, mask=real)
    changed = torch.where(real, text, 7)
    assert_close(model(changed, mask=real)[real], logits[real])
    assert_close(logits[0], model(text)[0])


def test_flops_are_those_that_torch_counts(decoder_of, text):
    model = decoder_of(4)
    with FlopCounterMode(display=False) as counter:
        model(text, torch.arange(18)).sum().backward()
    assert counter.get_total_flops() == pytest.approx(model.flops_per_token(12, 18 / 24) * 24, rel=1e-12)


@pytest.mark.parametrize("variant", sorted(PLACED))
def test_attention_that_looks_at_places_is_refused(decoder_of, variant):
    with pytest.raises(Mistake, match=f"variant={variant}: it attends by positions"):
        decoder_of(4, variant)


@pytest.mark.parametrize("position", POSITIONS)
def test_a_text_may_end_within_a_segment(decoder_of, text, position):
    model = decoder_of(4, position=position)
    logits = model(text)[:, :10]
    assert_close(model(text[:, :10]), logits)
    picked = torch.tensor([0, 9, 10, 19])
    assert_close(model(text[:, :10], picked), logits.flatten(0, 1)[picked])


def test_training_in_segments_that_are_not_whole_is_refused(decoder_of):
    with pytest.raises(ValidationError, match="segment_length 5: must divide length 12"):
        decoder_of(5)


@pytest.mark.parametrize("position", ["learned", "sinusoidal"])
def test_places_that_count_from_the_start_are_refused(position):
    with pytest.raises(ValidationError, match=f"position {position} .* must be one of rotary, relative, alibi, none"):
        small_model(segment_length=4, position=position)


def test_local_layers_are_refused():
    with pytest.raises(ValidationError, match="segment_length 4: needs local_window=null, not 2"):
        small_model(segment_length=4, local_window=2)
