"""Archive the ended runs of a folder, and its plans of seeds: python scripts/archive_runs.py runs NAME.tar.xz

Weights are left out. `tar -xJf NAME.tar.xz -C runs` gives the runs back; a table then shows them, and trains the cells
that are missing. The same runs give the same bytes.
"""

from __future__ import annotations

import json
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

from experiments.record.durable import folder_for, replacing
from experiments.record.folder import CONFIG, ENVIRONMENT, METRICS, PREDICTIONS, RENDERED, RESULT, TOKENIZER
from experiments.tables.seed_plan import PLANS

KEPT = (CONFIG, ENVIRONMENT, METRICS, PREDICTIONS, RESULT, TOKENIZER)
ENDED = ("done", "nan")  # status of a run that a table shows and does not continue


def main(runs: Path, archive: Path) -> None:
    """Write the archive under a temporary name, and rename it."""
    folder_for(archive.parent)
    with replacing(archive) as unfinished, tarfile.open(unfinished, "w:xz", preset=9) as tar:
        for path in files(runs):
            tar.add(path, path.relative_to(runs).as_posix(), filter=_without_owner)


def files(runs: Path) -> Iterator[Path]:
    """The files of the archive, in their order."""
    for result in sorted(runs.glob(f"*/{RESULT}")):
        if json.loads(result.read_text())["status"] in ENDED:
            yield from (path for name in KEPT if (path := result.with_name(name)).exists())
    yield from sorted((runs / RENDERED / PLANS).glob("*.json"))


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """The entry without what differs between machines and dates."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o644
    return entry


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
