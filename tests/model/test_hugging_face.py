from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from experiments.model.bert import Bert
from experiments.model.hugging_face import from_hugging_face

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
    def make(hidden_size: int, layers: int, heads: int, tied: bool = True, activation: str = "gelu") -> Bert:
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
        return Bert(model, variant | {"backend": "auto"}, 31).eval()

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
    ours.load_state_dict(from_hugging_face(theirs.state_dict()))
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
    first, second = from_hugging_face(state), from_hugging_face(without)
    assert first.keys() == second.keys() == our_bert(8, 1, 2).state_dict().keys()
    assert torch.equal(first["head.bias"], second["head.bias"])


def test_an_unknown_weight_is_refused():
    with pytest.raises(ValueError, match=r"cls\.seq_relationship\.weight"):
        from_hugging_face({"cls.seq_relationship.weight": torch.ones(2, 8)})
