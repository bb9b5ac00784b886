from __future__ import annotations

import copy

import pytest
import torch
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from experiments.model.architectures import encoder
from experiments.record.checkpoint_file import restore, weights

SHARING = ["none", "attention", "feed_forward", "all"]
SUBLAYERS = {"attention": ["attention"], "feed_forward": ["feed_forward"], "all": ["attention", "feed_forward"]}


@pytest.mark.parametrize("variant", ["multi_head", "talking_heads", "additive"])
@pytest.mark.parametrize("sharing", SHARING)
def test_shared_parameters_count_once_and_start_as_the_first_layers(bert_of, variant, sharing):
    own, shared = bert_of(variant, layers=3), bert_of(variant, layers=3, sharing=sharing)
    counts, others = own.parameter_counts(), shared.parameter_counts()
    for part in ("attention", "feed_forward"):
        assert others[part] * (3 if part in SUBLAYERS.get(sharing, []) else 1) == counts[part]
    assert others["total"] == sum(parameter.numel() for parameter in shared.parameters())
    # every tensor has one name, which the unshared model has too, with the same start
    named = dict(own.named_parameters())
    assert all(torch.equal(value, named[name]) for name, value in shared.named_parameters())
    assert len(shared.state_dict()) == len(list(shared.parameters()))


@pytest.mark.parametrize("sharing", SHARING)
def test_it_is_the_model_whose_layers_have_equal_parameters(bert_of, tokens, sharing):
    own, shared = bert_of(layers=3), bert_of(layers=3, sharing=sharing)
    with torch.no_grad():
        for index in (1, 2):
            for name in SUBLAYERS.get(sharing, []):
                for part in (name, f"{name}_residual"):
                    first, layer = (getattr(own.layers[place], part) for place in (0, index))
                    layer.load_state_dict(first.state_dict())
    assert_close(shared(tokens), own(tokens), rtol=0, atol=0)
    # the gradient of a shared tensor is the sum over the layers
    for model in (own, shared):
        model(tokens).square().sum().backward()
    gradients = {name: parameter.grad for name, parameter in own.named_parameters()}
    for name, parameter in shared.named_parameters():
        shares = any(f".{part}." in name or f".{part}_residual." in name for part in SUBLAYERS.get(sharing, []))
        names = [name.replace("layers.0", f"layers.{index}") for index in range(3)] if shares else [name]
        assert_close(parameter.grad, sum(gradients[each] for each in names))


@pytest.mark.parametrize("sharing", SHARING)
def test_flops_are_those_of_the_layers(bert_of, tokens, sharing):
    model = bert_of(sharing=sharing, embedding_size=5, head_transform=True)
    with FlopCounterMode(display=False) as counter:
        model(tokens, torch.arange(4)).sum().backward()
    assert counter.get_total_flops() == pytest.approx(model.flops_per_token(7, 4 / 21) * 21, rel=1e-12)
    assert model.flops_per_token(7, 0.2) == bert_of(embedding_size=5, head_transform=True).flops_per_token(7, 0.2)


def test_a_checkpoint_holds_each_tensor_once(bert_of, tokens):
    model = bert_of(sharing="all", layers=3)
    stored = {name: tensor.clone() for name, tensor in weights(model).items()}
    assert not any("layers.1" in name for name in stored)
    other = bert_of(sharing="all", layers=3, seed=1)
    assert not torch.allclose(other(tokens), model(tokens))
    with torch.no_grad():
        restore(weights(other), stored)
    assert_close(other(tokens), model(tokens), rtol=0, atol=0)


def test_a_copy_shares_with_itself(bert_of, tokens):
    model = bert_of(sharing="all", layers=3)
    expected = model(tokens)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert not twin(tokens).any()
    assert_close(model(tokens), expected, rtol=0, atol=0)
    assert model.float()(tokens).dtype == torch.float32


@pytest.mark.parametrize("head_transform", [True, False])
@pytest.mark.parametrize("position", ["learned", "sinusoidal", "rotary"])
def test_a_factorised_embedding(bert_of, tokens, head_transform, position):
    changes = {"head_transform": head_transform, "position": position, "token_types": 2}
    small = bert_of(embedding_size=5, **changes)
    assert small.embedding.token.weight.shape == (23, 5) and small.embedding.norm.weight.shape == (5,)
    assert small(tokens).shape == (3, 7, 23)
    assert bert_of(embedding_size=5, tied=False, **changes).head.output.weight.shape == (23, 5)
    positions = torch.tensor([0, 8, 20])
    assert_close(small(tokens, positions), small(tokens).flatten(0, 1)[positions])
    # without another size nothing lies between
    assert not any("projection" in name for name, _ in bert_of(**changes).named_parameters())


@pytest.mark.parametrize("initial_std", [0.02, None])
@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "sandwich"},
        {"head_transform": True},
        {"embedding_norm": False},
        {"embedding_norm": False, "position": "sinusoidal"},
        {"output_scaled": True},
        {"output_scaled": True, "head_transform": True, "embedding_norm": False},
    ],
)
def test_a_factorised_embedding_starts_at_the_scale_of_a_full_one(bert_of, initial_std, changes):
    full, small = full_and_small(bert_of, **{"norm": "pre", "initial_std": initial_std, **changes})
    assert small == pytest.approx(full, rel=0.3)


@pytest.mark.parametrize("initial_std", [0.02, None])
def test_after_norms_a_factorised_embedding_starts_as_that_of_the_authors(bert_of, initial_std):
    """Every weight alike."""
    full, small = full_and_small(bert_of, norm="post", initial_std=initial_std)
    assert small["stream"] == pytest.approx(full["stream"] * 32**0.5 * (initial_std or 32**-0.5), rel=0.2)


def full_and_small(bert_of, **changes) -> list[dict[str, float]]:
    """The scales of the stream and of the logits at the start, with embeddings as wide as the model and narrower."""
    tokens = torch.arange(12).reshape(1, 12)
    # at the scale of the final norm; untrained layers would give outputs that resemble the embeddings of their tokens
    hidden = torch.randn(12, 768, dtype=torch.float64)
    models = [bert_of(hidden_size=768, embedding_size=size, **changes) for size in (768, 32)]
    parts = [(each.embedding(tokens), each.head(hidden, each.embedding.token.weight)) for each in models]
    return [{"stream": stream.std().item(), "logits": logits.std().item()} for stream, logits in parts]


def test_albert_base_has_the_size_of_table_1(settings_of, variant_of):
    model = settings_of(
        hidden_size=768, embedding_size=128, intermediate_size=3072, layers=12, sharing="all", length=512, norm="post",
        position="learned", token_types=2, head_transform=True,
    )  # fmt: skip
    variant = variant_of(model, "multi_head", heads=12, key_size=64, value_size=64)
    with torch.device("meta"):
        total = {
            sharing: encoder.Architecture(settings, variant, 30000).parameter_counts()["total"]
            for sharing, settings in ((each, model.model_copy(update={"sharing": each})) for each in SHARING)
        }
    # Lan et al., table 4 (E = 128), in millions: theirs have a pooler of 0.6 million too, which sentence order is for
    published = {"none": 89, "attention": 64, "feed_forward": 38, "all": 12}
    assert all(abs(total[name] / 1e6 - millions) < 1 for name, millions in published.items())
