from __future__ import annotations

from experiments.record.environment import rounds_differently


def test_what_rounds_sums_differently_is_named_and_nothing_else():
    def facts(version: str, **torch: str) -> dict[str, object]:
        return {"packages": {"torch": version, "wandb": "1"}, "torch": {"device": "EPYC", **torch}, "variables": {}}

    wide = facts("2.9", instructions="AVX512")
    assert rounds_differently(wide, wide | {"host": "another"}) == ""
    assert rounds_differently(facts("2.9"), wide) == ""
    narrowed = wide | {"variables": {"ONEDNN_MAX_CPU_ISA": "SSE41", "OMP_NUM_THREADS": "2"}}
    assert rounds_differently(wide, narrowed) == "no ONEDNN_MAX_CPU_ISA -> ONEDNN_MAX_CPU_ISA=SSE41"
    other = facts("2.10", instructions="AVX2", device="Xeon")
    assert rounds_differently(wide, other) == "torch 2.9 -> torch 2.10, EPYC -> Xeon, AVX512 -> AVX2"
