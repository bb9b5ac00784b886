"""Write the page of variants from their YAML files, the costs of their layers, and the verdicts in docs/results.

    python scripts/write_variants.py [docs/variants.md]

The first comment lines of `conf/variant/NAME.yaml` are the definition, the paper, the equation of one head, and the
parts that differ from multi-head attention. A picture of the costs is written beside the page, and a picture of each
variant into the folder `variants` there.
"""

from __future__ import annotations

import re
import sys
import textwrap
from functools import cache
from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))


from experiments.commands.variants import Variant  # noqa: E402
from experiments.config.compose import compose  # noqa: E402
from experiments.config.groups import options  # noqa: E402
from experiments.model.layers.build_attention import build_attention  # noqa: E402
from experiments.model.without_values import without_values  # noqa: E402
from experiments.settings.variant import module_of  # noqa: E402
from experiments.tables.definition.folder import names as table_names  # noqa: E402
from experiments.tables.definition.request import load  # noqa: E402
from experiments.tables.rendering.index import decisions_of, pairs  # noqa: E402

SIZES = {"the default": "hidden_size=192 heads=6 length=64", "24 heads": "hidden_size=192 heads=24 length=64"}
LEGEND = {"multiplies": "multiplies", "parameters": "parameters; the line is multi-head attention"}
BAR, ROW, LEFT = 420, 22, 190
# parts of a layer -> column and row in the picture of a variant, and what multi-head attention does there
PARTS = {
    "queries": (0, 0, "one map of X in each head"),
    "keys": (0, 1, "one map of M in each head"),
    "values": (0, 2, "one map of M in each head"),
    "logits": (1, 0.5, "products of queries and keys, over the root of d_k"),
    "weights": (2, 0.5, "softmax of the logits"),
    "output": (3, 1.25, "weighted values of all heads, times W^O"),
}
ARROWS = [("queries", "logits"), ("keys", "logits"), ("logits", "weights"), ("weights", "output"), ("values", "output")]
BOX_WIDTH, BOX_HEIGHT, COLUMN, LINE = 184, 56, 210, 64

HEAD = """# The variants

This page shows every attention variant: its equation, a picture of what differs from multi-head attention, its cost,
and what finished tables say about it. The equations are for one head $i$, $j$ or $k$. $X$ holds the positions that
attend, and $M$ those that are attended to. $Q_i$ is $X W^Q_i$, $K_i$ is $M W^K_i$ and $V_i$ is $M W^V_i$. The layer's
output is the concatenated outputs of the heads, times $W^O$. [Concepts](concepts.md) explains these terms,
[settings](settings.md#variant-the-attention) the settings of the variants, and [follow-ups](follow_ups.md) how the
later mechanisms differ from their papers.

```bash
attn variants heads=24
attn train -m variant=multi_head,talking_heads,differential heads=24 seed=0,1,2
attn bench variant=multi_head,talking_heads,differential heads=24
```

The first command prints the costs at other sizes. The second trains three variants with three seeds, and the third
times them on your machine.

![Multiplications and parameters of each variant, relative to multi-head attention](variants.svg)

The picture and the table show the cost of one attention layer of width 192 and length 64, with 6 heads and with 24.
"Relative multiplies" is the number of multiplications over that of multi-head attention; as in the papers, only matrix
products count. "Cached numbers" is how many numbers a decoder keeps of each earlier position, on average over the 64
positions. None of these costs is a time: a variant with few multiplications can be slow.

A section ends with the verdicts on the claims that compare a row of the variant, with their
[budget](tables.md) and number of seeds, or of rounds if times are compared. [How a claim is decided](verdicts.md)
explains the verdicts. If several pages decide a claim, the verdict is that of the page which counts in
[the list of results](results/README.md), and the others are named after it. If there is no verdict yet, the section
names the tables that would give one.
`python scripts/write_variants.py` writes this page.
"""


class Layer(NamedTuple):
    """The cost of one attention layer for one sequence; `cached` is that of each position."""

    parameters: int
    multiplies: int
    cached: int


class Ratios(NamedTuple):
    """The cost relative to multi-head attention, in the order of the picture."""

    multiplies: float
    parameters: float


def costs(sizes: str) -> dict[str, Layer]:
    """The cost of a layer of every variant at these sizes."""
    found = {}
    for name in options("variant"):
        settings = compose([*sizes.split(), f"variant={name}"])
        with without_values():
            cost = build_attention(settings.variant).cost(settings.length, settings.length)
        found[name] = Layer(cost.parameters, cost.multiplies, cost.cached // settings.length)
    return found


def equation(name: str) -> str:
    """The equation in the comment lines, with its dollar signs; empty if there is none."""
    return next((line for line in Variant.read(name).further if re.fullmatch(r"\$.*\$", line)), "")


def own_keys(name: str) -> list[str]:
    """The variant's keys that multi-head attention does not have."""
    variant, multi_head = (compose([f"variant={each}"]).variant for each in (name, "multi_head"))
    return [key for key in variant if key not in (*multi_head, "module")]


def verdicts(results: Path) -> dict[str, list[str]]:
    """The verdicts on the claims that compare a row of a variant, by variant."""
    found: dict[str, list[str]] = {}
    for counts, *others in decisions_of(results):
        request, verdict = counts.report.request, counts.verdict
        budget = request.budget_name
        link = f"[{verdict.key} of {request.name}](results/{counts.stem}.md)"
        line = f"{link} {verdict.claim.says}: **{verdict.word}**{counts.by_scheme} ({budget}, {pairs(verdict)})"
        line = "; ".join([line, *(each.as_another("results/") for each in others)])
        variants = variants_of(request.name, budget)
        for name in sorted({variants[row] for row in verdict.claim.rows if row in variants}):
            found.setdefault(name, []).append(line)
    return found


@cache
def variants_of(table: str, budget: str) -> dict[str, str]:
    """The variant of each row of a table that trains models: its own, or that of the budget, or the default."""
    definition = load(table)
    if (ROOT / "experiments" / "tables" / "numerical" / f"{definition.source}.py").exists():
        return {}
    shared = f"variant={compose([]).variant['name']} {definition.budget(budget).overrides}"
    return {
        row: re.findall(r"variant=(\w+)", f"{shared} {of_row.overrides}")[-1]
        for row, of_row in definition.rows_at(budget).items()
    }


def no_verdict(name: str) -> str:
    """The sentence about a variant that no finished table has tested."""
    tables = [
        f"`attn table {table}`"
        for table in table_names()
        if any(name in variants_of(table, budget).values() for budget in load(table).budgets)
    ]
    if not tables:
        return "No verdict yet, and no table has a row of it: [make one](own_table.md)."
    return f"No verdict yet. Tables with a row of it: {', '.join(tables)}."


def page() -> str:
    """The whole page."""
    few, many = (costs(sizes) for sizes in SIZES.values())
    decided = verdicts(ROOT / "docs" / "results")
    rows = [
        f"| [`{name}`](#{name}) "
        + " ".join(
            f"| {layers[name].parameters:,} | {over_multi_head(layers, name).multiplies:.2f} | {layers[name].cached:,}"
            for layers in (few, many)
        )
        + " |"
        for name in few
    ]
    heads = [
        "| variant | parameters, 6 heads | relative multiplies | cached numbers "
        "| parameters, 24 heads | relative multiplies | cached numbers |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    sections = [section(name, decided.get(name, [])) for name in few]
    return "\n".join([HEAD, *heads, *rows, "", *sections])


def section(name: str, decided: list[str]) -> str:
    """The part of the page about one variant."""
    variant = Variant.read(name)
    module = module_of(compose([f"variant={name}"]).variant)
    lines = [f"## {name}", "", variant.definition, ""]
    if text := equation(name):
        lines += ["```math", text.strip("$"), "```", ""]
    parts = differing(name)
    shown = f"What differs from multi-head attention: {', '.join(parts)}" if parts else "The parts of the layer"
    lines += [f"![{shown}](variants/{name}.svg)", ""]
    keys = ", ".join(f"`variant.{key}`" for key in own_keys(name))
    place = f"[attention/{module}.py](../attention/{module}.py)"
    lines += [f"{variant.paper}. Code: {place}." + (f" Settings of its own: {keys}." if keys else ""), ""]
    return "\n".join([*lines, *(f"* {each}" for each in decided or [no_verdict(name)]), ""])


def differing(name: str) -> dict[str, str]:
    """The parts of a variant's layer that differ from multi-head attention, and what they do instead.

    Raises ValueError for a part that the picture does not have.
    """
    line = next((line for line in Variant.read(name).further if line.startswith("differs: ")), "")
    parts = dict(each.split(": ", 1) for each in line.removeprefix("differs: ").split("; ") if each)
    if wrong := parts.keys() - PARTS.keys():
        raise ValueError(f"conf/variant/{name}.yaml: differs: {', '.join(wrong)}: must be of {', '.join(PARTS)}")
    return parts


def sketch(name: str) -> str:
    """The picture of a variant: the parts of its layer, with those that differ from multi-head attention in orange."""
    own = differing(name)
    corner = {part: (4 + COLUMN * column, 4 + LINE * row) for part, (column, row, _) in PARTS.items()}
    body = []
    for start, end in ARROWS:
        (x1, y1), (x2, y2) = corner[start], corner[end]
        middle = BOX_HEIGHT / 2
        body.append(f'<path d="M{x1 + BOX_WIDTH} {y1 + middle:g}L{x2 - 7} {y2 + middle:g}" marker-end="url(#tip)"/>')
    for part, (x, y) in corner.items():
        text = textwrap.wrap(own.get(part, PARTS[part][2]), 28)
        body.append(
            f'<rect class="{"own" if part in own else "same"}" x="{x}" y="{y:g}" width="{BOX_WIDTH}" '
            f'height="{BOX_HEIGHT}" rx="4"/><text class="title" x="{x + 8}" y="{y + 17:g}">{part}</text>'
        )
        body += [
            f'<text x="{x + 8}" y="{y + 33 + 14 * line:g}">{escape(words)}</text>' for line, words in enumerate(text)
        ]
    style = (
        "text{font-family:system-ui,sans-serif;font-size:11px;fill:#1c2733}.title{font-weight:600}"
        ".same{fill:#f4f6f8;stroke:#8894a0}.own{fill:#fdebd9;stroke:#d55e00;stroke-width:2}"
        "path{stroke:#51606e;fill:none}#tip path{fill:#51606e;stroke:none}"
    )
    width, height = 3 * COLUMN + BOX_WIDTH + 8, 2 * LINE + BOX_HEIGHT + 8
    tip = '<marker id="tip" markerWidth="7" markerHeight="8" refY="4" orient="auto"><path d="M0 0L7 4L0 8z"/></marker>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    ground = '<rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join([head, f"<style>{style}</style><defs>{tip}</defs>{ground}", *body, "</svg>"]) + "\n"


def over_multi_head(layers: dict[str, Layer], name: str) -> Ratios:
    """The cost of a variant divided by that of multi-head attention."""
    base = layers["multi_head"]
    return Ratios(layers[name].multiplies / base.multiplies, layers[name].parameters / base.parameters)


def drawing() -> str:
    """The picture: bars for the multiplies and the parameters of each variant, relative to multi-head's."""
    body, top = [], 16
    for title, sizes in SIZES.items():
        layers = costs(sizes)
        ratios = {name: over_multi_head(layers, name) for name in layers}
        most = max(max(pair) for pair in ratios.values())
        body.append(f'<text class="title" x="{LEFT}" y="{top}">{title}: {sizes}</text>')
        top += 12
        for name, pair in ratios.items():
            body.append(f'<text x="{LEFT - 8}" y="{top + 13}" text-anchor="end">{name}</text>')
            for place, (kind, ratio) in enumerate(pair._asdict().items()):
                y = top + 9 * place
                body.append(f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{BAR * ratio / most:.1f}" height="8"/>')
                body.append(
                    f'<text class="value" x="{LEFT + BAR * ratio / most + 5:.1f}" y="{y + 8}">{ratio:.2f}</text>'
                )
            top += ROW
        one = LEFT + BAR / most
        body.append(f'<line x1="{one:.1f}" x2="{one:.1f}" y1="{top - ROW * len(ratios)}" y2="{top}"/>')
        top += 28
    legend = "".join(
        f'<rect class="{kind}" x="{LEFT + 110 * place}" y="{top - 12}" width="12" height="8"/>'
        f'<text x="{LEFT + 110 * place + 18}" y="{top - 4}">{says}</text>'
        for place, (kind, says) in enumerate(LEGEND.items())
    )
    style = (
        "text{font-family:system-ui,sans-serif;font-size:12px;fill:#1c2733}.title{font-weight:600}.value{font-size:9px;"
        "fill:#51606e}.multiplies{fill:#0072b2}.parameters{fill:#e69f00}line{stroke:#1c2733;stroke-dasharray:3 3}"
    )
    size = f'viewBox="0 0 {LEFT + BAR + 50} {top + 8}" width="{LEFT + BAR + 50}" height="{top + 8}"'
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', f"<style>{style}</style>"]
    head.append('<rect width="100%" height="100%" fill="#fff"/>')
    return "\n".join([*head, *body, legend, "</svg>"]) + "\n"


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "variants.md"
    target.write_text(page(), encoding="utf-8")
    target.with_suffix(".svg").write_text(drawing(), encoding="utf-8")
    target.with_suffix("").mkdir(exist_ok=True)
    for name in options("variant"):
        (target.with_suffix("") / f"{name}.svg").write_text(sketch(name), encoding="utf-8")
