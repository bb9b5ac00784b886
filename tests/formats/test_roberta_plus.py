"""RoBERTa+: from a TensorFlow checkpoint to a run and out again; what its embedding's map and its wide keys compute."""

from __future__ import annotations

import json
import struct
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from experiments.commands.export_checkpoint import export_run
from experiments.commands.import_checkpoint import import_checkpoint
from experiments.config.compose import compose
from experiments.data.tokenizer import SPECIAL
from experiments.failures.failure import Mistake
from experiments.formats.bert import BertFormat
from experiments.model.build import build
from experiments.record.folder import RunFolder
from scripts import convert_tensorflow
from tests.formats import released
from tests.model.conftest import small_model

SIZES = {"tiny": (312, 4, 104, 26), "small": (384, 6, 128, 32)}
CONFIG = {
    "vocab_size": 8, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20,
    "max_position_embeddings": 16, "hidden_act": "gelu", "type_vocab_size": 2, "embedding_size": 6,
    "attention_key_size": 16, "attention_head_size": 4,
}  # fmt: skip


@pytest.mark.parametrize("name", SIZES)
def test_the_presets_have_the_released_sizes_and_are_what_their_config_says(name):
    settings = compose([f"model=roberta_plus_{name}"])
    found = (settings.hidden_size, settings.layers, settings.key_size, settings.value_size)
    assert found == SIZES[name] and settings.heads == 12 and settings.optimizer.kind == "lamb"
    written = BertFormat().config(settings, 100)
    assert written["embedding_size"] == 128 and written["attention_key_size"] == settings.key_size
    again = compose(BertFormat().overrides(written))
    assert again.model == settings.model and again.variant == settings.variant
    assert "embedding_size=128 as embedding_size" in BertFormat().note(settings)


def varint(number: int) -> bytes:
    low, rest = number % 128, number // 128
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number * 8) + varint(value)
    return varint(number * 8 + 2) + varint(len(value)) + value


def block(entries: list[tuple[bytes, bytes]]) -> bytes:
    """Keys without what they share with the one before; every third is whole again."""
    content, restarts, before = b"", [], b""
    for number, (key, value) in enumerate(entries):
        if number % 3 == 0:
            restarts.append(len(content))
            before = b""
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, key, strict=False)))
        content += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        before = key
    return content + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


def write_checkpoint(folder: Path, tensors: dict[str, np.ndarray]) -> None:
    """A checkpoint as TensorFlow's own library lays it out, in two blocks."""
    folder.mkdir()
    data, entries = b"", [(b"", field(1, 1))]
    for name, tensor in sorted(tensors.items()):
        shape = b"".join(field(2, field(1, size)) for size in tensor.shape)
        place = field(4, len(data)) if data else b""
        checksum = varint(6 * 8 + 5) + b"\x00\x00\x00\x00"
        entry = field(1, {"f": 1, "i": 9}[tensor.dtype.kind]) + field(2, shape) + place
        entries.append((name.encode(), entry + field(5, tensor.nbytes) + checksum))
        data += tensor.tobytes()
    index, handles = b"", []
    for part in (entries[:5], entries[5:]):
        content = block(part)
        handles.append((part[-1][0], varint(len(index)) + varint(len(content))))
        index += content + b"\x00" + b"\x00" * 4
    places = []
    for content in (block([]), block(handles)):
        places.append(varint(len(index)) + varint(len(content)))
        index += content + b"\x00" + b"\x00" * 4
    footer = b"".join(places)
    index += footer + b"\x00" * (40 - len(footer)) + struct.pack("<Q", 0xDB4775248B80FB57)
    (folder / "bert_model.ckpt.index").write_bytes(index)
    (folder / "bert_model.ckpt.data-00000-of-00001").write_bytes(data)
    (folder / "bert_config.json").write_text(json.dumps(CONFIG))
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, "a", "b", "c"]) + "\n")


def variables() -> dict[str, np.ndarray]:
    """Those of the checkpoint, drawn at random, with what its optimizer leaves."""
    D, E, K, V, F = 12, 6, 3 * 16, 3 * 4, 20
    shapes = {
        "bert/embeddings/word_embeddings": (8, E), "bert/embeddings/position_embeddings": (16, E),
        "bert/embeddings/token_type_embeddings": (2, E), "bert/encoder/embedding_hidden_mapping_in/kernel": (E, D),
        "bert/encoder/embedding_hidden_mapping_in/bias": (D,), "cls/predictions/transform/dense/kernel": (D, E),
        "cls/predictions/transform/dense/bias": (E,), "cls/predictions/output_bias": (8,),
        "bert/pooler/dense/kernel": (D, D), "bert/pooler/dense/bias": (D,),
        "bert/pooler/dense/bias/adam_m": (D,), "cls/seq_relationship/output_weights": (2, D),
    }  # fmt: skip
    norms = {"bert/embeddings/LayerNorm": E, "cls/predictions/transform/LayerNorm": E}
    for i in range(2):
        layer = f"bert/encoder/layer_{i}"
        maps = {"attention/self/query": (D, K), "attention/self/key": (D, K), "attention/self/value": (D, V)}
        maps |= {"attention/output/dense": (V, D), "intermediate/dense": (D, F), "output/dense": (F, D)}
        for name, shape in maps.items():
            shapes |= {f"{layer}/{name}/kernel": shape, f"{layer}/{name}/bias": shape[1:]}
        norms |= {f"{layer}/attention/output/LayerNorm": D, f"{layer}/output/LayerNorm": D}
    for name, size in norms.items():
        shapes |= {f"{name}/gamma": (size,), f"{name}/beta": (size,)}
    draw = np.random.default_rng(0)
    drawn = {name: draw.normal(size=shape).astype("<f4") for name, shape in shapes.items()}
    return drawn | {"global_step": np.array(125000, dtype="<i8")}


def test_a_tensorflow_checkpoint_becomes_a_run_and_comes_out_as_it_was(tmp_path, capsys):
    stored = variables()
    write_checkpoint(tmp_path / "theirs", stored)
    convert_tensorflow.convert(tmp_path / "theirs", tmp_path / "converted")
    import_checkpoint(str(tmp_path / "converted"), "plus", tmp_path / "runs", [])
    assert "left out" in capsys.readouterr().out
    run = RunFolder(tmp_path / "runs/plus").config()
    assert (run["key_size"], run["value_size"], run["model"]["embedding_size"]) == (16, 4, 6)

    export_run("plus", tmp_path / "again", tmp_path / "runs", "best", None)
    assert "transformers does not load such weights" in capsys.readouterr().out
    converted, again = (load_file(tmp_path / name / "model.safetensors") for name in ("converted", "again"))
    kept = {name for name in converted if "pooler" not in name and "seq_relationship" not in name}
    assert all(torch.equal(again[name], converted[name]) for name in kept)
    kernel = stored["bert/encoder/embedding_hidden_mapping_in/kernel"]
    assert np.array_equal(again["bert.encoder.embedding_hidden_mapping_in.weight"].numpy(), kernel.T)


@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"embedding_size": 24, "attention_key_size": 5},
        {"attention_key_size": 3, "attention_head_size": 7, "num_attention_heads": 5},
    ],
)
def test_a_check_compares_with_berts_of_transformers(sizes, tmp_path, capsys, monkeypatch):
    """The same function by transformers' layers, whose heads zeros widen."""
    pytest.importorskip("transformers")
    source = released.save("bert", tmp_path / "source")
    config = json.loads((source / "config.json").read_text()) | {"embedding_size": 9, "attention_key_size": 11} | sizes
    settings = compose(BertFormat().overrides(config))
    torch.manual_seed(0)
    model = build("encoder", settings.model, settings.variant, config["vocab_size"], 0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    theirs = BertFormat().to_hugging_face(model.state_dict(), settings)
    save_file({name: tensor.clone() for name, tensor in theirs.items()}, source / "model.safetensors")
    (source / "config.json").write_text(json.dumps(config))
    import_checkpoint(str(source), "plus", tmp_path / "runs", [], check=True)
    assert "differ by at most" in capsys.readouterr().out

    right = BertFormat.from_hugging_face

    def wrong(self, state):
        ours = right(self, state)
        name = "encoder.layers.0.attention.query.bias"
        return ours | {name: ours[name].flip(0)}

    monkeypatch.setattr(BertFormat, "from_hugging_face", wrong)
    with pytest.raises(Mistake, match="--check: the logits of 96 tokens differ"):
        import_checkpoint(str(source), "other", tmp_path / "runs", [], check=True)


def test_a_factorised_embedding_is_the_product_of_its_two_matrices(variant_of):
    """Without a norm between them, E-wide embeddings and their map are one D-wide embedding."""
    narrow = small_model(embedding_size=4, embedding_norm=False, position="none", head_transform=True)
    wide = small_model(embedding_norm=False, position="none", head_transform=True)
    first, second = (
        build("encoder", model, variant_of(model, "multi_head", 3, 16, 4), 23, 0).double().eval()
        for model in (narrow, wide)
    )
    with torch.no_grad():
        projection = first.embedding.projection
        second.embedding.token.weight.copy_(projection(first.embedding.token.weight))
        second.encoder.load_state_dict(first.encoder.state_dict())
        tokens = torch.randint(23, (2, 9), generator=torch.Generator().manual_seed(0))
        assert_close(first.encode(tokens), second.encode(tokens))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "bert_model.ckpt.index").write_bytes(b"x" * 60), "is no index of a TensorFlow"),
        (lambda folder: (folder / "bert_model.ckpt.data-00000-of-00001").unlink(), "in several pieces is not read"),
    ],
)
def test_what_is_no_checkpoint_is_said_and_leaves_nothing(tmp_path, damage, said):
    write_checkpoint(tmp_path / "theirs", variables())
    damage(tmp_path / "theirs")
    with pytest.raises(ValueError, match=said):
        convert_tensorflow.convert(tmp_path / "theirs", tmp_path / "converted")
    assert not (tmp_path / "converted").exists()
