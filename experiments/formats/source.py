"""The place of a checkpoint of transformers, and the content of its folder. No file that is read can run code."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.data.tokenizer import SPECIAL, Tokenizer, from_vocabulary, load
from experiments.failures.failure import Failure, Mistake
from experiments.failures.wording import as_yaml, first_line, shortened
from experiments.files.disk import read_bytes
from experiments.formats.keys import read, require

if TYPE_CHECKING:
    from torch import Tensor

CONFIG = "config.json"
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
TOKENIZER_CONFIG = "tokenizer_config.json"
ADDED = "added_tokens.json"  # the ids of tokens that vocab.txt lacks
DEEPEST = 100  # collections in each other
INDEX = "*.index.json"  # of weights in several files
TEXTS = [CONFIG, "tokenizer.json", TOKENIZER_CONFIG, "vocab.txt", ADDED, INDEX]


def find_checkpoint(name: str) -> tuple[Path, str]:
    """The local folder of a checkpoint, and in words where it is from: a folder's name, or owner/name of the hub.

    Raises Mistake that says what was looked for, and Failure if the hub does not answer.
    """
    local = Path(name)
    if local.exists():
        return local, f"the folder {local.resolve()}"
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise Mistake(f"{name}: there is no such folder")
    folder = _download(name, TEXTS)
    for weights in WEIGHTS:
        if (_download(name, [weights]) / weights).exists():
            break
    return folder, f"{name} of the Hugging Face hub, commit {folder.name[:12]}"


def _download(name: str, files: list[str]) -> Path:
    """The folder of the library's cache with these files of the hub's newest commit, those that there are."""
    import huggingface_hub
    from huggingface_hub import errors

    looked = f"{name}: there is no folder of this name, and as a name of the Hugging Face hub"
    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=files))
    except errors.GatedRepoError as error:
        raise Mistake(
            f"{looked} it requires an agreement", "accept it on the hub and log in with `hf auth login`"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise Mistake(f"{looked} it does not exist there, or is hidden from you") from error
    except errors.HFValidationError as error:
        raise Mistake(f"{looked} it cannot be loaded: {first_line(error)}") from error
    except (OSError, errors.HfHubHTTPError, ValueError) as error:
        # the first line of the library's own error names a class
        reason = first_line(error.__cause__ or error)
        raise Failure(f"{looked} it cannot be loaded, because the hub does not answer: {reason}") from error


def read_config(folder: Path) -> dict[str, Any]:
    """The config.json of a folder. Raises Mistake."""
    if not (folder / CONFIG).is_file():
        raise Mistake(f"{folder}: there is no {CONFIG}", "name a folder that transformers has saved")
    return _mapping(folder / CONFIG)


def read_weights(folder: Path) -> tuple[Path, Mapping[str, Tensor]]:
    """The file and its tensors; a .bin is unpickled to tensors alone. Raises Mistake."""
    import torch
    from safetensors.torch import load_file

    files = [folder / name for name in WEIGHTS if (folder / name).is_file()]
    if not files:
        sharded = any(folder.glob(INDEX))
        reason = "its weights are in several files, which is not supported" if sharded else f"no {' or '.join(WEIGHTS)}"
        raise Mistake(f"{folder}: {reason}", "transformers' save_pretrained(FOLDER, max_shard_size='100GB') writes one")
    file = files[0]
    try:
        if file.suffix == ".safetensors":
            return file, load_file(file)
        state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        # what torch's unpickler raises depends on the bytes: KeyError, IndexError, struct.error, ...
        raise Mistake(f"{file}: can't be read as a file of tensors only: {first_line(error)}") from error
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise Mistake(f"{file}: is not a state dict")
    return file, state


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer.json, or WordPiece of vocab.txt as tokenizer_config.json says; lower-cased if it says nothing.

    Tokens that the folder adds to vocab.txt are those of transformers. Raises Mistake.
    """
    if (folder / "tokenizer.json").is_file():
        return load(folder / "tokenizer.json")
    if not (folder / "vocab.txt").is_file():
        raise Mistake(f"{folder}: there is neither tokenizer.json nor vocab.txt")
    path = folder / TOKENIZER_CONFIG
    config = _mapping(path) if path.is_file() else {}
    require(config, {"do_basic_tokenize": True}, TOKENIZER_CONFIG)

    def flag(key: str) -> bool:
        return bool(read(config, key, True, file=TOKENIZER_CONFIG))

    return from_vocabulary(
        folder / "vocab.txt",
        lowercase=flag("do_lower_case"),
        strip_accents=None if config.get("strip_accents") is None else flag("strip_accents"),
        split_chinese=flag("tokenize_chinese_chars"),
        added=_added(folder, config),
    )


def _added(folder: Path, config: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """The tokens that a folder adds to its vocab.txt, by id, as keywords of AddedToken. Raises Mistake."""
    if "added_tokens_decoder" in config:
        # with it, transformers does not read the file
        decoder = read(config, "added_tokens_decoder", dict, file=TOKENIZER_CONFIG)
        for key in decoder:
            if not re.fullmatch("[0-9]{1,9}", key):
                raise Mistake(f"{shortened(as_yaml(key))} in added_tokens_decoder of {TOKENIZER_CONFIG}: must be an id")
            read(decoder, key, dict, file=f"added_tokens_decoder of {TOKENIZER_CONFIG}")
        return {int(key): token for key, token in decoder.items()}
    path = folder / ADDED
    ids = _mapping(path) if path.is_file() else {}
    special = [*SPECIAL]
    for key, value in config.items():
        if key.endswith(("_token", "_special_tokens")):
            special += value if isinstance(value, list) else [value]
    return {read(ids, token, int, 0, ADDED): {"content": token, "special": token in special} for token in ids}


def _mapping(path: Path) -> dict[str, Any]:
    try:
        # with NaN and Infinity, which transformers reads too
        mapping = json.loads(read_bytes(path))
        _check_depth(mapping)
    except ValueError as error:
        raise Mistake(f"{path}: is not JSON: {error}") from error
    except RecursionError:
        raise Mistake(f"{path}: its lists or mappings are nested too deeply") from None
    if not isinstance(mapping, dict):
        raise Mistake(f"{path}: is not a mapping")
    return mapping


def _check_depth(value: Any) -> None:
    """Raises RecursionError, as json does, for more nested collections than the writer of a run's files can follow."""
    level = [value]
    for _ in range(DEEPEST):
        inner = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level = list(chain.from_iterable(inner))
    if level:
        raise RecursionError
