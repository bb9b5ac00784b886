"""Peak memory of a contender above its start, in a process of its own: `python -m experiments.bench.memory FOLDER`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from experiments.bench.contenders import Contender, get_ready
from experiments.child import child
from experiments.configuration import from_tree
from experiments.measure.memory import PeakMemory

NAME = "contender.json"
RUNS = 2  # the first one also makes what later ones find


def peak_bytes(contender: Contender) -> int:
    """Of two runs, above model, moments and batch. Raises RuntimeError with what its process said last."""
    words = contender._asdict() | {"settings": contender.settings.model_dump()}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / NAME).write_text(json.dumps(words), encoding="utf-8")
        process = subprocess.run(
            **child("experiments.bench.memory", Path(folder)), capture_output=True, text=True, check=False
        )
    if process.returncode:
        said = process.stderr.strip().splitlines() or [f"ended with code {process.returncode}"]
        raise RuntimeError(f"memory of {contender.name}: {said[-1]}")
    return int(process.stdout.split()[-1])


def main() -> None:
    words = json.loads((Path(sys.argv[1]) / NAME).read_text(encoding="utf-8"))
    contender = Contender(**(words | {"settings": from_tree(words["settings"])}))
    ready = get_ready(contender)
    memory = PeakMemory(contender.device)
    for _ in range(RUNS):
        ready.run()
    print(memory.peak_bytes() - memory.baseline_bytes)


if __name__ == "__main__":
    main()
