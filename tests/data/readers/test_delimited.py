"""CSV and TSV files: cells are texts as they stand, and a wrong row is named at its line."""

from __future__ import annotations

import csv

import pytest

from experiments.data.errors import DataError
from experiments.data.readers.delimited import rows
from experiments.data.readers.files import check_column


def picked(where, names):
    for column in ("text", "label"):
        check_column(where, column, names)
    return ["text", "label"]


def read(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(rows(path, picked))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_row_is_named_by_the_line_in_which_it_begins(tmp_path, end, mark):
    path = tmp_path / "rows.csv"
    text = end.join(["id,text,label", f'1,"two{end}lines, ""quoted""",0', "", "2,,NA", '"3",None,1.50', ""])
    assert read(path, mark + text) == [
        (f"{path}, line 2", {"text": f'two{end}lines, "quoted"', "label": "0"}),
        (f"{path}, line 5", {"text": "", "label": "NA"}),
        (f"{path}, line 6", {"text": "None", "label": "1.50"}),
    ]


def test_what_the_library_writes_is_read(tmp_path):
    texts = ['"', "a,b", "\n", "\r", " x ", "", "\u2028", "\t", '""', "'"]
    with (tmp_path / "rows.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["text", "label"], *([text, "1"] for text in texts)])
    assert [row["text"] for _, row in rows(tmp_path / "rows.csv", picked)] == texts


def test_a_quote_in_a_tsv_file_is_a_character(tmp_path):
    text = 'label\ttext\n1\t"Oh, he said\n0\t"No."\n1\tthe 5" disk\n'
    assert [row["text"] for _, row in read(tmp_path / "rows.tsv", text)] == ['"Oh, he said', '"No."', 'the 5" disk']


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("rows.csv", "text,label\nx,1\na, b,1\n", "line 3 has 3 cells, and the header names 2 .* be in quotes"),
        ("rows.csv", 'text,label\n"x\ny",1\nx\n', "line 4 has 1 cell, and the header names 2 columns"),
        ("rows.csv", 'text,label\nx,1\n"x" y,1\n', "line 3: ',' expected after '\"'; .* and a quote in it doubled"),
        ("rows.csv", 'text,label\nx,1\n"x,1\nx,1\n', "line 3: unexpected end of data; .* must be in quotes"),
        ("rows.csv", "text,label,label\nx,1,1\n", "line 1, which must name the columns, has 2 columns of this name"),
        ("rows.csv", "txt;label\nx;1\n", "text: .*line 1, which must .* has no such column; there is txt;label"),
        ("rows.csv", "\n\n", "line 1, which must name the columns, has no such column$"),
        ("rows.csv", b"text,label\n\xe9,1\n", "is not UTF-8: byte 0xe9 at offset 11 .* iconv -f latin1"),
        ("rows.csv", "text,label\n".encode("utf-16"), "is not UTF-8: .* iconv -f utf-16"),
        ("rows.tsv", "text\tlabel\na\tb\t1\n", "line 2 has 3 cells, .*; in a .tsv file a quote"),
        ("rows.tsv", 'text\tlabel\n"a ""b"" c"\t1\n', "line 2: column text is quoted as in CSV; in a .tsv"),
    ],
)
def test_wrong_files(tmp_path, name, content, said):
    with pytest.raises(DataError, match=said):
        read(tmp_path / name, content)
