"""The rows of a bench as bars: speed and, where it was measured, memory."""

from __future__ import annotations

from pathlib import Path

from experiments.mistake import Mistake
from experiments.tabulate import Row

ENDINGS = (".svg", ".png", ".pdf")
BAR_INCHES = 0.3


def check_plot(path: Path) -> None:
    """Raises Mistake for a file that can't be drawn, before anything is measured."""
    if path.suffix not in ENDINGS:
        raise Mistake(f"--plot {path}: must end in one of {', '.join(ENDINGS)}")
    if not path.parent.is_dir():
        raise Mistake(f"--plot {path}: there is no folder {path.parent}")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise Mistake(f"--plot: {error}", "pip install -c constraints.txt -e '.[heads]'") from error


def draw(rows: list[Row], caption: str, path: Path) -> None:
    """A panel of tokens a second, with the quartiles, and one of peak memory; a bar a row, the first on top."""
    from matplotlib.figure import Figure

    panels = ["tokens_per_second"] + (["peak_bytes"] if all(row["peak_bytes"] is not None for row in rows) else [])
    figure = Figure(figsize=(4.5 * len(panels) + 2, BAR_INCHES * len(rows) + 1.5), layout="constrained")
    figure.suptitle(caption, fontsize=9)
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, key in zip(axes, panels, strict=True):
        values = [row[key] / (1e6 if key == "peak_bytes" else 1) for row in rows]
        spread = [value * row["spread"] / row["milliseconds"] / 2 for value, row in zip(values, rows, strict=True)]
        axis.barh(range(len(rows)), values, xerr=spread if key == "tokens_per_second" else None)
        axis.set_yticks(range(len(rows)), [_label(row) for row in rows], fontsize=7)
        axis.set_xlabel("peak above the start, MB" if key == "peak_bytes" else "tokens a second")
    axes[0].invert_yaxis()
    figure.savefig(path)


def _label(row: Row) -> str:
    kernel = f" ({row['backend']})" if row["backend"] else ""
    return f"{row['contender']}{kernel}, {row['heads']} heads, length {row['length']}, {row['precision']}"
