"""Run folders of known content."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from experiments.commands.dashboard import write_dashboard
from experiments.files.durable import write_sealed
from experiments.record.file_digests import write_digests
from experiments.record.folder import config_text
from tests.fixtures.browser import Opened
from tests.fixtures.record import leave_result

Make = Callable[..., Path]


def config(variant: str = "multi_head", heads: int = 6, seed: int = 0, **more: Any) -> dict[str, Any]:
    sizes = {"layers": 2, "hidden_size": 96, "heads": heads, "key_size": 96 // heads, "value_size": 96 // heads}
    logger = {"project": "attn", "entity": "someone", "group": None, "tags": [], "wandb": "off"}
    return {**sizes, "norm": "pre", "seed": seed, "logger": logger, "variant": {"name": variant}, **more}


def lines(losses: list[float], seconds: float = 1.0) -> list[dict[str, Any]]:
    """A line every 10 steps of 100 tokens each, every other with an evaluation."""
    made = []
    for number, loss in enumerate(losses, start=1):
        line = {"step": 10 * number, "tokens": 1000 * number, "loss": loss, "tokens_per_second": 50.0}
        line |= {"validation_loss": loss + 0.5} if number % 2 == 0 else {}
        made.append({**line, "peak_memory_bytes": 10**8, "wall_seconds": seconds * number})
    return made


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """make(name, **config): write a finished run, or with finished=False an interrupted one."""

    def run(
        name: str, losses: tuple[float, ...] = (6.0, 5.0, 4.5, 4.0), finished: bool = True,
        speed: float | None = 5000.0, memory: float = 500e6, parameters: int = 10**6, status: str = "done",
        **settings: Any,
    ) -> Path:  # fmt: skip
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        chosen = config(**settings)
        (folder / "config.yaml").write_text(config_text(chosen))
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines(list(losses))))
        if finished:
            loss = losses[-1] + 0.5
            result = {"status": status, "reason": None, "seed": chosen["seed"], "config": chosen, "steps": 40}
            result |= {"validation_loss": loss, "perplexity": math.exp(loss), "unigram_loss": 6.5, "tokens": 4000}
            result |= {"tokens_per_second": speed, "peak_memory_bytes": int(memory), "wall_seconds": 4.0}
            result |= {"parameters": {"total": parameters}, "bits_per_byte": 2.0, "late_gain": 0.0}
            result |= {"backend": "blocked"}
            leave_result(folder, **result)
        return folder

    return run


@pytest.fixture
def measured() -> Callable[..., None]:
    """measured(folder): write what `attn heads` would, for two layers with two heads and one, in another order.

    value_head: the second layer has two heads of values. sides: the run is an encoder-decoder, with three kinds of
    attention; the entropy of each is 10 nats higher than that of the one before.
    """

    def leave(folder: Path, talking: bool = True, value_head: bool = False, sides: bool = False) -> None:
        places = [(2, 1), (1, 2), (1, 1)]
        heads = [{"layer": layer, "head": head} for layer, head in places]
        valued = [*heads, {"layer": 2, "head": 2}] if value_head else heads
        rows = {
            "heads": [
                {**place, "entropy": layer + head / 10 + 1 / 3e5, "role": f"r{layer}{head}", "offset": 1}
                for place, (layer, head) in zip(heads, places, strict=True)
            ],
            "importance": [{**place, "gradient": 0.5 * place["head"]} for place in valued],
            "plane": [{**place, "x": place["layer"] / 3, "y": 0.0} for place in heads],
        }
        if talking:
            rows["projections"] = [
                {"layer": layer, "matrix": name, "before": before, "after": after, "value": 10.0 * before + after}
                for name in ("P_l", "P_w")
                for layer in (1, 2)
                for after in (1, 2, 3)
                for before in (1, 2)
            ]
        if sides:
            rows = {name: list(of_sides(table)) for name, table in rows.items()}
        (folder / "heads").mkdir()
        for name, table in rows.items():
            parquet.write_table(pa.Table.from_pylist(table), folder / "heads" / f"{name}.parquet")
        write_digests(folder / "heads", [f"{name}.parquet" for name in rows])

    return leave


def of_sides(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The rows of each attention of an encoder-decoder; between two sequences there is no previous token."""
    for number, attention in enumerate(("encoder", "decoder", "cross")):
        for row in rows:
            more = {"entropy": row["entropy"] + 10 * number} if "entropy" in row else {}
            more |= {"previous": None if attention == "cross" else 0.25} if "role" in row else {}
            yield {"attention": attention, **row, **more}


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., None]:
    """table(name): write what `attn table` would, with two rows and two claims."""

    def leave(name: str, title: str = "Heads") -> None:
        rows = [
            {"row": "mh6", "loss": "4.2000", "step_time": "-"},
            {"row": "th6", "loss": "4.1000", "step_time": "1.2"},
        ]
        claims = [{"key": f"C{number}", "says": "More is better", "word": word, "lines": ["th6 > mh6: +0.1"]}
                  for number, word in ((7, "holds"), (8, "not resolved"))]  # fmt: skip
        made = {"name": name, "budget": "nano", "title": title, "shows": "what heads do", "tables": [rows]}
        made |= {"notes": ["paired by seed"], "claims": claims, "facts": [["seeds", "0, 1, 2"]]}
        path = tmp_path / "runs" / "tables" / f"{name.replace('/', '-')}-nano.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_sealed(path, made)

    return leave


@pytest.fixture
def open_runs(chromium, tmp_path):
    """open_runs(): open the page of the runs that `make` has written."""

    def opened(width: int = 1280) -> Opened:
        write_dashboard([], tmp_path / "runs", tmp_path / "page.html", watch=False, show=False)
        return Opened(chromium, tmp_path / "page.html", width)

    return opened
