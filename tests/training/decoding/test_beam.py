from __future__ import annotations

import itertools

import pytest
import torch

from experiments.config.compose import compose
from experiments.model.build import build
from experiments.training.decoding.beam import EXTRA, beam_search, penalty

VOCABULARY, START, END = 5, 1, 2


@pytest.fixture
def model_of():
    def make(seed=0):
        overrides = [
            "hidden_size=12",
            "heads=3",
            "layers=1",
            "length=16",
            "model.initial_std=0.8",
            "model.position=sinusoidal",
        ]
        settings = compose([*overrides, "objective=translation", "data=pairs", "data.train=x"])
        return build("encoder_decoder", settings.model, settings.variant, VOCABULARY, seed).double().eval()

    return make


@pytest.fixture
def sources():
    tokens = torch.tensor([[3, 4, 0, 3], [4, 2, 0, 0], [0, 2, 2, 2]])
    return tokens, torch.arange(4) < torch.tensor([4, 2, 1])[:, None]


def log_likelihood(model, tokens, mask, target):
    """The log likelihood of a target, by one forward pass over the whole target."""
    logits = model(tokens[None], torch.tensor([[START, *target[:-1]]]), mask=mask[None])[0]
    return float(logits.log_softmax(-1)[range(len(target)), target].sum())


def exhaustive(model, tokens, mask, longest, alpha):
    """The best of all targets of up to `longest` tokens that end."""
    body = [token for token in range(VOCABULARY) if token != END]
    every = ([*each, END] for count in range(longest) for each in itertools.product(body, repeat=count))
    scored = {tuple(each): log_likelihood(model, tokens, mask, each) / penalty(len(each), alpha) for each in every}
    return max(scored, key=scored.get)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("alpha", [0.0, 0.6, 3.0])
def test_a_wide_beam_finds_the_best_of_all(model_of, sources, seed, alpha):
    model = model_of(seed)
    tokens, mask = sources
    with torch.inference_mode():
        found = beam_search(
            model, tokens, mask, beam=5 * 4**2, length_penalty=alpha, longest=3, start_id=START, end_id=END
        )
        for row in range(3):
            best = exhaustive(model, tokens[row], mask[row], 3, alpha)
            assert [*found[row], END] == list(best)


def test_a_beam_of_one_is_greedy(model_of, sources):
    model = model_of(5)
    tokens, mask = sources
    with torch.inference_mode():
        found = beam_search(model, tokens, mask, beam=1, length_penalty=0.0, longest=9, start_id=START, end_id=END)
        for row in range(3):
            greedy = [START]
            while len(greedy) <= 9:
                logits = model(tokens[row : row + 1], torch.tensor([greedy]), mask=mask[row : row + 1])
                greedy.append(int(logits[0, -1].argmax()))
                if greedy[-1] == END:
                    break
            assert found[row] == [token for token in greedy[1:] if token != END]


def test_a_sentence_is_translated_alone_as_among_others(model_of, sources):
    model = model_of(1)
    tokens, mask = sources
    options = {"beam": 3, "length_penalty": 0.6, "longest": 12, "start_id": START, "end_id": END}
    with torch.inference_mode():
        together = beam_search(model, tokens, mask, **options)
        for row, length in enumerate([4, 2, 1]):
            alone = tokens[row : row + 1, :length]
            assert beam_search(model, alone, torch.ones_like(alone, dtype=torch.bool), **options) == [together[row]]


def test_a_model_that_never_ends_is_stopped():
    class Endless:
        def encode(self, tokens, mask):
            return torch.zeros(*tokens.shape, 4)

        def decode(self, decoder_tokens, memory, positions, mask):
            return torch.tensor([0.0, -9.0, float("-inf"), -1.0, -9.0]).expand(len(positions), VOCABULARY)

    tokens = torch.tensor([[3, 3], [3, 0]])
    mask = torch.tensor([[True, True], [True, False]])
    options = {"beam": 2, "length_penalty": 0.6, "start_id": START, "end_id": END}
    found = beam_search(Endless(), tokens, mask, longest=1000, **options)
    assert [len(each) for each in found] == [2 + EXTRA, 1 + EXTRA] and set(found[0]) == {0}
    assert [len(each) for each in beam_search(Endless(), tokens, mask, longest=5, **options)] == [5, 5]


class Scripted:
    """Gives the tokens 0, 3, 4 and the end the chances that a script has for what was said so far."""

    def __init__(self, script):
        self.script = script

    def encode(self, tokens, mask):
        return torch.zeros(*tokens.shape, 4)

    def decode(self, decoder_tokens, memory, positions, mask):
        chances = torch.full((len(positions), VOCABULARY), 1e-9)
        for row, (_, *said) in enumerate(decoder_tokens.tolist()):
            for token, chance in self.script.get(tuple(said), {END: 1.0}).items():
                chances[row, token] = chance
        return chances.log()


def scripted(script, **options):
    more = {"longest": 4, "start_id": START, "end_id": END}
    (found,) = beam_search(
        Scripted(script), torch.tensor([[3, 3]]), torch.ones(1, 2, dtype=torch.bool), **options, **more
    )
    return found


def test_an_end_that_is_not_among_the_best_continuations_does_not_count():
    """Although its score, ln 0.4, is better than that of the target that is found, ln 0.36."""
    script = {(): {3: 0.6, END: 0.4}, (3,): {END: 0.6, 0: 0.4}}
    assert scripted(script, beam=1, length_penalty=0.0) == [3]
    assert scripted(script, beam=2, length_penalty=0.0) == []


def test_a_search_goes_on_while_a_longer_target_could_become_better():
    """With (5 + 4) / 6 = 1.5, ln 0.35 / 1.5 of four tokens is better than ln 0.38 of one, which is found first."""
    script = {(): {END: 0.38, 3: 0.35, 4: 0.27}, (3,): {0: 1.0}, (3, 0): {4: 1.0}, (4,): {0: 0.5, 3: 0.5}}
    assert scripted(script, beam=2, length_penalty=1.0) == [3, 0, 4]
    assert scripted(script, beam=2, length_penalty=0.0) == []


def test_the_penalty_by_hand():
    assert penalty(1, 0.6) == 1.0 and penalty(7, 0.0) == 1.0
    assert penalty(7, 0.6) == pytest.approx(2**0.6)
