from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from experiments.config.compose import compose
from experiments.failures.failure import Mistake
from experiments.formats.albert import AlbertFormat

FORMAT = AlbertFormat()

transformers = pytest.importorskip("transformers")

BASE = {"hidden_size": 24, "embedding_size": 10, "num_hidden_layers": 3, "num_attention_heads": 4}
SIZES = [
    BASE,
    BASE | {"num_hidden_groups": 3, "hidden_act": "gelu"},
    {"hidden_size": 8, "embedding_size": 16, "num_hidden_layers": 1, "num_attention_heads": 8, "hidden_act": "relu"},
]


def theirs_of(kind="AlbertForMaskedLM", **sizes):
    torch.manual_seed(0)
    config = transformers.AlbertConfig(
        vocab_size=31, max_position_embeddings=11, intermediate_size=40, initializer_range=0.3, **sizes
    )
    config.architectures = [kind]
    return getattr(transformers, kind)(config)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-10)])
@pytest.mark.parametrize("sizes", SIZES)
def test_logits_of_a_hugging_face_albert(of_words, shaken, tokens, sizes, dtype, tolerance):
    theirs = shaken(theirs_of(**sizes)).to(dtype)
    _, ours = of_words(FORMAT.overrides(theirs.config.to_dict()))
    ours.to(dtype).load_state_dict(FORMAT.from_hugging_face(theirs.state_dict()))
    token_types = torch.randint(2, tokens.shape, generator=torch.Generator().manual_seed(2))
    mask = torch.arange(9) < torch.tensor([9, 6, 1])[:, None]
    with torch.no_grad():
        expected = theirs(input_ids=tokens, token_type_ids=token_types, attention_mask=mask.long()).logits
        assert_close(ours(tokens, token_types=token_types, mask=mask), expected, rtol=0, atol=tolerance)
        assert_close(ours(tokens), theirs(input_ids=tokens).logits, rtol=0, atol=tolerance)


@pytest.mark.parametrize("sizes", SIZES)
def test_there_and_back(there_and_back, shaken, tokens, sizes):
    first = shaken(theirs_of(**sizes))
    second = there_and_back(FORMAT, first)
    with torch.no_grad():
        assert_close(second(input_ids=tokens).logits, first(input_ids=tokens).logits)


def test_both_heads_of_a_hugging_face_albert_for_pre_training(of_words, shaken, tokens):
    theirs = shaken(theirs_of("AlbertForPreTraining", **BASE)).double()
    settings, ours = of_words(FORMAT.overrides(theirs.config.to_dict()))
    assert settings.objective.kind == "masked_sop"
    ours.double().load_state_dict(FORMAT.from_hugging_face(theirs.state_dict()))
    token_types = torch.randint(2, tokens.shape, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        expected = theirs(input_ids=tokens, token_type_ids=token_types)
        logits, classes = ours(tokens, torch.arange(27), token_types=token_types, classes=True)
    assert_close(logits, expected.prediction_logits.flatten(0, 1), rtol=0, atol=1e-10)
    assert_close(classes, expected.sop_logits, rtol=0, atol=1e-10)
    assert FORMAT.to_hugging_face(ours.state_dict(), settings).keys() == theirs.state_dict().keys()
    # a pooler without its classifier, as the published base models have it
    without = {name: tensor for name, tensor in theirs.state_dict().items() if "sop" not in name}
    assert not any(name.startswith("order") for name in FORMAT.from_hugging_face(without))


def test_the_parameters_are_theirs(of_words):
    theirs = theirs_of(**BASE)
    _, ours = of_words(FORMAT.overrides(theirs.config.to_dict()))
    assert ours.parameter_counts()["total"] == sum(parameter.numel() for parameter in theirs.parameters())


def test_what_it_has_not_is_refused_by_name():
    words = FORMAT.overrides(theirs_of(**BASE).config.to_dict())
    assert FORMAT.config(compose(words), 31)["num_hidden_groups"] == 1

    def changed(word: str) -> list[str]:
        return [word if each.split("=")[0] == word.split("=")[0] else each for each in words]

    words_of_others = ("model.sharing=attention", "norm=pre", "model.embedding_size=24", "model.token_types=0")
    for word in (*words_of_others, "model.output_scaled=true"):
        with pytest.raises(Mistake, match=word.split("=")[0]):
            FORMAT.config(compose(changed(word)), 31)
    for changes in ({"num_hidden_groups": 2}, {"inner_group_num": 2}, {"embedding_size": 24}, {"hidden_act": "silu"}):
        with pytest.raises(Mistake, match=next(iter(changes)).replace("hidden_act", "silu")):
            FORMAT.overrides(theirs_of(**BASE).config.to_dict() | changes)
    with pytest.raises(Mistake, match="albert\\.other"):
        FORMAT.from_hugging_face({"albert.other.weight": torch.ones(1)})
