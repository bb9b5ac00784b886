from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from experiments.config.compose import compose
from experiments.failures.failure import Mistake
from experiments.formats.gpt2 import Gpt2Format

FORMAT = Gpt2Format()

transformers = pytest.importorskip("transformers")

SIZES = [
    {"n_embd": 24, "n_layer": 3, "n_head": 4},
    {"n_embd": 15, "n_layer": 1, "n_head": 1, "n_inner": 40, "activation_function": "gelu"},
    {"n_embd": 8, "n_layer": 2, "n_head": 8, "activation_function": "relu", "scale_attn_weights": False},
    {"n_embd": 12, "n_layer": 2, "n_head": 3, "tie_word_embeddings": False},
]


def theirs_of(**sizes):
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=31, n_positions=11, initializer_range=0.3, **sizes)
    return transformers.GPT2LMHeadModel(config)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-10)])
@pytest.mark.parametrize("sizes", SIZES)
def test_logits_of_a_hugging_face_gpt2(of_words, shaken, tokens, sizes, dtype, tolerance):
    theirs = shaken(theirs_of(**sizes)).to(dtype)
    _, ours = of_words(FORMAT.overrides(theirs.config.to_dict()))
    ours.to(dtype).load_state_dict(FORMAT.from_hugging_face(theirs.state_dict()))
    with torch.no_grad():
        assert_close(ours(tokens), theirs(input_ids=tokens).logits, rtol=0, atol=tolerance)
        positions = torch.tensor([0, 7, 13])
        assert_close(
            ours(tokens, positions), theirs(input_ids=tokens).logits.flatten(0, 1)[positions], rtol=0, atol=tolerance
        )


@pytest.mark.parametrize("sizes", SIZES)
def test_there_and_back(there_and_back, shaken, tokens, sizes):
    first = shaken(theirs_of(**sizes))
    second = there_and_back(FORMAT, first)
    with torch.no_grad():
        assert_close(second(input_ids=tokens).logits, first(input_ids=tokens).logits)


def test_what_it_has_not_is_refused_by_name():
    words = FORMAT.overrides(theirs_of(**SIZES[0]).config.to_dict())
    with pytest.raises(Mistake, match=r"variant\.name=talking_heads: GPT-2 has multi_head"):
        FORMAT.config(
            compose(["variant=talking_heads", *(word for word in words if not word.startswith("variant"))]), 31
        )
    with pytest.raises(Mistake, match="key_size=64: GPT-2 has 6"):
        FORMAT.config(compose([*words, "key_size=64"]), 31)
    for setting, value in (("position", "rotary"), ("first_norm", "false"), ("output_scaled", "true")):
        key = f"model.{setting}="
        with pytest.raises(Mistake, match=f"{key}{value}: GPT-2 has"):
            FORMAT.config(compose([f"{key}{value}", *(word for word in words if not word.startswith(key))]), 31)
    for changes in ({"activation_function": "silu"}, {"scale_attn_by_inverse_layer_idx": True}, {"embd_pdrop": 0.5}):
        with pytest.raises(Mistake, match=next(iter(changes)).split("_")[0]):
            FORMAT.overrides(theirs_of(**SIZES[0]).config.to_dict() | changes)
    with pytest.raises(Mistake, match=r"transformer\.h\.0\.crossattention"):
        FORMAT.from_hugging_face({"transformer.h.0.crossattention.c_attn.weight": torch.ones(2, 2)})
