"""Convert a BERT's TensorFlow checkpoint, such as those of RoBERTa+, into a folder for `attn import`.

    python scripts/convert_tensorflow.py FOLDER TARGET

FOLDER contains NAME.index and NAME.data-00000-of-00001, bert_config.json and vocab.txt. TensorFlow is not needed. The
index is a table of sorted strings in blocks. A key in a block is stored without the beginning that it shares with the
key before it. An index block lists the blocks, and the last 48 bytes of the file say where the index block is. A value
is a protocol buffer with the type, shape and place of a tensor in the data.
"""

from __future__ import annotations

import json
import re
import shutil
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

MAGIC = 0xDB4775248B80FB57
DTYPES = {1: np.dtype("<f4"), 2: np.dtype("<f8"), 3: np.dtype("<i4"), 9: np.dtype("<i8"), 19: np.dtype("<f2")}
PARAMETERS = {
    "kernel": "weight",
    "gamma": "weight",
    "beta": "bias",
    "bias": "bias",
    "output_weights": "weight",
    "output_bias": "bias",
}
TABLES = ("word_embeddings", "position_embeddings", "token_type_embeddings")


def main() -> None:
    """Convert the folder in the first argument into that in the second."""
    if len(sys.argv) != 3:
        sys.exit("python scripts/convert_tensorflow.py FOLDER TARGET")
    folder, target = map(Path, sys.argv[1:])
    try:
        names = convert(folder, target)
    except (OSError, ValueError) as error:
        sys.exit(f"{error}")
    print(f"{target}: {len(names)} tensors; attn import {target} --name NAME")


def convert(folder: Path, target: Path) -> list[str]:
    """Write the folder and return the names of its tensors. Raises ValueError if `folder` is not such a checkpoint."""
    from safetensors.numpy import save_file

    config = json.loads((folder / "bert_config.json").read_text(encoding="utf-8"))
    (index,) = sorted(folder.glob("*.index")) or [folder / "bert_model.ckpt.index"]
    tensors = {}
    for name, tensor in read_checkpoint(index):
        if (renamed := torch_name(name)) is not None:
            tensors[renamed] = np.ascontiguousarray(tensor.T if name.endswith("/kernel") else tensor)
    target.mkdir(parents=True)
    save_file(tensors, target / "model.safetensors", {"format": "pt"})
    (target / "config.json").write_text(json.dumps({"model_type": "bert", **config}, indent=2) + "\n", encoding="utf-8")
    shutil.copy(folder / "vocab.txt", target / "vocab.txt")
    return sorted(tensors)


def torch_name(name: str) -> str | None:
    """The name of a variable in `BertForMaskedLM`; None if it belongs to the optimizer."""
    parts = name.split("/")
    if parts[0] not in ("bert", "cls") or parts[-1].startswith(("adam", "lamb")):
        return None
    *path, last = (re.sub(r"^layer_(\d+)$", r"layer.\1", part) for part in parts)
    if last in TABLES:
        path, last = [*path, last], "kernel"
    if last not in PARAMETERS:
        raise ValueError(f"{name}: is not a weight of a BERT")
    return ".".join([*path, PARAMETERS[last]])


def read_checkpoint(index: Path) -> Iterator[tuple[str, np.ndarray]]:
    """The variables of a checkpoint and their names. Raises ValueError if it isn't one, or is in several pieces."""
    data = index.with_suffix(".data-00000-of-00001")
    if not data.is_file():
        raise ValueError(f"{data}: there is no such file; a checkpoint in several pieces is not read")
    stored = np.memmap(data, dtype=np.uint8, mode="r")
    for key, value in read_table(index.read_bytes(), index):
        if not key:
            # the header of the checkpoint
            continue
        entry = message(value)
        dtype = DTYPES.get(int(first(entry, 1)))
        if dtype is None:
            raise ValueError(f"{index}: {key.decode()} has type {first(entry, 1)}, which this script can't read")
        shape = [int(first(message(each), 1)) for each in message(entry.get(2, [b""])[0]).get(2, [])]
        place = slice(int(first(entry, 4)), int(first(entry, 4)) + int(first(entry, 5)))
        yield key.decode(), stored[place].view(dtype).reshape(shape)


def read_table(content: bytes, path: Path) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a table of sorted strings."""
    if len(content) < 48 or struct.unpack("<Q", content[-8:])[0] != MAGIC:
        raise ValueError(f"{path}: is no index of a TensorFlow checkpoint")
    _, _, place = handle(content, len(content) - 48)
    start, size, _ = handle(content, place)
    for _, value in read_block(content, start, size, path):
        yield from read_block(content, *handle(value, 0)[:2], path)


def read_block(content: bytes, start: int, size: int, path: Path) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a block. The byte after the block says how it is compressed."""
    if content[start + size] != 0:
        raise ValueError(f"{path}: is compressed, but TensorFlow does not compress checkpoints")
    block = content[start : start + size]
    (restarts,) = struct.unpack("<I", block[-4:])
    place, key = 0, b""
    while place < size - 4 * (restarts + 1):
        shared, place = varint(block, place)
        own, place = varint(block, place)
        length, place = varint(block, place)
        key = key[:shared] + block[place : place + own]
        yield key, block[place + own : place + own + length]
        place += own + length


def handle(content: bytes, place: int) -> tuple[int, int, int]:
    """The start of a block, its size, and the place after the handle."""
    start, place = varint(content, place)
    size, place = varint(content, place)
    return start, size, place


def message(content: bytes) -> dict[int, list[int | bytes]]:
    """The values of a protocol buffer by the numbers of its fields."""
    fields: dict[int, list[int | bytes]] = {}
    place = 0
    while place < len(content):
        tag, place = varint(content, place)
        if tag % 8 == 0:
            value, place = varint(content, place)
        else:
            size, place = varint(content, place) if tag % 8 == 2 else ({1: 8, 5: 4}[tag % 8], place)
            value, place = content[place : place + size], place + size
        fields.setdefault(tag // 8, []).append(value)
    return fields


def first(fields: dict[int, list[int | bytes]], number: int) -> int | bytes:
    """The first value of a field; 0 if it is absent, because zeros are not stored."""
    return fields.get(number, [0])[0]


def varint(content: bytes, place: int) -> tuple[int, int]:
    """A number in groups of 7 bits, the lowest first, and the place after it."""
    value = shift = 0
    while True:
        byte = content[place]
        value, shift, place = value | (byte & 127) << shift, shift + 7, place + 1
        if byte < 128:
            return value, place


if __name__ == "__main__":
    main()
