from __future__ import annotations

import bz2
import gzip
import lzma
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.data import documents
from experiments.data.errors import DataError
from experiments.data.readers import files
from experiments.data.readers.files import find, parquet_rows, text_bytes, text_rows
from experiments.files import digest


@given(text=st.text(max_size=60), block=st.integers(1, 7))
def test_lines_survive_any_cut_of_the_bytes(tmp_path_factory: pytest.TempPathFactory, text: str, block: int) -> None:
    path = tmp_path_factory.mktemp("lines") / "text"
    path.write_bytes((text + "\n").encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digest, "BLOCK", block)
        assert "\n".join(text_rows(path)) == (text + "\n").removeprefix("\ufeff")
        assert b"".join(text_bytes(path)) == (text + "\n").encode()


@pytest.mark.parametrize("block", [3, 1 << 20])
def test_lines_that_end_in_carriage_returns_alone_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(digest, "BLOCK", block)
    path = tmp_path / "text"
    path.write_bytes(b"one\rtwo\rthree")
    with pytest.raises(DataError, match=r"has carriage returns and no line feeds.* convert it: tr '\\r' '\\n' <"):
        list(text_rows(path))
    path.write_bytes(b"one\r\ntwo\r\n")
    assert list(text_rows(path)) == ["one\r", "two\r", ""]


@pytest.mark.parametrize("before", [b"", "\u00e9".encode() * 3, b"\xef\xbb\xbfab", b"x" * 100])
@pytest.mark.parametrize("block", [1, 2, 3, 1 << 20])
def test_bytes_that_are_not_utf8_are_named_by_their_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bytes, block: int
) -> None:
    monkeypatch.setattr(digest, "BLOCK", block)
    path = tmp_path / "text"
    for wrong in (b"\xe9t\xe9", b"\xe2\x82", b"\xff"):
        path.write_bytes(before + wrong)
        with pytest.raises(DataError, match=rf"byte {wrong[0]:#04x} at offset {len(before)} \(.*latin1"):
            list(text_bytes(path))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_a_wide_encoding_is_recognized(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "text"
    path.write_text("hello", encoding=encoding)
    with pytest.raises(DataError, match=f"iconv -f {encoding}"):
        list(text_rows(path))


@pytest.mark.parametrize(
    ("packed", "remedy"),
    [
        (gzip.compress(b"text"), "unpack it: gzip -dk"),
        (lzma.compress(b"text"), "unpack it: xz -dk"),
        (bz2.compress(b"text"), "unpack it: bzip2 -dk"),
        (b"\x28\xb5\x2f\xfd\x04\x00", "unpack it: zstd -dk"),
        (b"%PDF-1.4\n%\xe2\xe3", "extract its text: pdftotext"),
    ],
    ids=["gzip", "xz", "bzip2", "zstd", "pdf"],
)
def test_a_packed_text_is_recognized(tmp_path: Path, packed: bytes, remedy: str) -> None:
    (tmp_path / "text").write_bytes(packed)
    with pytest.raises(DataError, match=f"is not UTF-8: .*; {remedy} .*text$"):
        list(text_bytes(tmp_path / "text"))


def test_a_pointer_of_git_lfs_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n")
    with pytest.raises(DataError, match="text is a pointer to the text; get the text: git lfs pull"):
        find("data.train", str(tmp_path / "text"))


def test_a_parquet_file_is_no_text(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["\u00e9" * 99]}), tmp_path / "text")
    with pytest.raises(DataError, match="it is a Parquet file: data=parquet reads it"):
        list(text_bytes(tmp_path / "text"))


def test_a_line_without_end_is_cut_at_blanks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (files, documents):
        monkeypatch.setattr(module, "LONGEST", 50)
    monkeypatch.setattr(digest, "BLOCK", 16)
    text = " ".join(f"word{number}" for number in range(100))
    (tmp_path / "text").write_text(text)
    rows = list(text_rows(tmp_path / "text"))
    assert "".join(rows) == text
    assert max(map(len, rows)) <= 50 + 16
    assert all(row.endswith(" ") for row in rows[:-1])


def test_globs_are_found_in_order_and_names_with_brackets_too(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "c[1].txt", "d.md"):
        (tmp_path / name).write_text("x")
    assert [path.name for path in find("data.train", f"{tmp_path}/*.txt")] == ["a.txt", "b.txt", "c[1].txt"]
    assert [path.name for path in find("data.train", f"{tmp_path}/c[1].txt")] == ["c[1].txt"]


def test_a_file_that_a_glob_finds_twice_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "books" / "english" / "a.txt"
    path.parent.mkdir(parents=True)
    path.write_text("x")
    assert find("data.train", f"{tmp_path}/**/**/*.txt") == [path]


def test_what_cannot_be_found_is_said(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("x")
    (tmp_path / "empty.txt").touch()
    with pytest.raises(
        DataError, match=r"data.train=.*corpsu.txt: there is no such file in .* \(did you mean corpus.txt\?\)"
    ):
        find("data.train", f"{tmp_path}/corpsu.txt")
    with pytest.raises(DataError, match=r"\*.parquet: no file matches in "):
        find("data.train", f"{tmp_path}/*.parquet")
    with pytest.raises(DataError, match="no such file, nor a folder ~nobody-of-this-name"):
        find("data.train", "~nobody-of-this-name/corpus.txt")
    with pytest.raises(DataError, match="no such file, nor a folder"):
        find("data.train", f"{tmp_path}/missing/corpus.txt")
    for too_long in ("a" * 300, "a/" * 3000, "*" * 300):
        with pytest.raises(DataError, match=r"data.train=.*: "):
            find("data.train", f"{tmp_path}/{too_long}")
    (tmp_path / "link.txt").symlink_to("link.txt")
    with pytest.raises(DataError, match=r"it is a link to link\.txt, where there is no file"):
        find("data.train", f"{tmp_path}/link.txt")
    with pytest.raises(DataError, match="is a folder; name its files"):
        find("data.train", str(tmp_path))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="pipe is not a regular file"):
        find("data.train", f"{tmp_path}/pipe")
    with pytest.raises(DataError, match=r"empty.txt is empty"):
        find("data.test", f"{tmp_path}/*.txt")


def table(path: Path) -> Path:
    pq.write_table(pa.table({"text": ["one", None, "two"], "title": ["a", "b", "c"], "id": [1, 2, 3]}), path)
    return path


def test_parquet_values_without_nulls(tmp_path: Path) -> None:
    path = table(tmp_path / "table.parquet")
    assert list(parquet_rows(path, "text")) == ["one", "two"]
    assert files.parquet_size(path, "text") > 0


def test_every_type_of_text_is_read(tmp_path: Path) -> None:
    texts = pa.array(["one", None, "two", "one"])
    columns = {str(kind): texts.cast(kind) for kind in (pa.string(), pa.large_string(), pa.string_view())}
    columns["dictionary"] = texts.dictionary_encode()
    numbers = {"list": [["one"]] * 4, "numbers": pa.array([1, 2, 1, 2]).dictionary_encode()}
    pq.write_table(pa.table(columns | numbers), tmp_path / "table.parquet")
    for name in columns:
        assert list(parquet_rows(tmp_path / "table.parquet", name)) == ["one", "two", "one"]
    for name in numbers:
        with pytest.raises(DataError, match=r"not text; there is dictionary, large_string, string, string_view$"):
            list(parquet_rows(tmp_path / "table.parquet", name))


def test_a_column_that_is_missing_or_no_text_is_said(tmp_path: Path) -> None:
    path = table(tmp_path / "table.parquet")
    with pytest.raises(
        DataError, match=r"data.column=txt: .* such column; there is id, text, title \(did you mean text\?\)"
    ):
        list(parquet_rows(path, "txt"))
    with pytest.raises(DataError, match=r"data.column=id: .* has int64 there, not text; there is text, title"):
        list(parquet_rows(path, "id"))


def test_damaged_parquet_is_said(tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("this is no table, but it is long enough to be one")
    with pytest.raises(DataError, match="is not a Parquet file, or is damaged"):
        list(parquet_rows(tmp_path / "text.parquet", "text"))
    whole = table(tmp_path / "table.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="is not a Parquet file, or is damaged"):
        list(parquet_rows(tmp_path / "cut.parquet", "text"))
    (tmp_path / "hole.parquet").write_bytes(whole[:4] + bytes(200) + whole[204:])
    with pytest.raises(DataError, match="or is damaged"):
        list(parquet_rows(tmp_path / "hole.parquet", "text"))


@pytest.mark.parametrize(("name", "reader"), [("rows.csv", "hub data.path=FOLDER"), ("rows.txt", "text data.train=.*")])
def test_a_file_of_another_kind_is_told_what_reads_it(tmp_path: Path, name: str, reader: str) -> None:
    (tmp_path / name).write_text("id,text\n1,one\n")
    with pytest.raises(DataError, match=rf"{name} is not a Parquet file; data={reader}.* reads it"):
        list(parquet_rows(tmp_path / name, "text"))


def test_a_column_that_stands_twice_or_is_not_utf8_is_said(tmp_path: Path) -> None:
    twice = pa.table([["one"], ["two"]], names=["text", "text"])
    pq.write_table(twice, tmp_path / "twice.parquet")
    with pytest.raises(DataError, match=r"data.column=text: .* has 2 columns of this name; rename all but one"):
        list(parquet_rows(tmp_path / "twice.parquet", "text"))
    wrong = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
    pq.write_table(pa.table({"text": wrong}), tmp_path / "wrong.parquet")
    with pytest.raises(DataError, match=r"wrong.parquet is not a Parquet file, or is damaged: 'utf-8' codec"):
        list(parquet_rows(tmp_path / "wrong.parquet", "text"))
