"""Local files: UTF-8 text and Parquet."""

from __future__ import annotations

import codecs
import glob
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from experiments.data.documents import LONGEST
from experiments.data.errors import DataError, reader_of, suggestion, why_not_both
from experiments.failures.failure import refusal
from experiments.failures.wording import did_you_mean, first_line
from experiments.files.digest import blocks
from experiments.files.disk import open_regular

BYTE_ORDER_MARK = "\ufeff"
PARQUET = b"PAR1"  # the first bytes of a Parquet file
# the first bytes of files that hold a text in another form, and how to get it
OTHER_FORMS = {
    b"\x1f\x8b": "unpack it: gzip -dk {}",
    b"\x28\xb5\x2f\xfd": "unpack it: zstd -dk {}",
    b"\xfd7zXZ": "unpack it: xz -dk {}",
    b"BZh": "unpack it: bzip2 -dk {}",
    b"PK\x03\x04": "unpack it: unzip {}",
    b"%PDF": "extract its text: pdftotext {}",
    PARQUET: "it is a Parquet file: data=parquet reads it",
    # before UTF-16, whose mark is the beginning of this one
    codecs.BOM_UTF32_LE: "convert it: iconv -f utf-32 -t utf-8 {} > OTHER",
    codecs.BOM_UTF32_BE: "convert it: iconv -f utf-32 -t utf-8 {} > OTHER",
    codecs.BOM_UTF16_LE: "convert it: iconv -f utf-16 -t utf-8 {} > OTHER",
    codecs.BOM_UTF16_BE: "convert it: iconv -f utf-16 -t utf-8 {} > OTHER",
}
GIT_LFS = b"version https://git-lfs.github.com/spec/"  # the first bytes of a file that stands for another
TEXT_TYPES = ("string", "large_string", "string_view")  # of pyarrow, by name: pyarrow 15 has no test for the last
ROWS_AT_ONCE = 256  # rows of a Parquet file in memory at once


def find(key: str, pattern: str) -> list[Path]:
    """The files of a path or glob, sorted by name, none of them empty.

    `key` is the setting for messages. Raises DataError.
    """
    try:
        return _found(key, pattern)
    except OSError as error:
        if refusal(error) is not None:
            # of this process, and not of the path
            raise
        raise DataError(f"{key}={pattern}: {error.strerror}") from error


def _found(key: str, pattern: str) -> list[Path]:
    # a user that does not exist stays as it is
    path = Path(os.path.expanduser(pattern))  # noqa: PTH111
    if glob.has_magic(pattern) and not path.exists():
        # two ** find a file more than once
        matches = {Path(name) for name in glob.glob(str(path), recursive=True)}  # noqa: PTH207, a pattern may be absolute
        paths = sorted(path for path in matches if path.is_file())
        if not paths:
            raise DataError(f"{key}={pattern}: no file matches{_beside(path)}")
    else:
        paths = [path]
    for path in paths:
        if path.is_dir():
            files = f"a file in it: {key}={path}/..." if key == "tokenizer.path" else f"its files: {key}='{path}/*'"
            raise DataError(f"{key}={pattern} is a folder; name {files}")
        if path.is_symlink() and not path.exists():
            raise DataError(f"{key}={pattern}: it is a link to {path.readlink()}, where there is no file")
        if not path.exists():
            raise DataError(f"{key}={pattern}: there is no such file{_beside(path)}")
        if not os.access(path, os.R_OK):
            raise DataError(f"{key}={pattern}: {path} cannot be read (permission denied)")
        if not path.is_file():
            raise DataError(f"{key}={pattern}: {path} is not a regular file; copy its content into one")
        if path.stat().st_size == 0:
            raise DataError(f"{key}={pattern}: {path} is empty")
        if begin(path).startswith(GIT_LFS):
            raise DataError(f"{key}={pattern}: {path} is a pointer to the text; get the text: git lfs pull")
    return paths


def begin(path: Path) -> bytes:
    """The first bytes of a file, enough to tell its form."""
    with open_regular(path) as file:
        return file.read(len(GIT_LFS))


def _beside(path: Path) -> str:
    """The part of a message about a missing file that describes its surroundings."""
    folder = path.parent
    if not folder.is_dir():
        return f", nor a folder {folder}"
    names = [other.name for other in folder.iterdir() if not other.name.startswith(".")]
    return f" in {folder.resolve()}{did_you_mean(path.name, names)}"


def digests_of_splits(splits: Mapping[str, list[Path]], digest: Callable[[Path], str]) -> dict[Path, str]:
    """The digest of every file. `splits`: the files of each split, by its setting.

    Raises DataError for a file that is in two splits, or has the content of one in another split.
    """
    owners: dict[Path, str] = {}
    for key, paths in splits.items():
        for path in paths:
            if (other := owners.setdefault(path.resolve(), key)) != key:
                raise DataError(f"{other} and {key} both contain {path}; {why_not_both(other, key)}")
    digests: dict[Path, str] = {}
    firsts: dict[str, tuple[str, Path]] = {}
    for key, paths in splits.items():
        for path in paths:
            digests[path] = digest(path)
            other, first = firsts.setdefault(digests[path], (key, path))
            if other != key:
                reason = why_not_both(other, key)
                raise DataError(f"{other} and {key}: {first} and {path} have the same content; {reason}")
    return digests


def text_bytes(path: Path) -> Iterator[bytes]:
    """The bytes of a text file, checked to be UTF-8 on the way."""
    for raw, _ in _decoded(path):
        yield raw


def whole_text(path: Path) -> str:
    """The text of a UTF-8 file, without a byte order mark."""
    return "".join(text for _, text in _decoded(path))


def text_rows(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, without a byte order mark; a line longer than LONGEST is cut at a blank.

    Raises DataError for a file whose lines end in carriage returns alone.
    """
    rest = ""
    returns = feeds = False
    for _, text in _decoded(path):
        returns, feeds = returns or "\r" in text, feeds or "\n" in text
        *lines, rest = (rest + text).split("\n")
        yield from lines
        if len(rest) > LONGEST:
            cut = rest.rfind(" ") + 1 or len(rest)
            yield rest[:cut]
            rest = rest[cut:]
    if returns and not feeds:
        raise DataError(
            f"{path} has carriage returns and no line feeds, so all of it is one line; "
            f"convert it: tr '\\r' '\\n' < {path} > OTHER"
        )
    yield rest


def _decoded(path: Path) -> Iterator[tuple[bytes, str]]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset = 0  # of the first byte that isn't decoded yet
    try:
        for block in itertools.chain(blocks(path), [b""]):
            undecoded = len(decoder.getstate()[0])
            text = decoder.decode(block, final=not block)
            yield block, text if offset else text.removeprefix(BYTE_ORDER_MARK)
            offset += undecoded + len(block) - len(decoder.getstate()[0])
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8: byte {error.object[error.start]:#04x} at offset {offset + error.start} "
            f"({error.reason}); {_remedy(path)}"
        ) from error


def _remedy(path: Path) -> str:
    first_bytes = begin(path)
    ways = (way for form, way in OTHER_FORMS.items() if first_bytes.startswith(form))
    return next(ways, "convert it: iconv -f latin1 -t utf-8 {} > OTHER").format(path)


def parquet_rows(path: Path, column: str) -> Iterator[str]:
    """The column's values, without nulls."""
    return (text for (text,) in parquet_texts(path, {"data.column": column}))


def parquet_texts(path: Path, columns: dict[str, str]) -> Iterator[tuple[str, ...]]:
    """The values of the columns; a row with a null is left out. `columns`: by the key that asks."""
    with parquet_file(path) as file:
        for key, column in columns.items():
            check_column(str(path), column, file.schema_arrow.names, key)
            kind = file.schema_arrow.field(column).type
            if not _is_text(kind):
                texts = [field.name for field in file.schema_arrow if _is_text(field.type)]
                raise DataError(f"{key}={column}: {path} has {kind} there, not text{suggestion(column, texts)}")
        for batch in file.iter_batches(batch_size=ROWS_AT_ONCE, columns=list(columns.values())):
            values = zip(*(batch.column(name).to_pylist() for name in columns.values()), strict=True)
            yield from (texts for texts in values if None not in texts)


def _is_text(kind: Any) -> bool:
    """Whether a column of this type holds text, perhaps in a dictionary of its values."""
    import pyarrow as pa

    return str(kind.value_type if pa.types.is_dictionary(kind) else kind) in TEXT_TYPES


@contextmanager
def parquet_file(path: Path) -> Iterator[Any]:
    """A block that reads an open `pyarrow.parquet.ParquetFile`. Raises DataError if it is none, or damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            yield file
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        if path.suffix != ".parquet" and not begin(path).startswith(PARQUET):
            raise DataError(f"{path} is not a Parquet file; {reader_of(path)}") from error
        raise DataError(f"{path} is not a Parquet file, or is damaged: {first_line(error)}") from error


def check_column(where: str, column: str, columns: list[str], key: str = "data.column") -> None:
    """Raises DataError if what `where` names lacks the column, or has two. `key` is the setting that asks for it."""
    if column not in columns:
        raise DataError(f"{key}={column}: {where} has no such column{suggestion(column, columns)}")
    if columns.count(column) > 1:
        raise DataError(f"{key}={column}: {where} has {columns.count(column)} columns of this name; rename all but one")


def parquet_size(path: Path, column: str) -> int:
    """About how many bytes of text the column has, from the file's footer; 0 where the file cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        footer = pq.read_metadata(path)
    except (pa.ArrowException, OSError):
        return 0
    groups = (footer.row_group(number) for number in range(footer.num_row_groups))
    chunks = (group.column(number) for group in groups for number in range(group.num_columns))
    return sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema == column)
