"""The section on syntactic heads: the grammatical relations that a head finds."""

from __future__ import annotations

import numpy as np

from experiments.failures.failure import Mistake
from experiments.heads import figures
from experiments.heads.hooks import has_stages
from experiments.heads.measures import syntax
from experiments.heads.options import HeadsOptions
from experiments.heads.section import Section
from experiments.heads.trained_run import TrainedRun


def make(run: TrainedRun, options: HeadsOptions) -> Section | None:
    """The section; None without a treebank or a softmax."""
    if options.trees is None or not has_stages(run.model, "weights"):
        return None
    rows, sentences = syntax.relation_accuracies(run, options.trees)
    if not rows:
        raise Mistake(
            f"--treebank {options.treebank}: no relation occurs {syntax.MIN_OCCURRENCES} times "
            "in its sentences that fit into length"
        )
    best = syntax.best_of_each_relation(rows)
    syntactic = [row for row in best if row["accuracy"] >= row["baseline"] + syntax.SYNTACTIC_MARGIN]
    listed = ", ".join(f"{row['layer']}-{row['head']} ({row['relation']}, {row['direction']})" for row in syntactic[:6])
    text = (
        f"The heads were tried on {sentences} sentences of the treebank. A head is right if, of all other words of the "
        "sentence, it gives most weight to the one that the relation leads to, from either end. The baseline is the "
        "best fixed offset. "
        f"{len(syntactic)} of {len(best)} relations have a head {100 * syntax.SYNTACTIC_MARGIN:.0f} points above it"
        + (f": {listed}{' and others' if len(syntactic) > 6 else ''}." if syntactic else ".")
        + " n is the number of words that the accuracy rests on. The interval is Wilson's, of one head by itself: it "
        f"does not allow for the choice of the best of {len({(row['layer'], row['head']) for row in rows})} heads."
    )
    picture = figures.relation_accuracies(
        [f"{row['relation']}, {row['direction']} (n = {row['count']:,})" for row in best],
        np.array([row["accuracy"] for row in best]),
        np.array([(row["low"], row["high"]) for row in best]),
        np.array([row["baseline"] for row in best]),
        [f"{row['layer']}-{row['head']}" for row in best],
    )
    return Section("Syntactic heads", text, {"syntax": picture}, {"syntax": rows})
