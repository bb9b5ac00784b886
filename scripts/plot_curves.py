"""Plot validation loss against tokens for the finished runs of a folder: python scripts/plot_curves.py runs out.svg"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt

COLOURS = {"multi_head": "#0072B2", "talking_heads": "#D55E00"}  # by Okabe and Ito, for colour-blind readers


def main(runs: Path, picture: Path) -> None:
    """Draw a line for every finished run in `runs`, and one for the loss of single-token frequencies."""
    figure, axes = plt.subplots(figsize=(7, 4.2))
    named: set[str] = set()
    unigram = None
    for path in sorted(runs.glob("*/result.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        if result["status"] != "done":
            continue
        metrics = (path.parent / "metrics.jsonl").read_text(encoding="utf-8")
        lines = [json.loads(line) for line in metrics.splitlines()]
        points = [(line["tokens"] / 1e6, line["validation_loss"]) for line in lines if "validation_loss" in line]
        variant, heads = result["config"]["variant"]["name"], result["config"]["heads"]
        label = f"{variant.replace('_', ' ')}, {heads} heads"
        tokens, losses = zip(*points, strict=True)
        axes.plot(tokens, losses, color=COLOURS.get(variant), alpha=0.8, label=None if label in named else label)
        named.add(label)
        unigram = result["unigram_loss"]
    if unigram is not None:
        axes.axhline(unigram, color="grey", linestyle=":", label="single-token frequencies")
    axes.set(xlabel="tokens (millions)", ylabel="validation loss (nats per predicted token)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(picture)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
