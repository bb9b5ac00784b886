"""Print where the time of a training step goes, by kind of work, in milliseconds of one thread by torch's profiler.

    python scripts/step_profile.py layers=4 hidden_size=256 heads=4 length=128 batch_size=32
    python scripts/step_profile.py --peer hugging_face layers=4 hidden_size=256 heads=4 length=128 batch_size=32

With or without a peer, the process has the memory settings of `attn train`. A peer needs the extra `peers`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import defaultdict

from experiments.processes.environment_variables import set_performance_variables

STEPS, WARMUP = 5, 3
# an operator is of the first kind with a pattern that occurs in its name
KINDS = {
    "attention kernel": ("attention", "einsum", "bmm", "conv"),
    "linear maps": ("aten::mm", "addmm", "linear"),
    "optimizer": ("_foreach", "_fused_adam", "Optimizer"),
    "activation": ("gelu", "relu", "silu"),
    "norms": ("layer_norm", "LayerNorm", "rms_norm"),
    "softmax, loss and embedding": ("softmax", "nll_loss", "CrossEntropy", "embedding", "index_select", "gather"),
    "casts, copies, allocation": ("copy", "contiguous", "clone", "cat", "fill_", "zero_", "empty"),
    "sums and products of tensors": ("aten::add", "aten::mul", "aten::sub", "aten::sum", "aten::neg", "aten::div",
                                     "_Turn"),
}  # fmt: skip


def main() -> None:
    """Profile a few steps of the model, and print the milliseconds of each kind of work."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", default="")
    parser.add_argument("--operators", action="store_true", help="show each operator")
    parser.add_argument("words", nargs="*")
    chosen = parser.parse_args()
    if "GLIBC_TUNABLES" in set_performance_variables():
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    import torch
    from torch.profiler import ProfilerActivity, profile

    from experiments.bench.contenders import Contender, build
    from experiments.config.compose import compose
    from experiments.display.rows import show

    torch.set_num_threads(1)
    built = build(Contender(compose(chosen.words), "step", chosen.peer))
    for _ in range(WARMUP):
        built.run()
    with profile(activities=[ProfilerActivity.CPU]) as found:
        for _ in range(STEPS):
            built.run()
    times: dict[str, float] = defaultdict(float)
    for event in found.key_averages():
        times[event.key if chosen.operators else kind(event.key)] += event.self_cpu_time_total / 1000 / STEPS
    total = sum(times.values())
    rows = [{"kind": name, "milliseconds": time, "share": time / total} for name, time in times.items()]
    rows.sort(key=lambda row: -row["milliseconds"])
    show([*rows, {"kind": "all", "milliseconds": total, "share": 1.0}], "table", caption=chosen.peer or "ours")


def kind(operator: str) -> str:
    """The kind of work that an operator of torch does, by its name."""
    return next((name for name, parts in KINDS.items() if any(part in operator for part in parts)), "the rest")


if __name__ == "__main__":
    main()
