"""Draw the packages of the project and the path of `heads` through them: python scripts/draw_rooms.py [docs/rooms.svg]

The packages (rooms) and their order come from the contract in pyproject.toml. The purpose of each is the first line of
its `__init__.py`. The path is the numbered list of docs/how_it_works.md.
"""

from __future__ import annotations

import ast
import re
import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WIDTH, HEIGHT, GAP, LEFT, TOP = 1080, 58, 26, 20, 20
STYLE = (
    "text{font-family:system-ui,sans-serif;fill:#1c2733}.name{font-size:15px;font-weight:600}.says{font-size:11px;"
    "fill:#51606e}.room{fill:#eef3f8;stroke:#9db2c6}.stop{fill:#fdf1dc;stroke:#d39a34}.way{fill:none;stroke:#c46a1b;"
    "stroke-width:2.5}.number{font-size:11px;font-weight:700;fill:#fff}.bead{fill:#c46a1b}"
)


def floors() -> list[list[str]]:
    """The rooms from the top down. Those of one floor don't import each other."""
    # Python 3.10 has no TOML reader
    contract = (ROOT / "pyproject.toml").read_text(encoding="utf-8").split("layers = [", 1)[1].split("]", 1)[0]
    return [["cli.py"], *([name.strip() for name in line.split("|")] for line in re.findall(r'"([^"]+)"', contract))]


def purpose(room: str) -> str:
    """The first line of the room's docstring."""
    path = ROOT / room if room.endswith(".py") else ROOT / room.replace(".", "/") / "__init__.py"
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.splitlines()[0] if text else ""


def stops() -> list[str]:
    """The rooms that `heads` passes through, in order."""
    page = (ROOT / "docs" / "how_it_works.md").read_text(encoding="utf-8")
    way = page.split("## The path of `heads`", 1)[1].split("\n## ", 1)[0]
    places = re.findall(r"^\d+\. `([^`:]+):", way, flags=re.MULTILINE)
    return [room_of(place) for place in places]


def room_of(path: str) -> str:
    """The room that contains a file, as the contract names it."""
    parts = path.split("/")
    return path if len(parts) == 1 else "attention" if parts[0] == "attention" else ".".join(parts[:2])


def wrapped(text: str, characters: int) -> list[str]:
    """The text in at most two lines of at most `characters` characters; the rest is replaced by dots."""
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) + 1 > characters:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines if len(lines) <= 2 else [lines[0], lines[1].rstrip(".,;:") + " ..."]


def drawing() -> str:
    """The picture as SVG."""
    way = stops()
    boxes: dict[str, tuple[float, float, float]] = {}  # left, top, width
    body: list[str] = []
    for level, rooms in enumerate(floors()):
        width = (WIDTH - GAP * (len(rooms) - 1)) / len(rooms)
        for place, room in enumerate(rooms):
            left, top = LEFT + place * (width + GAP), TOP + level * (HEIGHT + GAP)
            boxes[room] = left, top, width
            kind = "stop" if room in way else "room"
            body.append(f'<rect class="{kind}" x="{left:.0f}" y="{top}" width="{width:.0f}" height="{HEIGHT}" rx="6"/>')
            label = room.rpartition(".")[2] + "/" if not room.endswith(".py") else room
            body.append(f'<text class="name" x="{left + 12:.0f}" y="{top + 20}">{escape(label)}</text>')
            for line, text in enumerate(wrapped(purpose(room), int(width / 6.2))):
                height = top + 36 + 14 * line
                body.append(f'<text class="says" x="{left + 12:.0f}" y="{height}">{escape(text)}</text>')
    beads: dict[str, int] = {}
    points = []
    for number, room in enumerate(way, start=1):
        left, top, width = boxes[room]
        seat = beads.setdefault(room, 0)
        beads[room] += 1
        points.append((left + width - 24 - 26 * (way.count(room) - 1 - seat), top + 18, number))
    line = " ".join(f"{x:.0f},{y}" for x, y, _ in points)
    # drawn first, so that the rooms hide the line where it passes them
    body.insert(0, f'<polyline class="way" points="{line}"/>')
    for x, y, number in points:
        body.append(f'<circle class="bead" cx="{x:.0f}" cy="{y}" r="10"/>')
        body.append(f'<text class="number" x="{x:.0f}" y="{y + 4}" text-anchor="middle">{number}</text>')
    height = 2 * TOP + len(floors()) * (HEIGHT + GAP) - GAP
    size = f'viewBox="0 0 {WIDTH + 2 * LEFT} {height}" width="{WIDTH + 2 * LEFT}" height="{height}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', f"<style>{STYLE}</style>"]
    parts.append('<rect width="100%" height="100%" fill="#fff"/>')
    return "\n".join([*parts, *body, "</svg>"]) + "\n"


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "rooms.svg"
    target.write_text(drawing(), encoding="utf-8")
