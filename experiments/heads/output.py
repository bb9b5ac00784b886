"""The output of `attn heads`: tables as Parquet, figures as PNG and SVG, and one page with everything."""

from __future__ import annotations

import base64
import functools
import html
import io
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pyarrow
from matplotlib.figure import Figure
from pyarrow import parquet

from experiments.files.durable import folder_for, replacing, write
from experiments.heads import figures
from experiments.heads.fonts import undrawable
from experiments.heads.measures.pruning import export_pruned
from experiments.heads.section import Column, Maps, Section
from experiments.record.file_digests import write_digests

ASSETS = Path(__file__).parent / "assets"
SECTION_HTML = re.compile(r'<section id="[^"]*"><h2>(.*?)</h2>.*?</section>', re.DOTALL)
DPI, MAX_PIXELS = 160, 65_535  # of a PNG; the second is the most that matplotlib draws in a direction
SHARES = 32767  # by which page.js divides the 16 bits of a weight
EARLIER_NOTE = '<p class="none">From an earlier call of attn heads.</p>'


def save_sections(sections: Sequence[Section], folder: Path) -> None:
    """Write NAME.parquet for every table, NAME.png and NAME.svg for every figure, NAME/ for every model.

    `digests.json` has the digests of the tables for their readers. Raises DiskError.
    """
    folder_for(folder)
    for section in sections:
        for name, rows in section.tables.items():
            table = rows if isinstance(rows, pyarrow.Table) else pyarrow.Table.from_pylist(rows)
            with replacing(folder / f"{name}.parquet") as temporary:
                # without Arrow's schema, what is read is plain strings, however they were kept in memory
                parquet.write_table(table, temporary, store_schema=False)
        for name, figure in section.figures.items():
            with replacing(folder / f"{name}.png") as temporary:
                _draw(figure, temporary, format="png", dpi=min(DPI, MAX_PIXELS / max(figure.get_size_inches())))
            with replacing(folder / f"{name}.svg") as temporary:
                temporary.write_bytes(svg(figure))
        for name, (run, removed) in section.models.items():
            export_pruned(run, removed, folder / name)
    write_digests(folder, [f"{name}.parquet" for section in sections for name in section.tables])


def undrawable_tokens(sections: Sequence[Section]) -> str:
    """The characters of the maps' tokens that no font of this machine has."""
    shown = [maps for section in sections for maps in (section.maps or {}).values()]
    return undrawable({token for maps in shown for token in (*maps.queries, *maps.memory)})


def page(columns: Sequence[Column], earlier: Mapping[str, str] | None = None) -> str:
    """The page, which needs no other file.

    earlier: sections as HTML, by title, that stay if the runs have none with that title.
    """
    # in the order of the run that has most
    longest_first = sorted((column.sections for column in columns), key=len, reverse=True)
    titles = list(dict.fromkeys(section.title for sections in longest_first for section in sections))
    by_title = [{section.title: section for section in column.sections} for column in columns]
    blocks = []
    for title in titles:
        section_columns = "".join(f"<div>{_section_html(sections.get(title))}</div>" for sections in by_title)
        anchor = _anchor(title)
        blocks.append(
            f'<section id="{anchor}"><h2>{html.escape(title)}</h2><div class="runs">{section_columns}</div></section>'
        )
    kept_blocks = {title: block for title, block in (earlier or {}).items() if title not in titles}
    blocks += [
        block if EARLIER_NOTE in block else block.replace("</h2>", f"</h2>{EARLIER_NOTE}", 1)
        for block in kept_blocks.values()
    ]
    titles += kept_blocks
    headers = "".join(
        f"<div><h1>{html.escape(name)}</h1><p>{html.escape(about)}</p></div>" for name, about, _ in columns
    )
    links = "".join(f'<a href="#{_anchor(title)}">{html.escape(title)}</a>' for title in titles)
    return (ASSETS / "page.html").read_text(encoding="utf-8").format(
        title=html.escape(" and ".join(column.name for column in columns)),
        columns=len(columns),
        headers=headers,
        links=links,
        sections="".join(blocks),
        style=(ASSETS / "page.css").read_text(encoding="utf-8"),
        script=(ASSETS / "page.js").read_text(encoding="utf-8"),
    )  # fmt: skip


def write_page(path: Path, columns: Sequence[Column]) -> None:
    """Write the page. Earlier sections of the page that were not made again stay, with a note.

    Raises DiskError.
    """
    earlier = {}
    if path.exists():
        earlier_blocks = SECTION_HTML.finditer(path.read_text(encoding="utf-8"))
        earlier = {html.unescape(block[1]): block[0] for block in earlier_blocks}
    write(path, page(columns, earlier))


def share_scales(columns: Sequence[Column]) -> None:
    """Give the figures of several runs the same scales and colours, so that they can be compared.

    A map of attention keeps its own scale: the darkest colour is the largest weight of the map.
    """
    by_name: dict[str, list[Figure]] = {}
    for section in (section for column in columns for section in column.sections if section.maps is None):
        for name, figure in section.figures.items():
            by_name.setdefault(name, []).append(figure)
    for same_name in by_name.values():
        figures.share_scales(same_name)
    svg.cache_clear()


def _section_html(section: Section | None) -> str:
    if section is None:
        return '<p class="none">Not in this run.</p>'
    text = f"<p>{html.escape(section.text)}</p>"
    viewer = "" if section.maps is None else _viewer(section.maps)
    pictures = {name: figure for name, figure in section.figures.items() if section.maps is None}
    return text + viewer + "".join(map(_picture, pictures, pictures.values()))


def _viewer(stages: Mapping[str, Maps]) -> str:
    content = {
        title: {
            "rows": maps.queries,
            "columns": maps.memory,
            "layers": [[_encoded(weights) for weights in layer] for layer in maps.layers],
        }
        for title, maps in stages.items()
    }
    # inside a script element only `<` could end it or begin a comment
    data = json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")
    return f'<div class="maps"><script type="application/json">{data}</script></div>'


def _encoded(weights: figures.Array) -> dict[str, object]:
    """A map for the page: its largest absolute weight, and base64 of all weights as shares of it, in 16 bits each."""
    largest = float(np.abs(weights).max())
    shares = np.rint(weights * (SHARES / (largest or 1.0))).astype("<i2")
    return {"largest": largest, "shares": base64.b64encode(shares.tobytes()).decode("ascii")}


@functools.cache
def svg(figure: Figure) -> bytes:
    """The figure as SVG, whose text stays text. The same figure always gives the same bytes."""
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        _draw(figure, buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def _draw(figure: Figure, target: Path | io.BytesIO, **options: Any) -> None:
    """Save the figure. `attn heads` itself says, once, which characters the fonts lack."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(target, **options)


def _picture(name: str, figure: Figure) -> str:
    data = base64.b64encode(svg(figure)).decode()
    return f'<figure><img alt="{html.escape(name.replace("_", " "))}" src="data:image/svg+xml;base64,{data}"></figure>'


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")
