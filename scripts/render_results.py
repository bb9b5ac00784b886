"""Write the pages of measured tables again from the numbers that lie beside them, in the words of the present code.

    python scripts/render_results.py [docs/results]

Claims are decided anew. To be run after a change of what pages say, or of a table's labels and claims.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from experiments.tables.archive import restored  # noqa: E402
from experiments.tables.rendering.render import write_all  # noqa: E402


def main() -> None:
    """Write every file of the folder but the numbers."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "results"
    for path in sorted(folder.glob("*.json")):
        print(path.stem)
        write_all(restored(path), folder)


if __name__ == "__main__":
    main()
