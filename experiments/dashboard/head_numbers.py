"""The results of `attn heads` for a run, reduced for the page: numbers of each head, their plane, P_l and P_w."""

# L layers, H heads

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from experiments.record.file_digests import DIGESTS, check_digest, parse_digests
from experiments.record.folder import MEASURED_HEADS
from experiments.results.index import Index

# tables of `attn heads` whose rows are heads, with their columns that are not measures
TABLES = ("heads", "importance")
HEAD_KEYS = {"attention", "layer", "head", "role", "offset"}
DIGITS = 3

Rows = list[dict[str, Any]]


def heads_of(folder: Path, index: Index) -> dict[str, Any] | None:
    """The content of a run's `heads/` folder; None if nothing was measured. Raises OSError, ValueError.

    The numbers stand under the name of their attention: `encoder`, `decoder` and `cross` in an encoder-decoder, and ""
    in other models, which have one kind. `measures`: name -> [L][H]; `roles`: [L][H]; `plane`: [layer, head, x, y] for
    each head; `projections`: name -> [L][H][H]. Without a softmax, heads have no roles and no plane.
    """
    measured = folder / MEASURED_HEADS

    def read(name: str) -> Any:
        def checked(content: bytes) -> Rows:
            check_digest(name, content, index.read(measured / DIGESTS, parse_digests))
            return parse_table(content)

        return index.read(measured / name, checked, beside=[DIGESTS])

    found = {name: read(f"{name}.parquet") for name in (*TABLES, "plane", "projections")}
    if all(found[name] is None for name in TABLES):
        return None
    tables = {name: rows or [] for name, rows in found.items()}
    names = dict.fromkeys(_attention(row) for name in TABLES for row in tables[name])
    return {name: _numbers(_of_attention(tables, name)) for name in names}


def _attention(row: dict[str, Any]) -> str:
    return row.get("attention") or ""


def _of_attention(tables: dict[str, Rows], attention: str) -> dict[str, Rows]:
    return {name: [row for row in rows if _attention(row) == attention] for name, rows in tables.items()}


def _numbers(tables: dict[str, Rows]) -> dict[str, Any]:
    measures: dict[str, Any] = {}
    for name in TABLES:
        # a number that this attention has no use for is missing in all of its rows
        columns = dict.fromkeys(column for row in tables[name] for column in row if row[column] is not None)
        measures |= {column: by_head(tables[name], column) for column in columns if column not in HEAD_KEYS}
    return {
        "measures": measures,
        "roles": by_head(tables["heads"], "role"),
        "plane": [[row[key] for key in ("layer", "head", "x", "y")] for row in tables["plane"]],
        "projections": matrices(tables["projections"]),
    }


def parse_table(content: bytes) -> Rows:
    """The rows of a Parquet file, with numbers rounded for pictures."""
    # this import takes a second, which only pages with heads need
    from pyarrow import parquet

    rows: Rows = parquet.read_table(io.BytesIO(content)).to_pylist()
    return [{key: _short(value) for key, value in row.items()} for row in rows]


def by_head(rows: Rows, column: str) -> list[list[Any]]:
    """The values of a column as [L][H], for layers of any number of heads."""
    layers: dict[int, list[Any]] = {}
    for row in sorted(rows, key=lambda row: (row["layer"], row["head"])):
        layers.setdefault(row["layer"], []).append(row[column])
    return list(layers.values())


def matrices(rows: Rows) -> dict[str, list[list[list[float]]]]:
    """A matrix for each layer, by projection. Rows are the heads before it, columns the heads after it."""
    entries: dict[str, dict[int, Rows]] = {}
    for row in rows:
        entries.setdefault(row["matrix"], {}).setdefault(row["layer"], []).append(row)
    return {name: [_matrix(of_layer) for of_layer in layers.values()] for name, layers in entries.items()}


def _matrix(entries: Rows) -> list[list[float]]:
    entries.sort(key=lambda row: (row["before"], row["after"]))
    width = max(row["after"] for row in entries)
    values = [row["value"] for row in entries]
    return [values[start : start + width] for start in range(0, len(values), width)]


def _short(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
