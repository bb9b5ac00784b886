"""The rows of a bench as bars: speed and, if it was measured, memory."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

from experiments.display.rows import Row, readable, shared_by, title
from experiments.failures.failure import Mistake
from experiments.failures.missing_extra import check_installed
from experiments.files.durable import check_writable, or_elsewhere

ENDINGS = (".svg", ".png", ".pdf")
BAR_INCHES = 0.3


def check_plot(path: Path) -> None:
    """Raises Mistake and Failure for a file that cannot be drawn, before anything is measured."""
    if path.suffix not in ENDINGS:
        raise Mistake(f"--plot {path}: must end in one of {', '.join(ENDINGS)}")
    if not path.parent.is_dir():
        raise Mistake(f"--plot {path}: there is no folder {path.parent}")
    if path.is_dir():
        raise Mistake(f"--plot {path}: is a folder", "name a file")
    with or_elsewhere("choose another --plot"):
        check_writable(path)
    check_installed("heads", "--plot", "matplotlib")


def draw(rows: list[Row], caption: str, path: Path) -> None:
    """A panel of tokens per second, with quartiles, and one of peak memory. Each row is a bar, the first on top."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, BAR_INCHES * len(rows) + 1.5), layout="constrained")
    shared, labels = described(rows)
    figure.suptitle("\n".join(filter(None, (caption, shared))), fontsize=9)
    speed, memory = figure.subplots(1, 2, sharey=True)
    tokens = [row["tokens_per_second"] for row in rows]
    spread = [each * row["spread"] / row["milliseconds"] / 2 for each, row in zip(tokens, rows, strict=True)]
    speed.barh(range(len(rows)), tokens, xerr=spread)
    speed.set_yticks(range(len(rows)), labels, fontsize=7)
    speed.set_xlabel("tokens a second")
    memory.barh(range(len(rows)), [row["peak_bytes"] / 1e6 for row in rows])
    memory.set_xlabel("peak above the start, MB")
    speed.invert_yaxis()
    figure.savefig(path)


def described(rows: list[Row]) -> tuple[str, list[str]]:
    """The settings that all rows share, and what each row is of: contender, kernel, and the settings that differ."""
    settings = [dict(takewhile(lambda item: item[0] != "milliseconds", row.items())) for row in rows]
    shared = shared_by(settings)
    return _words(shared), [_label(row, {key: row[key] for key in row if key not in shared}) for row in settings]


def _label(row: Row, differing: Row) -> str:
    kernel = f" ({row['backend']})" if row["backend"] else ""
    return ", ".join(filter(None, (f"{row['contender']}{kernel}", _words(differing))))


def _words(settings: Row) -> str:
    named = {key: value for key, value in settings.items() if key not in ("contender", "backend")}
    # a peer lacks some settings
    return ", ".join(f"{title(key)} {readable(key, value)}" for key, value in named.items() if value is not None)
