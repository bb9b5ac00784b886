"""Archive the ended runs of a folder, and its plans of seeds: python scripts/archive_runs.py runs NAME.tar.xz

Weights are left out, and so are the commands, the host and the folders of this machine. `tar -xJf NAME.tar.xz -C runs`
gives the runs back; a table then shows them, and trains the cells that are missing. The same runs give the same bytes.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.files.digest import file_digest
from experiments.files.durable import folder_for, read_sealed, replacing, write_sealed
from experiments.record.folder import (
    CONFIG,
    ENVIRONMENT,
    FILES,
    METRICS,
    PREDICTIONS,
    RENDERED,
    RESULT,
    TOKENIZER,
    RunFolder,
    config_text,
)
from experiments.tables.seed_plan import PLANS

ENDED = ("done", "nan")  # status of a run that a table shows and does not continue
FOLDERS = ("runs", "cache")  # settings that name folders of a machine; those of the machine that reads a run apply
OWN_FACTS = ("command", "host")  # of an environment


def main(runs: Path, archive: Path) -> None:
    """Write the archive under a temporary name, and rename it. Raises RunFolderError for a run that has changed."""
    folder_for(archive.parent)
    with (
        tempfile.TemporaryDirectory() as scratch,
        replacing(archive) as unfinished,
        tarfile.open(unfinished, "w:xz", preset=9) as tar,
    ):
        for run in ended(runs):
            copy = Path(scratch) / run.name
            copy_portably(run, copy)
            for path in sorted(copy.iterdir()):
                tar.add(path, f"{run.name}/{path.name}", filter=_without_owner)
        for plan in sorted((runs / RENDERED / PLANS).glob("*.json")):
            tar.add(plan, plan.relative_to(runs).as_posix(), filter=_without_owner)


def ended(runs: Path) -> Iterator[Path]:
    """The folders of the runs that have ended, by name."""
    for result in sorted(runs.glob(f"*/{RESULT}")):
        if read_sealed(result)["status"] in ENDED:
            yield result.parent


def copy_portably(run: Path, copy: Path) -> None:
    """Copy the files that a table needs, without what belongs to this machine, and give them their digests."""
    original = RunFolder(run)
    original.check_files()
    copy.mkdir()
    for name in (METRICS, PREDICTIONS, TOKENIZER):
        if (run / name).exists():
            shutil.copyfile(run / name, copy / name)
    (copy / CONFIG).write_text(config_text(_without_folders(original.config())), encoding="utf-8")
    facts = read_sealed(run / ENVIRONMENT)
    earlier = [_without_own_facts(each) for each in facts["earlier"]]
    write_sealed(copy / ENVIRONMENT, _without_own_facts(facts) | {"earlier": earlier})
    result = read_sealed(run / RESULT)
    changed = {name: file_digest(copy / name) for name in (CONFIG, ENVIRONMENT)}
    config = _without_folders(result["config"])
    write_sealed(copy / RESULT, result | {"config": config, FILES: result[FILES] | changed})


def _without_folders(settings: dict[str, Any]) -> dict[str, Any]:
    return settings | {name: name for name in FOLDERS if name in settings}


def _without_own_facts(facts: dict[str, Any]) -> dict[str, Any]:
    return facts | {name: None for name in OWN_FACTS if name in facts}


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """The entry without what differs between machines and dates."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o644
    return entry


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
