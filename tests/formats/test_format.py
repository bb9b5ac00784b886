"""What every format says of a config.json whose keys are missing or hold something else."""

from __future__ import annotations

import contextlib
import re

import pytest
import torch

from experiments.config.compose import compose
from experiments.failures.failure import Mistake
from experiments.formats.format import Format, format_of
from tests.formats.released import CONFIGS

# keys that are read where they are there, and that the published files lack
OTHER_KEYS = (
    "attention_head_size", "attention_key_size", "embedding_size", "global_attn_every_n_layers", "layer_types",
    "n_inner", "num_decoder_layers", "num_hidden_groups", "pad_token_id", "position_embedding_type", "rope_parameters",
    "rope_scaling", "scale_attn_weights", "scale_decoder_outputs", "tie_word_embeddings",
)  # fmt: skip
VALUES = (None, True, 0, -3, 2.5, "x", [], ["x"], {}, {"full_attention": 1}, {"full_attention": {"rope_theta": "x"}})


@pytest.fixture(params=CONFIGS)
def published(request) -> tuple[Format, dict]:
    return format_of(request.param), CONFIGS[request.param]


def test_a_missing_key_has_its_default_or_is_named(published):
    format, config = published
    for key, default in format.same_values.values():
        without = {name: value for name, value in config.items() if name != key}
        if isinstance(default, type):
            with pytest.raises(Mistake, match=rf"^config\.json lacks {key}, which must be a whole number, at least 1$"):
                format.overrides(without)
        else:
            assert format.overrides(without) == format.overrides(without | {key: default})


@pytest.mark.parametrize("value", [[], "24"])
def test_a_key_of_another_type_is_named_with_its_value_and_what_is_allowed(published, value):
    format, config = published
    for key, _ in format.same_values.values():
        with pytest.raises(Mistake, match=rf"{key} = {re.escape(repr(value))} of config\.json: (must be|only) "):
            format.overrides(config | {key: value})


def test_whatever_a_key_holds_is_read_or_is_a_mistake(published):
    format, config = published
    for key in {*config, *OTHER_KEYS, *(key for key, _ in format.same_values.values())}:
        for value in VALUES:
            changed = config | {key: value}
            for read in (format.overrides, format.first_position, lambda config: format.completed(config, {})):
                with contextlib.suppress(Mistake):
                    read(changed)


@pytest.mark.parametrize(
    ("family", "head"),
    [("bert", "cls.predictions.transform.dense"), ("albert", "predictions.dense"), ("modernbert", "head.dense")],
)
def test_a_checkpoint_without_the_masked_token_head_says_what_it_lacks(family, head):
    format = format_of(family)
    (name,) = (theirs for theirs, ours in format.modules.items() if ours == "embedding.token")
    with pytest.raises(Mistake, match=rf"no masked-token head \({re.escape(head)}\)"):
        format.from_hugging_face({f"{name}.weight": torch.ones(3, 2)})


@pytest.mark.parametrize(("family", "output"), [("albert", "predictions.decoder"), ("modernbert", "decoder")])
def test_an_output_embedding_of_its_own_is_refused_where_the_two_are_tied(family, output):
    format = format_of(family)
    (name,) = (theirs for theirs, ours in format.modules.items() if ours == "embedding.token")
    state = {f"{name}.weight": torch.ones(3, 2), f"{output}.bias": torch.ones(3)}
    assert "head.output.weight" not in format.from_hugging_face(state | {f"{output}.weight": torch.ones(3, 2)})
    with pytest.raises(Mistake, match=f"differs from the input embedding; {format.proper_name} ties the two"):
        format.from_hugging_face(state | {f"{output}.weight": torch.zeros(3, 2)})


def exported(format: Format, config: dict, key: str, value: object) -> dict:
    """The config.json of the model of another one, with another value of a setting."""
    words = [word for word in format.overrides(format.completed(config, {})) if not word.startswith(f"{key}=")]
    return format.config(compose([*words, f"{key}={value}"]), 31)


@pytest.mark.parametrize("key", ["linear_bias", "dropout"])
def test_what_the_attention_alone_has_is_refused_by_name(published, key):
    format, _ = published
    value = str(not format.fixed_settings["model.linear_bias"]).lower() if key == "linear_bias" else 0.4
    with pytest.raises(Mistake, match=rf"^variant.{key}={value}: {re.escape(format.proper_name)} has "):
        exported(*published, f"variant.{key}", value)


@pytest.mark.parametrize(
    ("family", "key", "value"),
    [
        ("bert", "model.initial_std", "null"), ("gpt2", "model.initial_std", "null"),
        ("distilbert", "model.embedding_size", 12), ("t5", "model.attention_dropout", 0.3),
    ],
)  # fmt: skip
def test_what_a_config_has_no_key_for_is_refused_by_name(family, key, value):
    with pytest.raises(Mistake, match=f"^{key}={value}: {format_of(family).proper_name} has "):
        exported(format_of(family), CONFIGS[family], key, value)


def test_the_length_comes_back(published):
    format, config = published
    again = exported(format, config, "model.branches_scaled", "false")
    key = next(key for key in ("n_positions", "max_position_embeddings") if key in config)
    assert again[key] == config[key] - format.first_position(config)


@pytest.mark.parametrize(
    ("family", "key"), [("gpt2", "n_head"), ("distilbert", "n_heads"), ("modernbert", "num_attention_heads")]
)
def test_the_number_of_heads_which_no_weight_shows_must_be_in_the_config(family, key):
    without = {name: value for name, value in CONFIGS[family].items() if name != key}
    with pytest.raises(Mistake, match=f"config.json lacks {key}, which must be a whole number"):
        format_of(family).overrides(without)


def test_true_is_no_number_and_a_whole_number_is_one():
    format, config = format_of("modernbert"), CONFIGS["modernbert"]
    with pytest.raises(Mistake, match="num_hidden_layers = true of config"):
        format.overrides(config | {"num_hidden_layers": True})
    new = {"global_rope_theta": 10000, "rope_parameters": {"full_attention": {"rope_theta": 2.5}}}
    words = format.overrides(config | new)
    assert "model.rotary_base=2.5" in words and "model.local_rotary_base=10000.0" in words
