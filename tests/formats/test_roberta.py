"""RoBERTa's position table, which begins with rows that no token has."""

from __future__ import annotations

import pytest
import torch

from experiments.config.compose import compose
from experiments.formats.roberta import RobertaFormat
from experiments.model.build import build
from experiments.settings.position import POSITION_TABLE

FORMAT = RobertaFormat()
SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12}


@pytest.mark.parametrize("pad", [0, 1, 3])
def test_the_first_token_has_the_row_after_that_of_padding(pad):
    config = SIZES | {"max_position_embeddings": pad + 1 + 8, "pad_token_id": pad}
    settings = compose(FORMAT.overrides(config))
    ours = build("encoder", settings.model, settings.variant, 9, seed=0).state_dict()
    assert ours[POSITION_TABLE].shape == (8, 8)
    theirs = FORMAT.to_theirs(ours, settings, config)
    table = theirs["roberta.embeddings.position_embeddings.weight"]
    assert not table[: pad + 1].any() and torch.equal(table[pad + 1 :], ours[POSITION_TABLE])
    back = FORMAT.to_ours(theirs, config)
    assert POSITION_TABLE in back and all(torch.equal(tensor, ours[name]) for name, tensor in back.items())
