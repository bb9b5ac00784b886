from __future__ import annotations

import re

import pytest
import torch
from torch.testing import assert_close

from experiments.config.compose import compose
from experiments.failures.failure import Mistake
from experiments.formats.bert import BertFormat
from experiments.model.architectures import encoder
from experiments.model.build import build

FORMAT = BertFormat()

transformers = pytest.importorskip("transformers")


def hugging_face_bert(hidden_size: int, layers: int, heads: int, tied: bool = True, activation: str = "gelu"):
    config = transformers.BertConfig(
        vocab_size=31,
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=3 * hidden_size,
        hidden_act=activation,
        max_position_embeddings=11,
        initializer_range=0.3,
        tie_word_embeddings=tied,
    )
    torch.manual_seed(0)
    bert = transformers.BertForMaskedLM(config).eval()
    with torch.no_grad():
        # biases start as zeros and norms as ones, which would hide a mix-up
        for parameter in bert.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return bert


@pytest.fixture
def our_bert(settings_of, variant_of):
    def make(
        hidden_size: int, layers: int, heads: int, tied: bool = True, activation: str = "gelu"
    ) -> encoder.Architecture:
        model = settings_of(
            hidden_size=hidden_size,
            intermediate_size=3 * hidden_size,
            layers=layers,
            length=11,
            norm="post",
            position="learned",
            token_types=2,
            head_transform=True,
            tied=tied,
            activation=activation,
        )
        size = hidden_size // heads
        variant = variant_of(model, "multi_head", heads=heads, key_size=size, value_size=size)
        return encoder.Architecture(model, variant | {"backend": "auto"}, 31).eval()

    return make


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize(
    "sizes",
    [
        {"hidden_size": 24, "layers": 3, "heads": 4},
        {"hidden_size": 15, "layers": 1, "heads": 1},
        {"hidden_size": 35, "layers": 2, "heads": 7, "tied": False},
        {"hidden_size": 8, "layers": 2, "heads": 8, "activation": "relu"},
    ],
)
def test_logits_of_a_hugging_face_bert(our_bert, sizes, dtype, tolerance):
    theirs, ours = hugging_face_bert(**sizes).to(dtype), our_bert(**sizes).to(dtype)
    ours.load_state_dict(FORMAT.from_hugging_face(theirs.state_dict()))
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(31, (3, 9), generator=generator)
    token_types = torch.randint(2, (3, 9), generator=generator)
    mask = torch.arange(9) < torch.tensor([9, 6, 1])[:, None]
    with torch.no_grad():
        expected = theirs(input_ids=tokens, token_type_ids=token_types, attention_mask=mask.long()).logits
        assert_close(ours(tokens, token_types=token_types, mask=mask), expected, rtol=0, atol=tolerance)
        assert_close(ours(tokens), theirs(input_ids=tokens).logits, rtol=0, atol=tolerance)


def test_the_decoder_may_be_missing(our_bert):
    state = hugging_face_bert(8, 1, 2).state_dict()
    without = {name: value for name, value in state.items() if "decoder" not in name}
    first, second = FORMAT.from_hugging_face(state), FORMAT.from_hugging_face(without)
    assert first.keys() == second.keys() == our_bert(8, 1, 2).state_dict().keys()
    assert torch.equal(first["head.bias"], second["head.bias"])


def test_an_unknown_weight_is_refused():
    with pytest.raises(Mistake, match=r"cls\.seq_relationship\.weight"):
        FORMAT.from_hugging_face({"cls.seq_relationship.weight": torch.ones(2, 8)})


PLAIN = ["norm=post", "model.position=learned", "model.token_types=2", "model.head_transform=true"]
SMALL = ["hidden_size=24", "layers=2", "heads=4", "length=11"]


@pytest.mark.parametrize("more", [[], ["model.tied=false"], ["model.activation=relu"], ["variant=low_rank_value"]])
def test_what_is_written_is_what_transformers_computes(more):
    settings = compose([*PLAIN, *SMALL, *more])
    ours = build("encoder", settings.model, settings.variant, 31, seed=0).eval()
    theirs = transformers.BertForMaskedLM(transformers.BertConfig(**FORMAT.config(settings, 31))).eval()
    missing = theirs.load_state_dict(FORMAT.to_hugging_face(ours.state_dict(), settings), strict=False)
    assert not missing.unexpected_keys and set(missing.missing_keys) <= {"cls.predictions.decoder.weight"}
    theirs.tie_weights()
    tokens = torch.randint(31, (3, 9), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert_close(ours(tokens), theirs(input_ids=tokens).logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize("more", [[], ["key_size=16"], ["key_size=16", "value_size=3", "model.tied=false"]])
def test_there_and_back_is_the_same_model(more):
    settings = compose([*PLAIN, *SMALL, *more])
    written = FORMAT.config(settings, 31)
    again = compose(FORMAT.overrides(written))
    assert again.model == settings.model and again.variant == settings.variant
    state = build("encoder", settings.model, settings.variant, 31, seed=0).state_dict()
    back = FORMAT.from_hugging_face(FORMAT.to_hugging_face(state, settings))
    assert back.keys() == state.keys() and all(torch.equal(back[name], state[name]) for name in state)
    assert ("attention_key_size" in written) == bool(more) == (FORMAT.note(settings) is not None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_act": "silu"}, "hidden_act = 'silu'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type = 'relative_key'"),
        ({"is_decoder": True}, "is_decoder = true"),
        ({"intermediate_size": None}, "config.json lacks intermediate_size"),
    ],
)
def test_a_config_that_is_no_bert_of_ours_is_refused(change, said):
    written = FORMAT.config(compose([*PLAIN, *SMALL]), 31) | change
    with pytest.raises(Mistake, match=said):
        FORMAT.overrides({key: value for key, value in written.items() if value is not None})


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["variant=multi_query"], r"variant\.name=multi_query: BERT has multi_head or low_rank_value"),
        (["variant=talking_heads"], r"variant\.name=talking_heads: BERT has multi_head or low_rank_value"),
        (["variant=unscaled"], r"variant\.scaled=false: BERT has true"),
        (["norm=pre"], "norm=pre"),
        (["model.norm_kind=rms"], "model.norm_kind=rms"),
        (["model.position=rotary"], "model.position=rotary"),
        (["model.linear_bias=false"], "model.linear_bias=false"),
        (["model.head_transform=false"], "model.head_transform=false"),
        (["model.token_types=0"], "model.token_types=0: BERT has 1"),
        (["model.local_window=4"], "model.local_window=4: BERT has null"),
        (["model.output_scaled=true"], "model.output_scaled=true"),
    ],
)
def test_what_a_bert_can_not_express_is_named(more, said):
    kept = [word for word in PLAIN if word.split("=")[0] not in {each.split("=")[0] for each in more}]
    with pytest.raises(Mistake, match=said):
        FORMAT.config(compose([*kept, *SMALL, *more]), 31)


def test_a_checkpoint_without_the_head_and_one_with_old_names():
    state = hugging_face_bert(8, 1, 2).state_dict()
    with pytest.raises(Mistake, match="no masked-token head"):
        FORMAT.from_hugging_face({name: value for name, value in state.items() if not name.startswith("cls.")})
    modern = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    old = {re.sub("|".join(modern), lambda found: modern[found[0]], name): value for name, value in state.items()}
    expected = FORMAT.from_hugging_face(state)
    assert all(torch.equal(value, expected[name]) for name, value in FORMAT.from_hugging_face(old).items())
