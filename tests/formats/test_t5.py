from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file
from torch.testing import assert_close

from experiments.config.compose import compose
from experiments.failures.failure import Mistake
from experiments.formats.t5 import T5Format
from experiments.model.build import build

FORMAT = T5Format()

transformers = pytest.importorskip("transformers")
VOCABULARY = 29
TOLERANCE = 3e-6  # the softmax of transformers is in float32
VERSIONS = {
    "1.0": {"feed_forward_proj": "relu"},
    "1.1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "1.1 with other sizes": {
        "feed_forward_proj": "gated-relu",
        "tie_word_embeddings": False,
        "d_kv": 5,
        "num_heads": 3,
    },
}


def theirs_of(version: str):
    sizes = {"d_model": 12, "d_kv": 4, "d_ff": 20, "num_layers": 2, "num_heads": 3, "vocab_size": VOCABULARY}
    buckets = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 20}
    config = transformers.T5Config(**(sizes | buckets | VERSIONS[version]))
    torch.manual_seed(0)
    model = transformers.T5ForConditionalGeneration(config)
    if version != "1.0":
        model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))
    with torch.no_grad():
        for parameter in model.parameters():
            # norms start as ones, which would hide a mix-up
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.double().eval()


def config_of(model) -> dict:
    return model.config.to_dict() | {"tie_word_embeddings": model.config.scale_decoder_outputs}


def ours_of(*words: str):
    settings = compose([*words, "precision=fp32"])
    return build("encoder_decoder", settings.model, settings.variant, VOCABULARY, 0).double().eval(), settings


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(VOCABULARY, (3, 40), generator=generator)
    decoder_tokens = torch.randint(VOCABULARY, (3, 30), generator=generator)
    return tokens, decoder_tokens, torch.arange(40) < torch.tensor([40, 23, 1])[:, None]


@pytest.mark.parametrize("version", VERSIONS)
def test_logits_of_a_hugging_face_t5(batch, version):
    theirs = theirs_of(version)
    ours, _ = ours_of(*FORMAT.overrides(config_of(theirs)))
    ours.load_state_dict(FORMAT.from_hugging_face(theirs.state_dict()))
    tokens, decoder_tokens, mask = batch
    with torch.no_grad():
        expected = theirs(input_ids=tokens, decoder_input_ids=decoder_tokens, attention_mask=mask.long()).logits
        assert_close(ours(tokens, decoder_tokens, mask=mask), expected, rtol=1e-5, atol=TOLERANCE)
        expected = theirs(input_ids=tokens, decoder_input_ids=decoder_tokens).logits
        assert_close(ours(tokens, decoder_tokens), expected, rtol=1e-5, atol=TOLERANCE)


@pytest.mark.parametrize("version", VERSIONS)
def test_there_and_back_is_the_same_to_the_bit(version):
    theirs = theirs_of(version)
    _, settings = ours_of(*FORMAT.overrides(config_of(theirs)))
    state = theirs.state_dict()
    back = FORMAT.to_hugging_face(FORMAT.from_hugging_face(state), settings)
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], state[name]) for name in state)
    # a published config.json has the length, but not one that transformers makes
    config, expected = FORMAT.config(settings, VOCABULARY), config_of(theirs) | {"n_positions": settings.length}
    assert {key: expected[key] for key in config if key != "architectures"} == {
        key: value for key, value in config.items() if key != "architectures"
    }


def test_a_new_1_1_is_tied_as_transformers_makes_it_and_a_trained_one_is_not(batch):
    """Neither config.json says so: transformers 5 writes tie_word_embeddings=true for both."""
    trained = theirs_of("1.1")
    torch.manual_seed(0)
    new = transformers.T5ForConditionalGeneration(trained.config).double().eval()
    tokens, decoder_tokens, mask = batch
    for theirs, tied in ((new, new.lm_head.weight is new.shared.weight), (trained, False)):
        state = theirs.state_dict()
        if tied:
            # the file of a tied model does not hold this tensor
            del state["lm_head.weight"]
        ours, settings = ours_of(*FORMAT.overrides(FORMAT.completed(theirs.config.to_dict(), state)))
        assert (settings.model.tied, settings.model.output_scaled) == (tied, False)
        ours.load_state_dict(FORMAT.from_hugging_face(state))
        with torch.no_grad():
            expected = theirs(input_ids=tokens, decoder_input_ids=decoder_tokens, attention_mask=mask.long()).logits
            assert_close(ours(tokens, decoder_tokens, mask=mask), expected, rtol=1e-5, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("said", "weights", "tied", "scaled"),
    [
        ({"tie_word_embeddings": True}, 1, True, True),  # 1.0 by transformers 4
        ({"tie_word_embeddings": False}, 2, False, False),  # 1.1 by transformers 4
        ({"tie_word_embeddings": True, "scale_decoder_outputs": True}, 1, True, True),
        ({"tie_word_embeddings": True, "scale_decoder_outputs": False}, 2, False, False),
        ({"tie_word_embeddings": True, "scale_decoder_outputs": False}, 1, True, False),
        ({}, 1, True, True),
    ],
)
def test_whether_the_output_is_tied_say_the_weights_and_whether_it_is_scaled_the_config(said, weights, tied, scaled):
    names = ("shared.weight", "lm_head.weight")[:weights]
    found = FORMAT.completed(said, {name: torch.full((2, 2), float(i)) for i, name in enumerate(names)})
    assert found == {"tie_word_embeddings": tied, "scale_decoder_outputs": scaled}


MODEL = (
    "objective=span_corruption", "hidden_size=12", "heads=3", "layers=2", "norm=pre", "model.norm_kind=rms",
    "model.position=relative", "model.embedding_norm=false", "model.linear_bias=false", "model.head_bias=false",
)  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        ("model.activation=gelu",),  # scaled logits, tied without a scaled output
        ("model.output_scaled=true", "model.activation=relu"),
        ("model.output_scaled=true", "model.tied=false", "model.gated=true", "model.activation=gelu_tanh"),
        (
            "variant=unscaled",
            "model.tied=false",
            "model.gated=true",
            "model.activation=relu",
            "key_size=7",
            "value_size=7",
        ),
    ],
)
def test_our_models_are_theirs(batch, changes, tmp_path):
    ours, settings = ours_of(*MODEL, "model.initial_std=0.3", *changes)
    (tmp_path / "config.json").write_text(json.dumps(FORMAT.config(settings, VOCABULARY)))
    state = FORMAT.to_hugging_face(ours.state_dict(), settings)
    save_file({name: tensor.contiguous().clone() for name, tensor in state.items()}, tmp_path / "model.safetensors")
    theirs = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.float64).eval()
    tokens, decoder_tokens, mask = batch
    with torch.no_grad():
        expected = theirs(input_ids=tokens, decoder_input_ids=decoder_tokens, attention_mask=mask.long()).logits
        assert_close(ours(tokens, decoder_tokens, mask=mask), expected, rtol=1e-5, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["variant=talking_heads"], ["variant.name=talking_heads"]),
        (["key_size=8"], ["value_size=4: T5 has 8"]),
        (["norm=post", "model.position=rotary"], ["norm=post: T5 has pre; model.position=rotary: T5 has relative"]),
        (["model.embedding_norm=true"], ["model.embedding_norm=true: T5 has false"]),
        (["model.first_norm=false"], ["model.first_norm=false: T5 has true"]),
        (["model.head_bias=true"], ["model.head_bias=true: T5 has false"]),
        (["model.gated=true", "model.activation=gelu"], ["model.activation=gelu"]),
    ],
)
def test_what_the_format_cannot_hold_is_refused_by_name(words, said):
    replaced = {word.split("=")[0] for word in words}
    settings = compose([*(word for word in MODEL if word.split("=")[0] not in replaced), *words])
    for refusing in (lambda: FORMAT.config(settings, VOCABULARY), lambda: FORMAT.to_hugging_face({}, settings)):
        with pytest.raises(Mistake, match="T5 has") as caught:
            refusing()
        assert all(part in str(caught.value) for part in said), caught.value


def test_what_is_no_t5_is_refused():
    with pytest.raises(Mistake, match=r"bert\.x is not a weight"):
        FORMAT.from_hugging_face({"bert.x": torch.ones(1)})
    sizes = {"d_model": 12, "d_kv": 4, "d_ff": 20, "num_layers": 2, "num_heads": 3}
    with pytest.raises(
        Mistake, match=r"feed_forward_proj = 'silu' of config\.json: must be one of relu, .*, gated-gelu"
    ):
        FORMAT.overrides(sizes | {"feed_forward_proj": "silu"})
    with pytest.raises(Mistake, match=r"num_decoder_layers=3"):
        FORMAT.overrides(sizes | {"num_decoder_layers": 3})
